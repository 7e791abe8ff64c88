"""From a closed pack to its tensors: surviving images are decoded, then everything is laid down in its rows."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from automodel_data.images import ImageBackend
from automodel_data.multimodal.attention_masks import AttentionMasks
from automodel_data.multimodal.decode import Resized, decode_pack
from automodel_data.multimodal.pack_builder import LayoutRules, PlacedImage, PlacedLatent, SampleLayout
from automodel_data.multimodal.plan import Picture, PlannedImage, Sample, TensorImage
from automodel_data.multimodal.utils import (
    get_flattened_position_ids_extrapolate,
    get_flattened_position_ids_interpolate,
    patchify,
)

Reject = Callable[[Sample, str, str], None]
Part = dict[str, Any]
"""Some of a batch's tensors and lists, by name."""

ImageT = TypeVar("ImageT", bound=PlacedImage)


@dataclass(slots=True)
class StageSeconds:
    """Seconds spent so far on decoding and resizing images, and on assembling tensors."""

    decode: float = 0.0
    assemble: float = 0.0


@dataclass(frozen=True, eq=False, slots=True)
class _InPack(Generic[ImageT]):
    """An image of a sample whose first row is the pack's row ``sample_start``."""

    placed: ImageT
    sample_start: int

    @property
    def rows(self) -> np.ndarray:
        """The pack's rows of its patches."""
        first = self.sample_start + self.placed.first_row
        return np.arange(first, first + self.placed.num_patches)


@dataclass(frozen=True, kw_only=True, slots=True)
class Materializer:
    """Makes tensors of closed packs.

    Args:
        rules: The layout's patch sizes and tables.
        backend: Decodes and resizes.
        max_num_tokens: Where given, packs are padded to it by a causal split (flex attention); else every sample
            gets a dense mask.
        clock: Tells the seconds that ``seconds`` adds up.
    """

    rules: LayoutRules
    backend: ImageBackend
    max_num_tokens: int | None
    clock: Callable[[], float] = time.perf_counter
    seconds: StageSeconds = field(default_factory=StageSeconds)

    def materialize(self, layouts: Sequence[SampleLayout], pool: Executor, reject: Reject) -> Part | None:
        """Return the batch (SPEC of ``SimpleCustomBatch``), None where no sample survived its decoding."""
        started = self.clock()
        pack = decode_pack(layouts, self.backend, pool)
        decoded = self.clock()
        for layout, error in pack.broken.items():
            reject(layout.sample, error.reason, error.detail)
        kept = [layout for layout in layouts if layout not in pack.broken]
        batch = self._assemble(kept, pack.pixels, pool) if kept else None
        self.seconds.decode += decoded - started
        self.seconds.assemble += self.clock() - decoded
        return batch

    def _assemble(self, layouts: Sequence[SampleLayout], pixels: Resized, pool: Executor) -> Part:
        *starts, length = accumulate((layout.length for layout in layouts), initial=0)
        placed = list(zip(layouts, starts, strict=True))
        vae_images = [_InPack(image, start) for layout, start in placed for image in layout.vae_images]
        vit_images = [_InPack(image, start) for layout, start in placed for image in layout.vit_images]
        return {
            "sequence_length": length,
            **self._attention_part(layouts, length),
            "packed_text_ids": _ints(layout.text_ids for layout in layouts),
            "packed_text_indexes": _ints(np.array(layout.text_rows) + start for layout, start in placed),
            "packed_position_ids": _ints(part for layout in layouts for part in layout.positions),
            "batch_data_indexes": [layout.sample["data_indexes"] for layout in layouts],
            **(self._vae_part(vae_images, pixels, pool) if vae_images else {}),
            **(self._vit_part(vit_images, pixels, pool) if vit_images else {}),
            **_label_part(layouts, starts),
        }

    def _attention_part(self, layouts: Sequence[SampleLayout], length: int) -> Part:
        sample_lens = [layout.length for layout in layouts]
        splits = [layout.splits for layout in layouts]
        if self.max_num_tokens is None:
            lengths = [[split.length for split in sample] for sample in splits]
            modes = [[split.mode for split in sample] for sample in splits]
            return {"sample_lens": sample_lens, "nested_attention_masks": AttentionMasks(lengths, modes)}
        padding = self.max_num_tokens - length
        return {
            "sample_lens": [*sample_lens, padding],
            "split_lens": [*(split.length for sample in splits for split in sample), padding],
            "attn_modes": [*(split.mode for sample in splits for split in sample), "causal"],
        }

    def _vae_part(self, images: Sequence[_InPack[PlacedLatent]], pixels: Resized, pool: Executor) -> Part:
        pictures = [image.placed.picture for image in images]
        height, width = max(picture.height for picture in pictures), max(picture.width for picture in pictures)
        padded = _zeros(len(images), 3, height, width)
        list(pool.map(lambda out, picture: _fill_image(out, picture, pixels), padded, pictures))
        counts = [image.placed.num_patches for image in images]
        timesteps = [-np.inf if image.placed.timestep is None else image.placed.timestep for image in images]
        return {
            "padded_images": padded,
            "patchified_vae_latent_shapes": [image.placed.grid for image in images],
            "packed_latent_position_ids": self._patch_positions(
                pictures, self.rules.vae_image_downsample, self.rules.max_latent_size
            ),
            "packed_vae_token_indexes": _ints(image.rows for image in images),
            "packed_timesteps": torch.from_numpy(np.repeat(np.array(timesteps, dtype=np.float32), counts)),
            "mse_loss_indexes": _ints(image.rows for image in images if image.placed.timestep is not None),
        }

    def _vit_part(self, images: Sequence[_InPack[PlacedImage]], pixels: Resized, pool: Executor) -> Part:
        patch = self.rules.vit_patch_size
        counts = [image.placed.num_patches for image in images]
        tokens = _zeros(sum(counts), patch * patch * 3)
        placed = [image.placed for image in images]
        list(pool.map(lambda out, image: _fill_patches(out, image, patch, pixels), tokens.split(counts), placed))
        pictures = [image.picture for image in placed]
        return {
            "packed_vit_tokens": tokens,
            "packed_vit_position_ids": self._patch_positions(pictures, patch, self.rules.max_num_patch_per_side),
            "packed_vit_token_indexes": _ints(image.rows for image in images),
            "vit_token_seqlens": torch.tensor(counts),
        }

    def _patch_positions(self, pictures: Sequence[Picture], patch: int, table: int) -> torch.Tensor:
        positions = (
            get_flattened_position_ids_interpolate
            if self.rules.interpolate_pos
            else get_flattened_position_ids_extrapolate
        )
        return torch.cat([positions(picture.height, picture.width, patch, table) for picture in pictures])


