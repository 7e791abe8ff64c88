"""From a closed pack to its tensors: the images that survived are decoded, resized and laid down, in threads."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from automodel_data.errors import SkipSample
from automodel_data.images import ImageBackend
from automodel_data.multimodal.attention_masks import AttentionMasks
from automodel_data.multimodal.pack_builder import LayoutRules, PlacedImage, PlacedLatent, SampleLayout
from automodel_data.multimodal.plan import PlannedImage, Sample, TensorImage
from automodel_data.multimodal.utils import (
    get_flattened_position_ids_extrapolate,
    get_flattened_position_ids_interpolate,
    patchify,
)

Reject = Callable[[Sample, str, str], None]
Pixels = dict[int, np.ndarray]
"""Resized uint8 [H, W, 3] by the ``id`` of the placed image."""


@dataclass(slots=True)
class StageSeconds:
    """Seconds spent so far on decoding and resizing images, and on assembling tensors."""

    decode: float = 0.0
    assemble: float = 0.0


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

    def materialize(self, layouts: Sequence[SampleLayout], pool: Executor, reject: Reject) -> dict[str, Any] | None:
        """Return the batch (SPEC of ``SimpleCustomBatch``), None where no sample survived its decoding."""
        started = self.clock()
        pixels, broken = self._decode(layouts, pool)
        decoded = self.clock()
        for layout, error in broken:
            reject(layout.sample, error.reason, error.detail)
        lost = {id(layout) for layout, _ in broken}
        kept = [layout for layout in layouts if id(layout) not in lost]
        batch = self._assemble(kept, pixels, pool) if kept else None
        self.seconds.decode += decoded - started
        self.seconds.assemble += self.clock() - decoded
        return batch

    def _decode(
        self, layouts: Sequence[SampleLayout], pool: Executor
    ) -> tuple[Pixels, list[tuple[SampleLayout, SkipSample]]]:
        jobs: dict[tuple[int, int], list[PlacedImage]] = {}
        owners: list[SampleLayout] = []
        for number, layout in enumerate(layouts):
            for placed in layout.images:
                if isinstance(placed.picture, PlannedImage):
                    key = (number, id(placed.picture.source.group))
                    if key not in jobs:
                        owners.append(layout)
                    jobs.setdefault(key, []).append(placed)
        pixels: Pixels = {}
        broken: dict[int, tuple[SampleLayout, SkipSample]] = {}
        for layout, result in zip(owners, pool.map(self._resize_group, jobs.values()), strict=True):
            if isinstance(result, SkipSample):
                broken.setdefault(id(layout), (layout, result))
            else:
                pixels |= result
        return pixels, list(broken.values())

    def _resize_group(self, placed_images: Sequence[PlacedImage]) -> Pixels | SkipSample:
        """Decode the sources of one group, each once, and resize them for every use."""
        decoded: dict[int, Any] = {}
        sized: dict[tuple[int, int, int], np.ndarray] = {}
        resized: Pixels = {}
        try:
            for placed in placed_images:
                picture = placed.picture
                assert isinstance(picture, PlannedImage)
                source, key = picture.source, (id(picture.source), picture.height, picture.width)
                if id(source) not in decoded:
                    decoded[id(source)] = source.decode(self.backend)
                if key not in sized:
                    sized[key] = self.backend.resize(decoded[id(source)], picture.height, picture.width)
                resized[id(placed)] = sized[key]
        except SkipSample as error:
            return error
        return resized

    def _assemble(self, layouts: Sequence[SampleLayout], pixels: Pixels, pool: Executor) -> dict[str, Any]:
        starts = [0, *accumulate(layout.length for layout in layouts)]
        length = starts.pop()
        batch: dict[str, Any] = {
            "sequence_length": length,
            "sample_lens": [layout.length for layout in layouts],
            "packed_text_ids": _ints(layout.text_ids for layout in layouts),
            "packed_text_indexes": _shifted((layout.text_rows for layout in layouts), starts),
            "packed_position_ids": _ints(part for layout in layouts for part in layout.positions),
            "batch_data_indexes": [layout.sample["data_indexes"] for layout in layouts],
        }
        batch |= self._attention(layouts, length, batch["sample_lens"])
        batch |= self._vae_part(layouts, starts, pixels, pool)
        batch |= self._vit_part(layouts, starts, pixels, pool)
        batch |= _label_part(layouts, starts)
        return batch

    def _attention(self, layouts: Sequence[SampleLayout], length: int, sample_lens: list[int]) -> dict[str, Any]:
        split_lens = [[split.length for split in layout.splits] for layout in layouts]
        modes = [[split.mode for split in layout.splits] for layout in layouts]
        if self.max_num_tokens is None:
            return {"nested_attention_masks": AttentionMasks(split_lens, modes)}
        padding = self.max_num_tokens - length
        sample_lens.append(padding)
        return {
            "split_lens": [*(n for lens in split_lens for n in lens), padding],
            "attn_modes": [*(mode for sample in modes for mode in sample), "causal"],
        }

    def _vae_part(
        self, layouts: Sequence[SampleLayout], starts: Sequence[int], pixels: Pixels, pool: Executor
    ) -> dict[str, Any]:
        placed = [image for layout in layouts for image in layout.vae_images]
        if not placed:
            return {}
        rows = [
            _rows(image, start) for layout, start in zip(layouts, starts, strict=True) for image in layout.vae_images
        ]
        height, width = (max(getattr(image.picture, edge) for image in placed) for edge in ("height", "width"))
        padded = _zeros(len(placed), 3, height, width)
        _run(pool, [(_fill_image, (padded[number], image, pixels)) for number, image in enumerate(placed)])
        timesteps = [-np.inf if image.timestep is None else image.timestep for image in placed]
        losses = [part for image, part in zip(placed, rows, strict=True) if image.timestep is not None]
        counts = [image.num_patches for image in placed]
        return {
            "padded_images": padded,
            "patchified_vae_latent_shapes": [image.grid for image in placed],
            "packed_latent_position_ids": self._patch_positions(
                placed, self.rules.vae_image_downsample, self.rules.max_latent_size
            ),
            "packed_vae_token_indexes": _ints(rows),
            "packed_timesteps": torch.from_numpy(np.repeat(np.array(timesteps, dtype=np.float32), counts)),
            "mse_loss_indexes": _ints(losses),
        }

    def _vit_part(
        self, layouts: Sequence[SampleLayout], starts: Sequence[int], pixels: Pixels, pool: Executor
    ) -> dict[str, Any]:
        placed = [image for layout in layouts for image in layout.vit_images]
        if not placed:
            return {}
        patch = self.rules.vit_patch_size
        rows = [
            _rows(image, start) for layout, start in zip(layouts, starts, strict=True) for image in layout.vit_images
        ]
        counts = [image.num_patches for image in placed]
        tokens = _zeros(sum(counts), patch * patch * 3)
        parts = tokens.split(counts)
        _run(pool, [(_fill_patches, (part, image, patch, pixels)) for part, image in zip(parts, placed, strict=True)])
        return {
            "packed_vit_tokens": tokens,
            "packed_vit_position_ids": self._patch_positions(placed, patch, self.rules.max_num_patch_per_side),
            "packed_vit_token_indexes": _ints(rows),
            "vit_token_seqlens": torch.tensor(counts),
        }

    def _patch_positions(self, placed: Sequence[PlacedImage], patch: int, table: int) -> torch.Tensor:
        positions = (
            get_flattened_position_ids_interpolate
            if self.rules.interpolate_pos
            else get_flattened_position_ids_extrapolate
        )
        return torch.cat([positions(image.picture.height, image.picture.width, patch, table) for image in placed])


def _zeros(*shape: int) -> torch.Tensor:
    """Return zeros, float32; NumPy asks Linux for huge pages, so that touching them first costs a fifth of torch's."""
    return torch.from_numpy(np.zeros(shape, dtype=np.float32))


