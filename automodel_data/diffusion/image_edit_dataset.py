"""Image-edit caches: a target, its context images and an instruction, all encoded."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.collate import (  # noqa: F401 - documented under this module
    _collate_image_edit,
    _pad_prompts,
    _stack_conditioning_tensors,
)
from automodel_data.diffusion.edit_payload import normalize_metadata, read_conditioning, read_latents, read_prompt
from automodel_data.diffusion.loader import DiffusionDataloaderBuild, build_dataloader
from automodel_data.diffusion.payload import (  # noqa: F401 - documented under this module
    _require_tensor,
    _validate_latent,
    naming,
)
from automodel_data.diffusion.samples import (  # noqa: F401 - documented under this module
    _ImageEditBatch,
    _ImageEditBatchMetadata,
    _ImageEditCacheMetadata,
    _ImageEditSample,
)
from automodel_data.diffusion.signature import (  # noqa: F401 - documented under this module
    _CompoundBucketSignature,
    _CompoundBucketSignatureMetadata,
    _nonnegative_int,
    _normalize_shape,
    _parse_compound_bucket_signature,
    _signature_to_metadata,
)
from automodel_data.workers import check_workers

__all__ = ["ImageEditDataloaderConfig", "ImageEditDataset", "ImageEditDatasetConfig"]

logger = logging.getLogger(__name__)


class ImageEditDataset(BaseMultiresolutionDataset):
    """Samples of an image-edit cache; a bucket is one compound signature of latent shapes.

    An item names ``cache_file`` and ``compound_bucket_signature``; its file is a mapping with ``target_latent``,
    ``context_latents``, ``prompt_embeddings``, ``prompt_attention_mask``, optional ``conditioning_tensors``, and
    ``metadata``, whose shapes must be those of the tensors.
    """

    pixels_are_cost = False
    layout = "image_edit"

    def _load_metadata(self) -> list[dict[str, object]]:
        """Return the items of all shards, each with its signature parsed."""
        return super()._load_metadata()

    def _normalize_item(self, item: Mapping[str, object], where: str) -> dict[str, object]:
        field = "compound_bucket_signature"
        signature = _parse_compound_bucket_signature(item.get(field), f"{where}: {field}")
        return {**super()._normalize_item(item, where), field: signature}

    def _group_by_bucket(self) -> None:
        """Group by signature; buckets sort by latent pixels (target plus contexts), then signature."""
        for index, item in enumerate(self.metadata):
            signature: _CompoundBucketSignature = item["compound_bucket_signature"]
            _, height, width = signature.target
            self._add_to_bucket(signature, index, (width, height), width / height, signature.latent_pixels)
        self.sorted_bucket_keys = sorted(self.bucket_groups, key=lambda signature: (signature.latent_pixels, signature))

    def get_bucket_info(self) -> dict[str, object]:
        """Return ``{"total_buckets": n, "buckets": {signature: samples}}``."""
        return super().get_bucket_info()

    def __getitem__(self, idx: int) -> dict[str, object]:
        """Read and check one sample, an ``_ImageEditSample``.

        Raises:
            PayloadError: the file cannot be read, or does not hold what its item promises.
        """
        return super().__getitem__(idx)

    def sample(self, idx: int, payload: Mapping[str, object]) -> dict[str, object]:
        """Check a payload against its item, and make an ``_ImageEditSample`` of it.

        Raises:
            PayloadError: it does not hold what the item promises.
        """
        item = self.metadata[idx]
        path, signature = Path(item["cache_file"]), item["compound_bucket_signature"]
        with naming(path):
            target, contexts = read_latents(payload, signature)
            embeddings, mask = read_prompt(payload)
            conditioning = read_conditioning(payload.get("conditioning_tensors", {}))
        metadata = self._normalize_cache_metadata(payload.get("metadata"), signature, len(mask), conditioning, path)
        return {
            "target_latent": target,
            "context_latents": contexts,
            "prompt_embeddings": embeddings,
            "prompt_attention_mask": mask,
            "conditioning_tensors": conditioning,
            "metadata": metadata,
        }

    def _normalize_cache_metadata(
        self,
        raw_metadata: object,
        signature: _CompoundBucketSignature,
        prompt_sequence_length: int,
        conditioning_tensors: Mapping[str, torch.Tensor],
        cache_file: Path,
    ) -> _ImageEditCacheMetadata:
        """Check a payload's ``metadata`` against its tensors.

        Raises:
            PayloadError: a field is missing or contradicts a tensor.
        """
        with naming(cache_file):
            return normalize_metadata(raw_metadata, signature, prompt_sequence_length, conditioning_tensors)

    def _resolve_contained_path(self, path_value: object, field_name: str) -> Path:
        """Return the absolute path of a file that must lie inside the cache."""
        return super()._resolve_contained_path(path_value, field_name)


@dataclass(frozen=True, slots=True)
class ImageEditDatasetConfig:
    """Where an image-edit cache lies."""

    cache_dir: str
    quantization: int = 64

    def build(self) -> ImageEditDataset:
        """Read the cache's metadata."""
        return ImageEditDataset(self.cache_dir, self.quantization)


@dataclass(frozen=True, slots=True)
class ImageEditDataloaderConfig:
    """A loader of image-edit batches.

    Args:
        cache_dir: Folder with the cache's ``metadata.json``.
        quantization: Every side of an image is a multiple of it, in pixels.
        base_resolution: Has no effect here; batches have a fixed size.
        drop_last: Drop a bucket's last, short batch; else hand it out short. ``bucket_policy`` overrides it.
        shuffle: Shuffle buckets and samples anew for each epoch.
        dynamic_batch_size: Refused: the cost of an edit depends on its contexts too.
        num_workers: Worker processes, 0 to load in this one.
        pin_memory: Pin batches for copies to a GPU.
        prefetch_factor: Batches read ahead by each worker.
        seed: Decides the order of buckets and samples.
        bucket_policy: ``drop`` | ``partial`` | ``pad`` a bucket's short batch; see ``SequentialBucketSampler``.
        bucket_order: ``sequential`` | ``interleaved``.
        bad_payload: ``raise`` at a payload that cannot be used, or ``skip`` it: count it, take another of its bucket.
    """

    cache_dir: str
    quantization: int = 64
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
        dataset = ImageEditDataset(self.cache_dir, self.quantization)
        return build_dataloader(self, dataset, _collate_image_edit, dp_rank, dp_world_size, batch_size)
