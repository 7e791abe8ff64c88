"""A cache of encoded samples, grouped into buckets of one shape."""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from torch.utils.data import Dataset

from automodel_data.diffusion.manifest import iter_items, read_manifest
from automodel_data.diffusion.multi_tier_bucketing import MultiTierBucketCalculator
from automodel_data.diffusion.payload import read_payload
from automodel_data.errors import DataError
from automodel_data.storage import contained_path

logger = logging.getLogger(__name__)

TALL_BELOW = 0.85
WIDE_ABOVE = 1.18


class BucketGroup(TypedDict):
    """The samples of one bucket.

    ``resolution`` is (width, height) and ``pixels`` what a sample costs, in the units of the dataset: image pixels
    for text-to-image, latent pixels of target and contexts for image-edit.
    """

    indices: list[int]
    aspect_name: str
    aspect_ratio: float
    resolution: tuple[int, int]
    pixels: int


class BaseMultiresolutionDataset(Dataset, ABC):
    """Read a cache's metadata and group its items; a subclass says what an item and its sample are.

    Args:
        cache_dir: Directory with ``metadata.json``; relative paths inside the cache start here.
        quantization: Grid of the image sizes, in pixels.

    Raises:
        DataError: the metadata is not as documented; the message names the file and the field.
    """

    #: Whether a sample's cost is its bucket's image pixels, so that batches may be sized by them.
    pixels_are_cost = True

    #: The kind of cache, where metadata.json names it; None takes any.
    layout: str | None = None

    def __init__(self, cache_dir: str, quantization: int = 64) -> None:
        self.cache_dir = Path(cache_dir)
        self.calculator = MultiTierBucketCalculator(quantization)
        self.cache_manifest = read_manifest(self.cache_dir)
        self._check_layout()
        self._folders: dict[str, str | None] = {}  # as items name them -> resolved, None outside the cache
        self.metadata = self._load_metadata()
        self.bucket_groups: dict[Any, BucketGroup] = {}
        self.sorted_bucket_keys: list[Any] = []
        self._group_by_bucket()

    def __len__(self) -> int:
        """Return how many items the cache has."""
        return len(self.metadata)

    def __getitem__(self, idx: int) -> dict:
        """Read and check one sample.

        Raises:
            PayloadError: the file cannot be read, or does not hold what its item promises.
        """
        return self.sample(idx, self.payload(idx))

    def payload(self, idx: int) -> Mapping[str, object]:
        """Read the file of one sample.

        Raises:
            PayloadError: it cannot be read.
        """
        return read_payload(Path(self.metadata[idx]["cache_file"]))

    def sample(self, idx: int, payload: Mapping[str, object]) -> dict:
        """Check a payload against its item, and make a sample of it.

        Raises:
            PayloadError: it does not hold what the item promises.
        """
        # Not abstract: a subclass written for the published class defines __getitem__ in its place.
        raise NotImplementedError(f"{type(self).__name__} must define sample")

    def _check_layout(self) -> None:
        found = self.cache_manifest.get("layout")
        if None not in (found, self.layout) and found != self.layout:
            raise DataError(
                f"{self.cache_dir} is a cache made with encode={found}, not with encode={self.layout}: open it as such"
            )

    def _load_metadata(self) -> list[dict]:
        """Return the items of all shards, each normalized."""
        return [self._normalize_item(item, where) for where, item in iter_items(self.cache_dir, self.cache_manifest)]

    def _normalize_item(self, item: Mapping[str, object], where: str) -> dict:
        """Check one item; ``where`` names its shard and place. A subclass adds its own fields."""
        path = self._resolve_contained_path(item.get("cache_file"), f"{where}: cache_file")
        return {**item, "cache_file": str(path)}

    @abstractmethod
    def _group_by_bucket(self) -> None:
        """Fill ``bucket_groups`` and ``sorted_bucket_keys`` from ``metadata``."""

    def _add_to_bucket(self, key: Hashable, index: int, resolution: tuple[int, int], ratio: float, pixels: int) -> None:
        """Put a sample into its bucket, which the first one opens."""
        if key not in self.bucket_groups:
            self.bucket_groups[key] = BucketGroup(
                indices=[],
                aspect_name=self._aspect_ratio_to_name(ratio),
                aspect_ratio=ratio,
                resolution=resolution,
                pixels=pixels,
            )
        self.bucket_groups[key]["indices"].append(index)

    def _aspect_ratio_to_name(self, aspect_ratio: float) -> str:
        """Return ``tall``, ``square`` or ``wide`` for width / height."""
        if aspect_ratio < TALL_BELOW:
            return "tall"
        return "wide" if aspect_ratio > WIDE_ABOVE else "square"

    def _resolve_contained_path(self, path_value: object, field_name: str) -> Path:
        """Return the absolute path of a file that must lie inside the cache.

        Raises:
            DataError: it is no file name, or leads outside, also through a link.
        """
        if not isinstance(path_value, str) or not path_value:
            raise DataError(f"{field_name} must be a file name, got {path_value!r}")
        folder, name = os.path.split(path_value)
        if folder not in self._folders:  # resolving is slow, and most items share a folder
            resolved = (self.cache_dir / folder).resolve()
            self._folders[folder] = str(resolved) if resolved.is_relative_to(self.cache_dir.resolve()) else None
        inside = self._folders[folder]
        if inside is not None and name not in ("", ".", ".."):
            path = Path(inside, name)
            if not path.is_symlink():
                return path
        return contained_path(self.cache_dir, path_value, field_name)

    def bucket_name(self, key: Any) -> str:
        """Return how reports call the bucket ``key``."""
        return str(key)

    def get_bucket_info(self) -> dict:
        """Return ``{"total_buckets": n, "buckets": {name: samples}}``."""
        counts = {self.bucket_name(key): len(group["indices"]) for key, group in self.bucket_groups.items()}
        return {"total_buckets": len(counts), "buckets": counts}