def _fill_image(out_CHW: torch.Tensor, picture: Picture, pixels: Resized) -> None:
    corner = out_CHW[:, : picture.height, : picture.width]
    match picture:
        case TensorImage(pixels_CHW=tensor):
            corner.copy_(tensor)
        case PlannedImage(transform=transform):
            transform.normalize_into(corner.permute(1, 2, 0), torch.from_numpy(pixels[picture]))


def _fill_patches(out: torch.Tensor, placed: PlacedImage, patch: int, pixels: Resized) -> None:
    match placed.picture:
        case TensorImage(pixels_CHW=tensor):
            out.copy_(patchify(tensor, patch))
        case PlannedImage(transform=transform) as picture:
            rows, columns = placed.grid
            grid = torch.from_numpy(pixels[picture]).view(rows, patch, columns, patch * 3).transpose(1, 2)
            transform.normalize_into(out.view(rows, columns, patch, patch * 3), grid)


def _label_part(layouts: Sequence[SampleLayout], starts: Sequence[int]) -> Part:
    labels = [(label, start) for layout, start in zip(layouts, starts, strict=True) for label in layout.labels]
    if not labels:
        return {}
    return {
        "packed_label_ids": torch.tensor([label.token for label, _ in labels]),
        "ce_loss_indexes": torch.tensor([label.row + start for label, start in labels]),
        "ce_loss_weights": torch.tensor([label.weight for label, _ in labels]),
    }


def _zeros(*shape: int) -> torch.Tensor:
    """Return zeros, float32; NumPy asks Linux for huge pages, so that touching them first costs a fifth of torch's."""
    return torch.from_numpy(np.zeros(shape, dtype=np.float32))


def _ints(parts: Iterable[Sequence[int] | np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, dtype=np.int64) for part in [[], *parts]]))
