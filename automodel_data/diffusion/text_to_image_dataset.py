"""Text-to-image caches: an image and its caption, encoded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.collate import collate_text_to_image
from automodel_data.diffusion.loader import DiffusionDataloaderBuild, build_dataloader
from automodel_data.diffusion.payload import (
    _require_tensor,
    _validate_latent,
    check_floats,
    check_mask,
    naming,
)
from automodel_data.diffusion.signature import _nonnegative_int, _normalize_shape
from automodel_data.errors import DataError
from automodel_data.workers import check_workers

_TOKENS = ("clip_tokens", "t5_tokens")


class TextToImageDataset(BaseMultiresolutionDataset):
    """Samples of a text-to-image cache; a bucket is an aspect name and a resolution.

    An item names ``cache_file``, ``bucket_resolution`` or ``crop_resolution`` [w, h], ``original_resolution``,
    ``bucket_id`` and optionally ``aspect_ratio``; its file is a mapping with ``latent`` [C, H, W], ``crop_offset``,
    ``prompt``, ``image_path``, and the encoded text: ``prompt_embeds`` [S, D], optionally ``prompt_attention_mask``,
    ``pooled_prompt_embeds``, ``clip_hidden``. A leading dimension of one, as encoders return it, is taken off.

    Args:
        train_text_encoder: Hand out ``clip_tokens`` and ``t5_tokens`` [S] (those there are) instead of encoded text.
    """

    layout = "t2i"

    def __init__(self, cache_dir: str, train_text_encoder: bool = False) -> None:
        self.train_text_encoder = train_text_encoder
        super().__init__(cache_dir)

    def _normalize_item(self, item: Mapping[str, object], where: str) -> dict[str, Any]:
        field = "bucket_resolution" if "bucket_resolution" in item else "crop_resolution"
        width, height = _normalize_shape(item.get(field), f"{where}: {field}", 2)
        ratio = item.get("aspect_ratio", width / height)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not ratio > 0:
            raise DataError(f"{where}: aspect_ratio must be a positive number (width / height), got {ratio!r}")
        original = _normalize_shape(item.get("original_resolution"), f"{where}: original_resolution", 2)
        return {
            **super()._normalize_item(item, where),
            "bucket_resolution": (width, height),
            "original_resolution": original,
            "bucket_id": _nonnegative_int(item.get("bucket_id"), f"{where}: bucket_id"),
            "aspect_ratio": float(ratio),
        }

    def _group_by_bucket(self) -> None:
        """Group by aspect name and resolution; buckets sort by pixels, equal ones as they come."""
        for index, item in enumerate(self.metadata):
            width, height = resolution = item["bucket_resolution"]
            key = (self._aspect_ratio_to_name(item["aspect_ratio"]), resolution)
            self._add_to_bucket(key, index, resolution, item["aspect_ratio"], width * height)
        self.sorted_bucket_keys = sorted(self.bucket_groups, key=lambda key: self.bucket_groups[key]["pixels"])

    def bucket_name(self, key: Any) -> str:
        """Return e.g. ``wide/640x384``."""
        aspect_name, (width, height) = key
        return f"{aspect_name}/{width}x{height}"

    def sample(self, idx: int, payload: Mapping[str, object]) -> dict[str, Any]:
        """Check a payload against its item, and make a ``TextToImageSample`` of it.

        Raises:
            PayloadError: it does not hold what the item promises.
        """
        item = self.metadata[idx]
        with naming(Path(item["cache_file"])):
            return {
                "latent": _read_latent(payload, item["bucket_resolution"]),
                "crop_resolution": torch.tensor(item["bucket_resolution"]),
                "original_resolution": torch.tensor(item["original_resolution"]),
                "crop_offset": torch.tensor(_read_offset(payload)),
                "prompt": _read_text(payload, "prompt"),
                "image_path": _read_text(payload, "image_path"),
                "bucket_id": item["bucket_id"],
                "aspect_ratio": item["aspect_ratio"],
                **(_read_tokens(payload) if self.train_text_encoder else _read_embeddings(payload)),
            }


def _read_latent(data: Mapping[str, object], resolution: tuple[int, int]) -> torch.Tensor:
    latent = _require_tensor(data, "latent")
    _, height, width = _validate_latent(latent, "latent")
    if width * resolution[1] != height * resolution[0]:
        raise DataError(f"latent has {height} x {width} rows and columns, its item's resolution is {resolution}")
    return latent


def _read_offset(data: Mapping[str, object]) -> tuple[int, ...]:
    value = data.get("crop_offset")
    return _normalize_shape(value.tolist() if isinstance(value, torch.Tensor) else value, "crop_offset", 2, True)


def _read_text(data: Mapping[str, object], field: str) -> str:
    value = data.get(field)
    if not isinstance(value, str):
        raise DataError(f"{field} must be a text, got {type(value).__name__}")
    return value


def _read_row(data: Mapping[str, object], field: str) -> torch.Tensor:
    """Return a tensor without the leading dimension of one that encoders leave."""
    tensor = _require_tensor(data, field)
    return tensor[0] if tensor.ndim > 1 and len(tensor) == 1 else tensor


def _read_embeddings(data: Mapping[str, object]) -> dict[str, torch.Tensor]:
    embeds = _read_sequence(data, "prompt_embeds")
    field = "prompt_attention_mask"
    mask = _read_row(data, field) if field in data else torch.ones(len(embeds), dtype=torch.bool)
    check_mask(mask, field, len(embeds))
    read = {"prompt_embeds": embeds, field: mask}
    if "clip_hidden" in data:
        read["clip_hidden"] = _read_sequence(data, "clip_hidden")
    if "pooled_prompt_embeds" in data:
        read["pooled_prompt_embeds"] = _read_row(data, "pooled_prompt_embeds")
        check_floats(read["pooled_prompt_embeds"], "pooled_prompt_embeds", "P")
    return read


def _read_sequence(data: Mapping[str, object], field: str) -> torch.Tensor:
    """Return encoded tokens [S, D]."""
    tensor = _require_tensor(data, field)
    tensor = tensor[0] if tensor.ndim == 3 and len(tensor) == 1 else tensor
    check_floats(tensor, field, "S, D")
    return tensor


def _read_tokens(data: Mapping[str, object]) -> dict[str, torch.Tensor]:
    tokens = {name: _read_row(data, name) for name in _TOKENS if name in data}
    if not tokens:
        raise DataError(f"one of {', '.join(_TOKENS)} must be there with train_text_encoder")
    for name, ids in tokens.items():
        if ids.dtype not in (torch.int32, torch.int64) or ids.ndim != 1:
            raise DataError(f"{name} must be an int tensor [S], got {ids.dtype} {list(ids.shape)}")
    return tokens


@dataclass(frozen=True, slots=True)
class TextToImageDatasetConfig:
    """Where a text-to-image cache lies."""

    cache_dir: str
    train_text_encoder: bool = False

    def build(self) -> TextToImageDataset:
        """Read the cache's metadata."""
        return TextToImageDataset(self.cache_dir, self.train_text_encoder)


