"""Pictures and answers from a trained model, in the plainest way: every step computes the whole pack again.

A prompt is a ``Sample`` like those of the datasets. It is laid out and assembled by the packer, so that the model sees
here what it saw in training; its images with loss are those to generate.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from automodel_data.errors import DataError
from automodel_data.images import image_backend
from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.materialize import Materializer
from automodel_data.multimodal.pack_builder import LayoutRules, SpecialTokens, lay_out
from automodel_data.multimodal.plan import Sample, TensorImage, TextItem, VaeItem
from automodel_data.randomness import Randomness
from recipes.models.bagel.config import BagelConfig
from recipes.models.bagel.inputs import PackedInputs
from recipes.models.bagel.latents import shift_time, unpatchify
from recipes.models.bagel.model import Bagel
from recipes.models.vae import decode_latents, encode_latents


def sampling_rules(config: BagelConfig, tokens: SpecialTokens) -> LayoutRules:
    """Return the layout that a model was made for, with nothing dropped."""
    return LayoutRules(
        tokens=tokens,
        text_cond_dropout_prob=0.0,
        vit_cond_dropout_prob=0.0,
        vae_cond_dropout_prob=0.0,
        vae_image_downsample=config.image_stride,
        max_latent_size=config.max_latent_size,
        vit_patch_size=config.vision.patch_size,
        max_num_patch_per_side=config.vision.max_patches_per_side,
        interpolate_pos=False,
    )


def blank_target(height: int, width: int) -> VaeItem:
    """Return the item that asks for a picture of this size, in pixels."""
    return VaeItem(picture=TensorImage(torch.zeros(3, height, width)), loss=True, enable_cfg=False)


def pack_prompts(prompts: Sequence[Sample], rules: LayoutRules, device: torch.device) -> SimpleCustomBatch:
    """Pack prompts as the dataset does, with dense masks.

    Raises:
        DataError: An image of a prompt cannot be decoded, or does not fit the model's grids.
    """

    def refuse(sample: Sample, reason: str, detail: str) -> None:
        raise DataError(f"the prompt {sample['data_indexes']} has an image that cannot be used: {reason} {detail}")

    layouts = [lay_out(prompt, rules, Randomness(0)) for prompt in prompts]
    materializer = Materializer(rules=rules, backend=image_backend("pillow"), max_num_tokens=None)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return SimpleCustomBatch([materializer.materialize(layouts, pool, refuse)]).cuda(device)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSampler:
    """Euler steps from noise to data, guided by the prompts' texts (classifier-free guidance; Ho and Salimans, 2022).

    Attributes:
        steps: How many steps; each calls the model twice.
        guidance: How far to go from the prediction without texts (0) towards and past the one with them (1).
    """

    steps: int = 30
    guidance: float = 4.0

    @torch.no_grad()
    def images(
        self, model: Bagel, vae: nn.Module, prompts: Sequence[Sample], rules: LayoutRules, generator: torch.Generator
    ) -> list[Tensor]:
        """Generate every image with loss of every prompt, [3, H, W] in [-1, 1].

        Args:
            prompts: Their texts guide where ``enable_cfg`` is set.
            generator: Draws all noise, on the model's device.
        """
        batch, without_texts = (
            pack_prompts(prompts, packed_by, generator.device)
            for packed_by in (rules, replace(rules, text_cond_dropout_prob=1.0))
        )
        latents = encode_latents(vae, batch.padded_images, generator)
        guided, free = PackedInputs.from_batch(batch, latents), PackedInputs.from_batch(without_texts, latents)
        tokens_GF = self._denoise(model, guided, free, generator)
        sizes = [h * w for h, w in guided.latents.grids]
        wanted = [bool(noised[0]) for noised in guided.latents.time_logits.isfinite().split(sizes)]
        pieces = zip(tokens_GF.split(sizes), guided.latents.grids, wanted, strict=True)
        patch = model.config.latent_patch_size
        finished = [unpatchify(tokens, grid, patch) for tokens, grid, is_wanted in pieces if is_wanted]
        return [decode_latents(vae, latent[None])[0].clamp(-1, 1) for latent in finished]

    def _denoise(self, model: Bagel, guided: PackedInputs, free: PackedInputs, generator: torch.Generator) -> Tensor:
        clean_GF = model.clean_tokens(guided.latents)
        noised_G = guided.latents.time_logits.isfinite()
        noise_GF = torch.randn(clean_GF.shape, generator=generator, device=clean_GF.device)
        tokens_GF = torch.where(noised_G[:, None], noise_GF, clean_GF)
        times = shift_time(torch.linspace(1, 0, self.steps + 1), model.config.timestep_shift).tolist()
        for time, next_time in pairwise(times):
            time_G = time * noised_G
            with_texts, without = (model.velocity(inputs, tokens_GF, time_G) for inputs in (guided, free))
            velocity = without + self.guidance * (with_texts - without)
            tokens_GF = tokens_GF + (next_time - time) * velocity * noised_G[:, None]
        return tokens_GF


@torch.no_grad()
def answer(
    model: Bagel, vae: nn.Module, prompt: Sample, rules: LayoutRules, *, max_new_tokens: int, generator: torch.Generator
) -> list[int]:
    """Answer a prompt that holds texts and images without loss, greedily; the closing token is not returned."""
    ids: list[int] = []
    while len(ids) < max_new_tokens:
        so_far = TextItem(ids=ids, loss=True, enable_cfg=False)
        batch = pack_prompts([Sample(plan=[*prompt.plan, so_far])], rules, generator.device)
        has_latents = "padded_images" in vars(batch)
        latents = encode_latents(vae, batch.padded_images, generator) if has_latents else None
        token = int(model.next_token_logits(PackedInputs.from_batch(batch, latents)).argmax())
        if token == rules.tokens.eos_token_id:
            break
        ids.append(token)
    return ids
