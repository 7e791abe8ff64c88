"""The packed BAGEL model: rows in, per-token losses out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipes.models.bagel.attention import plan_attention
from recipes.models.bagel.decoder import LanguageModel, Routing
from recipes.models.bagel.embeddings import Connector, TimestepEmbedder, sincos_2d
from recipes.models.bagel.inputs import LabelInputs, LatentInputs, PackedInputs, VitInputs
from recipes.models.bagel.latents import add_noise, patchify, shift_time
from recipes.models.bagel.vision import SiglipTower

if TYPE_CHECKING:
    from recipes.models.bagel.config import BagelConfig


class BagelOutput(NamedTuple):
    """Losses per token, unreduced, float32; with zero tokens where a pack has none.

    Attributes:
        ce: Cross-entropy at each labelled row, [E].
        mse: Squared error of the velocity at each noised latent token, [G+, patch * patch * C].
    """

    ce: Tensor
    mse: Tensor


@dataclass(frozen=True, slots=True)
class PackStates:
    """What the decoder made of a pack: final states [L, D] in expert order, and where the rows lie in it."""

    hidden: Tensor
    routing: Routing

    def at(self, rows: Tensor) -> Tensor:
        """Return the states of pack rows."""
        return self.hidden[self.routing.place[rows]]

    @property
    def gen(self) -> Tensor:
        """The states of the latent tokens, in their order."""
        return self.hidden[self.routing.num_und :]

    def gen_index(self, rows: Tensor) -> Tensor:
        """Return which latent tokens the pack rows are, counted from the first one."""
        return self.routing.place[rows] - self.routing.num_und


class Bagel(nn.Module):
    """See the package. A branch that a pack lacks runs on zero rows.

    So every parameter takes part in every pack: its gradient is zero then, not missing, and no rank leaves out a
    collective. The model has no buffers; all fixed tables follow from the configuration.
    """

    def __init__(self, config: "BagelConfig") -> None:
        super().__init__()
        self.config = config
        width = config.llm.hidden_size
        self.language_model = LanguageModel(config.llm, freeze_und=config.freeze_und)
        self.vit_model = SiglipTower(config.vision)
        self.connector = Connector(config.vision.hidden_size, width)
        self.time_embedder = TimestepEmbedder(width)
        self.vae2llm = nn.Linear(config.latent_features, width)
        self.llm2vae = nn.Linear(width, config.latent_features)
        if config.freeze_und:
            self._freeze_und()

    def forward(
        self, inputs: PackedInputs, *, noise_GF: Tensor | None = None, generator: torch.Generator | None = None
    ) -> BagelOutput:
        """Compute the losses of every token of one pack.

        Args:
            inputs: The pack, on the model's device.
            noise_GF: Standard normal noise for every latent token; drawn if None.
            generator: Draws the noise, on the model's device; the default generator if None.
        """
        inputs = self._with_every_branch(inputs)
        latents, labels = inputs.latents, inputs.labels
        clean_GF = self.clean_tokens(latents)
        if noise_GF is None:
            noise_GF = torch.randn(clean_GF.shape, generator=generator, device=clean_GF.device)
        time_G = shift_time(latents.time_logits.sigmoid(), self.config.timestep_shift)
        states = self._run(inputs, add_noise(clean_GF, noise_GF, time_G), time_G)

        logits_EV = self.language_model.lm_head(states.at(labels.rows))
        velocity = self.llm2vae(states.at(latents.loss_rows))
        target = (noise_GF - clean_GF)[states.gen_index(latents.loss_rows)]
        return BagelOutput(
            ce=F.cross_entropy(logits_EV.float(), labels.ids, reduction="none"),
            mse=(velocity.float() - target).square(),
        )

    def clean_tokens(self, latents: LatentInputs) -> Tensor:
        """Cut latents into float32 tokens [G, F], without noise."""
        return patchify(latents.padded.float(), latents.grids, self.config.latent_patch_size)

    def velocity(self, inputs: PackedInputs, tokens_GF: Tensor, time_G: Tensor) -> Tensor:
        """Predict the direction from data to noise, [G, F], where the latent tokens are as noisy as ``time_G`` says."""
        states = self._run(self._with_every_branch(inputs), tokens_GF, time_G)
        return self.llm2vae(states.gen).float()

    def next_token_logits(self, inputs: PackedInputs) -> Tensor:
        """Predict the token after the last labelled row, [V]; all images of the pack are conditions."""
        inputs = self._with_every_branch(inputs)
        clean_GF = self.clean_tokens(inputs.latents)
        states = self._run(inputs, clean_GF, torch.zeros_like(clean_GF[:, 0]))
        return self.language_model.lm_head(states.at(inputs.labels.rows[-1:]))[0].float()

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh weights: normal, biases zero, norms one, and a head that starts by predicting no velocity."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 1:
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=self.config.llm.initializer_range, generator=generator)
        nn.init.zeros_(self.llm2vae.weight)
        if self.config.llm.pad_token_id is not None:
            nn.init.zeros_(self.language_model.model.embed_tokens.weight[self.config.llm.pad_token_id])

    def _run(self, inputs: PackedInputs, tokens_GF: Tensor, time_G: Tensor) -> PackStates:
        decoder = self.language_model.model
        text = decoder.embed_tokens(inputs.text.ids)
        rows = [text, self._vit_rows(inputs.vit), self._latent_rows(inputs.latents, tokens_GF, time_G)]
        routing = self._route(inputs)
        return PackStates(decoder(torch.cat(rows), routing), routing)

    def _vit_rows(self, vit: VitInputs) -> Tensor:
        rows = self.connector(self.vit_model(vit.patches, vit.position_ids, vit.lengths))
        side = self.config.vision.max_patches_per_side
        return rows + sincos_2d(vit.position_ids, side, rows.shape[1]).to(rows.dtype)

    def _latent_rows(self, latents: LatentInputs, tokens_GF: Tensor, time_G: Tensor) -> Tensor:
        rows = self.vae2llm(tokens_GF.to(self.vae2llm.weight.dtype)) + self.time_embedder(time_G)
        return rows + sincos_2d(latents.position_ids, self.config.max_latent_size, rows.shape[1]).to(rows.dtype)

    def _route(self, inputs: PackedInputs) -> Routing:
        rows = torch.cat([inputs.text.rows, inputs.vit.rows, inputs.latents.rows])
        place = torch.empty_like(rows)
        place[rows] = torch.arange(len(rows), device=rows.device)
        return Routing(
            rows=rows,
            place=place,
            num_und=len(inputs.text.rows) + len(inputs.vit.rows),
            positions=inputs.positions[rows],
            attention=plan_attention(self.config.attention, inputs.visibility, rows.device),
        )

    def _with_every_branch(self, inputs: PackedInputs) -> PackedInputs:
        device, config = inputs.positions.device, self.config
        none = torch.empty(0, dtype=torch.long, device=device)
        no_patches = torch.empty(0, config.vision.patch_features, device=device)
        no_latents = torch.empty(0, config.latent_channels, 1, 1, device=device)
        no_vit = VitInputs(patches=no_patches, rows=none, position_ids=none, lengths=[0])
        no_vae = LatentInputs(
            padded=no_latents,
            grids=[],
            rows=none,
            position_ids=none,
            time_logits=none.float(),
            loss_rows=none,
        )
        return replace(
            inputs,
            vit=inputs.vit or no_vit,
            latents=inputs.latents or no_vae,
            labels=inputs.labels or LabelInputs(rows=none, ids=none),
        )

    def _freeze_und(self) -> None:
        und = [p for name, p in self.language_model.model.named_parameters() if "_moe_gen" not in name]
        for parameter in [*und, *self.vit_model.parameters(), *self.connector.parameters()]:
            parameter.requires_grad_(False)
