"""A packed batch read backwards: its samples, their splits, and in them texts and images where they stand."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

import numpy as np
import torch

from automodel_data.multimodal.attention_masks import AttentionMasks
from automodel_data.multimodal.collate_fns import SimpleCustomBatch


class Tower(StrEnum):
    VIT = "ViT"
    VAE = "VAE"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextToken:
    """A text token at a row of the pack; with loss it predicts ``label``."""

    row: int
    id: int
    label: int | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PackedImage:
    """An image whose tokens begin at ``first_row``; ``time_logit`` is that of a noised one."""

    tower: Tower
    first_row: int
    grid: tuple[int, int]
    pixels_HWC: np.ndarray
    time_logit: float | None = None

    @property
    def tokens(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def time(self) -> float | None:
        """Return the timestep in (0, 1), before any shift; None without noise."""
        return None if self.time_logit is None else 1 / (1 + math.exp(-self.time_logit))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Split:
    """A stretch of rows with one attention mode: causal, full or noise."""

    start: int
    length: int
    mode: str
    texts: list[TextToken]
    images: list[PackedImage]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PackedSample:
    """One sample: its dataset and its splits."""

    dataset: str
    splits: list[Split]

    @property
    def length(self) -> int:
        return sum(split.length for split in self.splits)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pack:
    """A whole pack; ``capacity`` is what it could hold, where the batch tells (flex attention)."""

    length: int
    capacity: int | None
    samples: list[PackedSample]


def unpack(batch: SimpleCustomBatch) -> Pack:
    """Read a batch on the CPU backwards; pixels were normalised with mean and deviation 0.5."""
    parts = vars(batch)
    texts, images = _texts(parts), sorted([*_vae_images(parts), *_vit_images(parts)], key=lambda image: image.first_row)
    samples, start = [], 0
    for origin, spans in zip(parts["batch_data_indexes"], _spans(parts), strict=True):
        splits = []
        for length, mode in spans:
            splits.append(
                Split(
                    start=start,
                    length=length,
                    mode=mode,
                    texts=_between(texts, [token.row for token in texts], start, length),
                    images=_between(images, [image.first_row for image in images], start, length),
                )
            )
            start += length
        samples.append(
            PackedSample(
                dataset=origin["dataset_name"],
                splits=splits,
            )
        )
    capacity = sum(parts["split_lens"]) if "split_lens" in parts else None
    return Pack(length=parts["sequence_length"], capacity=capacity, samples=samples)


def _between(items: list, rows: Sequence[int], start: int, length: int) -> list:
    return items[bisect_left(rows, start) : bisect_left(rows, start + length)]


def _texts(parts: Mapping) -> list[TextToken]:
    labels = {}
    if "ce_loss_indexes" in parts:
        labels = dict(zip(parts["ce_loss_indexes"].tolist(), parts["packed_label_ids"].tolist(), strict=True))
    placed = zip(parts["packed_text_indexes"].tolist(), parts["packed_text_ids"].tolist(), strict=True)
    return [TextToken(row=row, id=token, label=labels.get(row)) for row, token in placed]


def _vae_images(parts: Mapping) -> Iterator[PackedImage]:
    if "padded_images" not in parts:
        return
    grids = parts["patchified_vae_latent_shapes"]
    stride = parts["padded_images"].shape[2] // max(rows for rows, _ in grids)
    first = 0
    for padded_CHW, (rows, columns) in zip(parts["padded_images"], grids, strict=True):
        logit = float(parts["packed_timesteps"][first])
        yield PackedImage(
            tower=Tower.VAE,
            first_row=int(parts["packed_vae_token_indexes"][first]),
            grid=(rows, columns),
            pixels_HWC=_to_pixels(padded_CHW[:, : rows * stride, : columns * stride].permute(1, 2, 0)),
            time_logit=None if logit == -math.inf else logit,
        )
        first += rows * columns


def _vit_images(parts: Mapping) -> Iterator[PackedImage]:
    if "packed_vit_tokens" not in parts:
        return
    edge = math.isqrt(parts["packed_vit_tokens"].shape[1] // 3)
    first = 0
    for count in parts["vit_token_seqlens"].tolist():
        columns = _columns(parts["packed_vit_position_ids"][first : first + count].tolist())
        patches = parts["packed_vit_tokens"][first : first + count].reshape(-1, columns, edge, edge, 3)
        rows = count // columns
        yield PackedImage(
            tower=Tower.VIT,
            first_row=int(parts["packed_vit_token_indexes"][first]),
            grid=(rows, columns),
            pixels_HWC=_to_pixels(patches.transpose(1, 2).reshape(rows * edge, columns * edge, 3)),
        )
        first += count


def _columns(position_ids: Sequence[int]) -> int:
    """Return the patches in an image's first row: up to the first jump of the flattened position ids."""
    steps = [after - before for before, after in pairwise(position_ids)]
    return next((column for column, step in enumerate(steps, 1) if step > 1.5 * steps[0]), len(position_ids))


def _to_pixels(values_HWC: torch.Tensor) -> np.ndarray:
    return ((values_HWC * 0.5 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).numpy()


def _spans(parts: Mapping) -> list[list[tuple[int, str]]]:
    """Return (length, mode) of every split, by sample."""
    if "split_lens" not in parts and isinstance(parts["nested_attention_masks"], AttentionMasks):
        masks = parts["nested_attention_masks"]
        return [list(zip(*sample, strict=True)) for sample in zip(masks.split_lens, masks.attn_modes, strict=True)]
    if "split_lens" not in parts:
        noised = set(parts["mse_loss_indexes"].tolist()) if "mse_loss_indexes" in parts else set()
        ends = list(accumulate(parts["sample_lens"]))
        masks = zip([0, *ends], parts["nested_attention_masks"], strict=False)
        return [_spans_of_mask(mask, {row - start for row in noised}) for start, mask in masks]
    spans, all_splits = [], zip(parts["split_lens"], parts["attn_modes"], strict=True)
    for length in parts["sample_lens"][: len(parts["batch_data_indexes"])]:
        sample: list[tuple[int, str]] = []
        while sum(span for span, _ in sample) < length:
            sample.append(next(all_splits))
        spans.append(sample)
    return spans


def _spans_of_mask(mask: torch.Tensor, noised: set[int]) -> list[tuple[int, str]]:
    """Read a sample's splits off its additive mask: rows of a full or noise split see its end, causal ones themselves.

    Neighbouring causal splits look like one. At the end of a sample nobody tells noise from full: loss does.
    """
    size, spans, start = len(mask), [], 0
    while start < size:
        stop = int((mask[start] == 0).nonzero().max()) + 1
        if stop == start + 1:  # causal, at least so far
            stop = next((row for row in range(stop, size) if (mask[row, row + 1 :] == 0).any()), size)
            spans.append((stop - start, "causal"))
        else:
            hidden = bool(mask[stop, start] != 0) if stop < size else bool(noised & set(range(start, stop)))
            spans.append((stop - start, "noise" if hidden else "full"))
        start = stop
    return spans
