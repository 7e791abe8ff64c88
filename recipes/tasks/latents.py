"""Cached latents: flow matching of a target image, with context images and a prompt as conditions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.loader import DiffusionDataloaderBuild
from recipes.distributed import World
from recipes.mistakes import ConfigError, require_at_least
from recipes.models.bagel import BagelConfig
from recipes.models.flow import FlowInputs
from recipes.tasks.base import BatchSize, Loader, LossTerms, refuse_models, require_build_arguments
from recipes.tasks.flow import FlowTimes, FlowWeights

if TYPE_CHECKING:
    from recipes.config import RunConfig

Batch = Mapping[str, Any]

_POOLED = ("pooled", "pooled_prompt_embeds")  # as caches of edits and of captioned images call it


@dataclass(kw_only=True, slots=True)
class LatentsTaskConfig:
    """How latents are noised and errors weighed.

    Args:
        batch_size: Samples in a batch, on each rank.
        times: How times of the flow are drawn.
        weights: How errors are weighed by their time.
        text_dropout: Share of samples that train without their prompt, for guidance.
        pooled: Name of the conditioning tensor with one vector per prompt, which FLUX asks for. ``auto``: ``pooled`` or
            ``pooled_prompt_embeds``, whichever the cache has; None: none.
        vae: Makes what decodes latents for pictures; None where none are drawn. ``task=latents`` takes ``model.vae``.
    """

    batch_size: int
    times: FlowTimes
    weights: FlowWeights
    vae: Callable[[], nn.Module] | None = None
    text_dropout: float = 0.1
    pooled: str | None = "auto"

    def check(self, config: "RunConfig") -> None:
        """Refuse data that is no cache."""
        require_at_least(1, **{"task.batch_size": self.batch_size})
        if not 0 <= self.text_dropout <= 1:
            raise ConfigError(f"task.text_dropout ({self.text_dropout}) must lie between 0 and 1")
        refuse_models(config.model, "latents", others=(BagelConfig,))
        for data in (config.data, config.validation.data):
            if data is not None:
                require_build_arguments(data, "latents", ("dp_rank", "dp_world_size", "batch_size"))

    def build(self, model: Any, device: torch.device) -> "LatentsTask":
        """Return the task; the VAE is made when a picture is asked for."""
        del model
        return LatentsTask(self, device)


class LatentsTask:
    """Squared velocity error ``mse`` per latent value, also by number of contexts; every value counts alike."""

    terms = ("mse",)
    weights = (1.0,)

    def __init__(self, config: LatentsTaskConfig, device: torch.device) -> None:
        self.config = config
        self._device = device

    def loader(self, data: Any, world: World, seed: int) -> Loader:
        """Return this rank's batches, epoch after epoch; their order follows from the data's own seed."""
        del seed
        return Epochs(data.build(dp_rank=world.rank, dp_world_size=world.size, batch_size=self.config.batch_size))

    def counts(self, batch: Batch) -> Tensor:
        """Return the latent values to predict."""
        return torch.tensor([float(batch["image_latents"].numel())], dtype=torch.float64)

    def size(self, batch: Batch) -> BatchSize:
        """Return samples, and tokens of latents (2 x 2 patches) and text."""
        images = [batch["image_latents"], *self.contexts(batch)]
        patches = sum(image.shape[0] * image.shape[2] * image.shape[3] // 4 for image in images)
        tokens = patches + int(batch["text_attention_mask"].sum())
        return BatchSize(samples=len(batch["image_latents"]), tokens=tokens, capacity=None)

    def contexts(self, batch: Batch) -> list[Tensor]:
        """Return the context latents, one tensor per context; text-to-image has none."""
        return batch.get("context_latents", [])

    def texts(self, batch: Batch) -> list[str]:
        """Return each sample's prompt, as far as the cache kept it."""
        metadata = batch["metadata"]
        if not self.contexts(batch):
            return metadata["prompts"]
        return [str(one["original_ids"].get("instruction", "")) for one in metadata["samples"]]

    def to(self, batch: Batch, device: torch.device) -> Batch:
        """Return the batch with its tensors on ``device``."""
        return _moved(batch, device)

    def losses(self, model: nn.Module, batch: Batch, generator: torch.Generator) -> LossTerms:
        """Noise the targets, predict the velocity, and sum the weighed squared errors."""
        clean = batch["image_latents"].float()
        time_B = self.config.times.draw(len(clean), generator)
        noise = torch.randn(clean.shape, generator=generator, device=clean.device)
        dropout = self.config.text_dropout if model.training else 0.0  # held-out losses compare whatever it is
        kept_B = torch.rand(len(clean), generator=generator, device=clean.device) >= dropout
        time = time_B[:, None, None, None]
        velocity = model(self.inputs(batch, (1 - time) * clean + time * noise, time_B, kept_B))
        errors = (velocity.float() - (noise - clean)).square().sum((1, 2, 3)) * self.config.weights.of(time_B)
        total = errors.sum()
        count = torch.tensor(float(clean.numel()), device=total.device)
        contexts = len(self.contexts(batch))
        kind = f"contexts_{contexts}" if contexts else "text_to_image"  # they differ in how hard they are
        return LossTerms(sums=total[None], groups={kind: torch.stack([total.detach(), count])[None]})

    def inputs(self, batch: Batch, noisy_BCHW: Tensor, time_B: Tensor, kept_B: Tensor) -> FlowInputs:
        """Return the model's inputs; where ``kept_B`` is false the prompt is all zeros."""
        pooled = self._pooled(batch["conditioning_tensors"])
        return FlowInputs(
            noisy_BCHW=noisy_BCHW,
            contexts=[context.float() for context in self.contexts(batch)],
            text_BSD=batch["text_embeddings"].float() * kept_B[:, None, None],
            mask_BS=batch["text_attention_mask"].bool(),
            pooled_BD=None if pooled is None else pooled.float() * kept_B[:, None],
            time_B=time_B,
            conditioning=tuple(batch["conditioning_tensors"]),
        )

    def _pooled(self, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Return the vectors [B, P] that ``task.pooled`` names.

        Raises:
            ConfigError: The cache has no such tensor.
        """
        name = self.config.pooled
        if name == "auto":
            return next((tensors[one] for one in _POOLED if one in tensors and tensors[one].ndim == 2), None)
        if name is not None and name not in tensors:
            known = f"has {', '.join(tensors)}" if tensors else "has none: encode it with encoder.pooled"
            raise ConfigError(f"task.pooled ({name}) must name a conditioning tensor of the cache, which {known}")
        return None if name is None else tensors[name]

    def vae(self) -> nn.Module:
        """Return the frozen VAE.

        Raises:
            ConfigError: ``task.vae`` is None.
        """
        if self.config.vae is None:
            raise ConfigError("task.vae has no value, and latents are to be decoded: name the VAE that encoded them")
        return self.config.vae().to(self._device).eval().requires_grad_(False)


class Epochs:
    """Epoch after epoch of a cache, without end."""

    def __init__(self, built: DiffusionDataloaderBuild) -> None:
        self._loader, self._sampler = built.dataloader, built.sampler

    @property
    def dataset(self) -> BaseMultiresolutionDataset:
        """Return the opened cache."""
        return self._loader.dataset

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield from self._loader
            self._sampler.set_epoch(self._sampler.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the state behind the last batch handed out."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue behind it."""
        self._loader.load_state_dict(state)

    def load_elastic(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Continue behind those of all ranks, which may have been more or fewer, with another batch size."""
        self._loader.load_elastic(states)

    def drops(self) -> dict[str, dict[str, int]]:
        """Return what was lost so far."""
        return self._loader.drops()

    def origins(self, batch: Batch) -> list[str]:
        """Name what each sample was encoded from."""
        metadata = batch["metadata"]
        if "image_paths" in metadata:
            return metadata["image_paths"]
        return [str(one["original_ids"]) for one in metadata["samples"]]


def _moved(value: Any, device: torch.device) -> Any:
    match value:
        case Tensor():
            return value.to(device, non_blocking=True)
        case dict():
            return {name: _moved(one, device) for name, one in value.items()}
        case list():
            return [_moved(one, device) for one in value]
    return value
