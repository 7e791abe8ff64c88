"""Packed batches of text, ViT patches and latents: next-token cross-entropy and flow matching in one pass (BAGEL)."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from automodel_data.errors import DataError
from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.loader import BagelDataloaderConfig
from automodel_data.multimodal.utils import add_special_tokens
from recipes.distributed import World
from recipes.mistakes import ConfigError
from recipes.models.bagel import BagelConfig, PackedInputs
from recipes.models.flow import FluxConfig, QwenImageConfig
from recipes.models.vae import encode_latents
from recipes.tasks.base import BatchSize, Loader, LossTerms, refuse_models, require_build_arguments

if TYPE_CHECKING:
    from recipes.config import RunConfig


@dataclass(kw_only=True, slots=True)
class PackedTaskConfig:
    """How the two losses of a pack are weighed, and what turns its texts and images into numbers.

    Args:
        tokenizer: Folder that ``AutoTokenizer.from_pretrained`` loads.
        vae: Makes the frozen VAE, with the interface of diffusers' ``AutoencoderKL``.
        max_num_tokens: What a full pack would hold, for the fill.
        ce_weight, mse_weight: What the mean cross-entropy and the mean squared error are multiplied with in the loss.
        weigh_tokens: Weigh each label as its sample asks for (``ce_loss_weights``) instead of all alike.
    """

    tokenizer: str
    vae: Callable[[], nn.Module]
    max_num_tokens: int | None = None
    ce_weight: float = 1.0
    mse_weight: float = 1.0
    weigh_tokens: bool = False

    def check(self, config: "RunConfig") -> None:
        """Refuse data that does not come in packs, or not in packs that the model can take."""
        if self.ce_weight < 0 or self.mse_weight < 0:
            raise ConfigError(f"task.ce_weight ({self.ce_weight}) and task.mse_weight ({self.mse_weight}) must be >= 0")
        refuse_models(config.model, "packed", others=(QwenImageConfig, FluxConfig))
        for key, data in {"data": config.data, "validation.data": config.validation.data}.items():
            if data is None:
                continue
            require_build_arguments(data, "packed", ("tokenizer", "special_tokens", "rank", "world_size"))
            if isinstance(data, BagelDataloaderConfig) and isinstance(config.model, BagelConfig):
                _check_packs(f"{key}.dataset_config", data.dataset_config, config.model)

    def build(self, model: Any, device: torch.device) -> "PackedTask":
        """Load the tokenizer and the VAE; the VAE stays frozen on ``device``."""
        return PackedTask(self, self.load_tokenizer(model), self.vae().to(device).eval().requires_grad_(False))

    def load_tokenizer(self, model: Any) -> PreTrainedTokenizerBase:
        """Load the tokenizer of a ``model`` that is yet to be built, and give it the packed format's special tokens.

        Raises:
            ConfigError: There is none in that folder, or it has more tokens than the model.
        """
        tokenizer, _, _ = add_special_tokens(self._read_tokenizer())
        largest = max(tokenizer.get_vocab().values())
        if isinstance(model, BagelConfig) and largest >= model.llm.vocab_size:
            raise ConfigError(
                f"task.tokenizer ({self.tokenizer}) has ids up to {largest}, model.llm.vocab_size is "
                f"{model.llm.vocab_size}: raise that to {largest + 1} at least, or set sources.tokenizer to the "
                "model's own"
            )
        return tokenizer

    def _read_tokenizer(self) -> PreTrainedTokenizerBase:
        try:
            return AutoTokenizer.from_pretrained(self.tokenizer)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"task.tokenizer ({self.tokenizer}): there is no tokenizer; set sources.tokenizer to its folder"
            ) from error


class PackedTask:
    """Cross-entropy ``ce`` per labelled token and squared velocity error ``mse`` per noised latent token."""

    terms = ("ce", "mse")

    def __init__(self, config: PackedTaskConfig, tokenizer: PreTrainedTokenizerBase, vae: nn.Module) -> None:
        self.weights = (config.ce_weight, config.mse_weight)
        self.tokenizer, self._special_tokens, _ = add_special_tokens(tokenizer)
        self._weigh_tokens = config.weigh_tokens
        self._capacity = config.max_num_tokens
        self._vae = vae

    def loader(self, data: Any, world: World, seed: int) -> Loader:
        """Return this rank's packs, one a batch."""
        return data.build(
            tokenizer=self.tokenizer,
            special_tokens=self._special_tokens,
            rank=world.rank,
            world_size=world.size,
            batch_size=1,
            global_seed=seed,
        ).dataloader

    def counts(self, batch: SimpleCustomBatch) -> torch.Tensor:
        """Return the labels (or their summed weights) and the noised latent tokens of a pack."""
        parts = vars(batch)  # its to_dict would make the dense masks
        labels = self._label_weights(batch).double().sum() if "ce_loss_indexes" in parts else 0.0
        noised = len(batch.mse_loss_indexes) if "mse_loss_indexes" in parts else 0.0
        return torch.tensor([float(labels), float(noised)], dtype=torch.float64)

    def size(self, batch: SimpleCustomBatch) -> BatchSize:
        """Return samples and tokens of a pack."""
        return BatchSize(samples=len(batch.batch_data_indexes), tokens=batch.sequence_length, capacity=self._capacity)

    def to(self, batch: SimpleCustomBatch, device: torch.device) -> SimpleCustomBatch:
        """Return a pack on ``device``; the given one stays where it is."""
        return batch if device.type == "cpu" else copy.copy(batch).cuda(device)

    def losses(self, model: nn.Module, batch: SimpleCustomBatch, generator: torch.Generator) -> LossTerms:
        """Encode the images, run the model and sum both losses; a latent token's error is the mean of its values'."""
        parts = vars(batch)
        latents = encode_latents(self._vae, batch.padded_images, generator) if "padded_images" in parts else None
        output = model(PackedInputs.from_batch(batch, latents), generator=generator)
        none = torch.empty(0, dtype=torch.long, device=output.ce.device)
        has_labels = "ce_loss_indexes" in parts
        ce = TokenLosses(
            values=output.ce,
            weights=self._label_weights(batch) if has_labels else none.float(),
            rows=batch.ce_loss_indexes if has_labels else none,
        )
        errors = output.mse.mean(-1)
        mse = TokenLosses(
            values=errors,
            weights=torch.ones_like(errors, requires_grad=False),
            rows=parts.get("mse_loss_indexes", none),
        )
        names = [origin["dataset_name"] for origin in batch.batch_data_indexes]
        sums = torch.stack([ce.total(), mse.total()])
        return LossTerms(sums=sums, groups=by_group(names, batch.sample_lens, (ce, mse)))

    def _label_weights(self, batch: SimpleCustomBatch) -> torch.Tensor:
        return batch.ce_loss_weights if self._weigh_tokens else torch.ones_like(batch.ce_loss_weights)