def _fill_image(out_CHW: torch.Tensor, placed: PlacedLatent, pixels: Pixels) -> None:
    picture = placed.picture
    corner = out_CHW[:, : picture.height, : picture.width]
    match picture:
        case TensorImage(pixels_CHW=tensor):
            corner.copy_(tensor)
        case PlannedImage(transform=transform):
            transform.normalize_into(corner.permute(1, 2, 0), torch.from_numpy(pixels[id(placed)]))


def _fill_patches(out: torch.Tensor, placed: PlacedImage, patch: int, pixels: Pixels) -> None:
    picture = placed.picture
    match picture:
        case TensorImage(pixels_CHW=tensor):
            out.copy_(patchify(tensor, patch))
        case PlannedImage(transform=transform):
            rows, columns = placed.grid
            grid = torch.from_numpy(pixels[id(placed)]).view(rows, patch, columns, patch * 3).transpose(1, 2)
            transform.normalize_into(out.view(rows, columns, patch, patch * 3), grid)


def _run(pool: Executor, jobs: Iterable[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
    for future in [pool.submit(job, *arguments) for job, arguments in jobs]:
        future.result()


def _label_part(layouts: Sequence[SampleLayout], starts: Sequence[int]) -> dict[str, Any]:
    labels = [(label, start) for layout, start in zip(layouts, starts, strict=True) for label in layout.labels]
    if not labels:
        return {}
    return {
        "packed_label_ids": torch.tensor([label.token for label, _ in labels]),
        "ce_loss_indexes": torch.tensor([label.row + start for label, start in labels]),
        "ce_loss_weights": torch.tensor([label.weight for label, _ in labels]),
    }


def _rows(image: PlacedImage, start: int) -> np.ndarray:
    return np.arange(start + image.first_row, start + image.first_row + image.num_patches)


def _shifted(parts: Iterable[Sequence[int]], offsets: Sequence[int]) -> torch.Tensor:
    return _ints(np.asarray(part, dtype=np.int64) + offset for part, offset in zip(parts, offsets, strict=True))


def _ints(parts: Iterable[Sequence[int] | np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(part, dtype=np.int64) for part in [[], *parts]]))