@dataclass(frozen=True, slots=True)
class TextToImageDataloaderConfig:
    """A loader of text-to-image batches.

    Args:
        cache_dir: Folder with the cache's ``metadata.json``.
        train_text_encoder: Hand out token ids for text encoders that train, instead of embeddings.
        base_resolution: With ``dynamic_batch_size``: the resolution for which ``batch_size`` is meant.
        dynamic_batch_size: Scale the batch size so that every batch costs about the same number of pixels.
        drop_last: Drop a bucket's last, short batch; else hand it out short. ``bucket_policy`` overrides it.
        shuffle: Shuffle buckets and samples anew for each epoch.
        num_workers: Worker processes, 0 to load in this one.
        pin_memory: Pin batches for copies to a GPU.
        prefetch_factor: Batches read ahead by each worker.
        seed: Decides the order of buckets and samples.
        bucket_policy: ``drop`` | ``partial`` | ``pad`` a bucket's short batch; see ``SequentialBucketSampler``.
        bucket_order: ``sequential`` | ``interleaved``.
        bad_payload: ``raise`` at a payload that cannot be used, or ``skip`` it: count it, take another of its bucket.
    """

    cache_dir: str
    train_text_encoder: bool = False
    base_resolution: tuple[int, int] = (1024, 1024)
    drop_last: bool = True
    shuffle: bool = True
    dynamic_batch_size: bool = False
    num_workers: int = 4
    pin_memory: bool = True
    prefetch_factor: int = 2
    seed: int = 42
    bucket_policy: str | None = None
    bucket_order: str = "sequential"
    bad_payload: str = "raise"

    def __post_init__(self) -> None:
        check_workers(self.num_workers, self.prefetch_factor)

    def build(self, dp_rank: int, dp_world_size: int, batch_size: int) -> DiffusionDataloaderBuild:
        """Read the cache's metadata and make the loader of rank ``dp_rank``."""
        dataset = TextToImageDataset(self.cache_dir, self.train_text_encoder)
        return build_dataloader(self, dataset, collate_text_to_image, dp_rank, dp_world_size, batch_size)