class TokenLosses(NamedTuple):
    """One term's losses [N], the weight of each, and the row of the pack it belongs to (int64)."""

    values: torch.Tensor
    weights: torch.Tensor
    rows: torch.Tensor

    def total(self) -> torch.Tensor:
        """Return the weighted sum, with its gradient."""
        return (self.values * self.weights).sum()


def by_group(names: Sequence[str], sample_lens: Sequence[int], terms: Sequence[TokenLosses]) -> dict[str, torch.Tensor]:
    """Return ``[terms, 2]``, sum and count, for every dataset in ``names``, which names each sample's.

    A row belongs to the sample that covers it: samples lie end to end, ``sample_lens`` long.
    """
    device = terms[0].values.device
    groups = sorted(set(names))
    group_of_sample = torch.tensor([groups.index(name) for name in names], device=device)
    ends = torch.tensor(sample_lens, device=device).cumsum(0)
    table = torch.zeros(len(groups), len(terms), 2, device=device)
    for index, term in enumerate(terms):
        group = group_of_sample[torch.searchsorted(ends, term.rows, right=True)]
        table[:, index, 0].index_add_(0, group, (term.values * term.weights).detach().float())
        table[:, index, 1].index_add_(0, group, term.weights.float())
    return dict(zip(groups, table, strict=True))


def _check_packs(path: str, data: BagelDatasetConfig, model: BagelConfig) -> None:
    """Refuse knobs that contradict each other, and images cut in other patches than the model's."""
    try:
        for group in data.groups.keys() - data.resolved_dataset_info.keys():
            raise ConfigError(
                f"{path}.grouped_datasets.{group}: dataset_info (in conf/: sources.train) has no such group; add its "
                f"rows, choose another data=, or leave it out: {path}.grouped_datasets.{group}=null"
            )
        data.check()
    except DataError as error:
        raise ConfigError(f"{path}: {error}") from error
    for key, ours, theirs in (
        ("vit_patch_size", data.vit_patch_size, model.vision.patch_size),
        ("max_num_patch_per_side", data.max_num_patch_per_side, model.vision.max_patches_per_side),
        ("vae_image_downsample", data.vae_image_downsample, model.image_stride),
        ("max_latent_size", data.max_latent_size, model.max_latent_size),
    ):
        if ours != theirs:
            raise ConfigError(
                f"{path}.{key} ({ours}) must be the model's ({theirs}); choose the images= for this model="
            )
