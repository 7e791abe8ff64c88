"""Knobs that contradict each other are refused before any data or device is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automodel_data.errors import DataError
from automodel_data.images import image_backend
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.groups import GroupConfig
from automodel_data.multimodal.policy import PackingPolicy
from automodel_data.multimodal.transforms import ImageTransform

_AT_LEAST_ONE = (
    "vae_image_downsample",
    "max_latent_size",
    "vit_patch_size",
    "max_num_patch_per_side",
    "max_image_pixels",
    "decode_threads",
)


def check_config(config: BagelDatasetConfig, policy: PackingPolicy, dataset_info: Mapping[str, Any]) -> None:
    """Refuse contradictions between budgets, groups, transforms and position tables; no data is touched.

    Raises:
        DataError: naming the keys, their values and the way out.
    """
    groups = read_groups(config)
    policy.check(mandatory_groups=sum(group.is_mandatory for group in groups))
    for key in ("text_cond_dropout_prob", "vit_cond_dropout_prob", "vae_cond_dropout_prob"):
        if not 0 <= getattr(config, key) <= 1:
            raise DataError(f"{key} ({getattr(config, key)}) must lie between 0 and 1")
    for key in _AT_LEAST_ONE:
        if getattr(config, key) < 1:
            raise DataError(f"{key} ({getattr(config, key)}) must be at least 1")
    image_backend(config.image_backend)
    for group in groups:
        group.check(dataset_info)
    _check_images(config, groups)


def read_groups(config: BagelDatasetConfig) -> list[GroupConfig]:
    """Return the groups in the order of the config."""
    groups = [GroupConfig.from_mapping(name, entry) for name, entry in config.groups.items()]
    if not groups:
        raise DataError("grouped_datasets names no group; give it inline or by grouped_datasets_path")
    return groups


def _check_images(config: BagelDatasetConfig, groups: Sequence[GroupConfig]) -> None:
    vae = PatchGrid(
        patch=config.vae_image_downsample,
        patch_key="vae_image_downsample",
        table=config.max_latent_size,
        table_key="max_latent_size",
    )
    vit = PatchGrid(
        patch=config.vit_patch_size,
        patch_key="vit_patch_size",
        table=config.max_num_patch_per_side,
        table_key="max_num_patch_per_side",
    )
    for group in groups:
        only_vit = group.dataset_type.transform_is_for_vit
        for key, grid in (("image_transform_args", vit if only_vit else vae), ("vit_image_transform_args", vit)):
            transform = group.transform(key)
            if transform is not None:
                grid.check(transform, f"grouped_datasets.{group.name}.{key}", bounded=not config.interpolate_pos)


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchGrid:
    """What the model's patches ask of a transform: edge of a patch in pixels, and its position table's side."""

    patch: int
    patch_key: str
    table: int
    table_key: str

    def check(self, transform: ImageTransform, where: str, bounded: bool) -> None:
        """Refuse a transform whose images do not fit the patches, or (``bounded``) the position table."""
        if not 0 < transform.min_image_size <= transform.max_image_size:
            raise DataError(
                f"{where}.min_image_size ({transform.min_image_size}) must be above 0 and must not exceed "
                f"max_image_size ({transform.max_image_size})"
            )
        if transform.stride != self.patch:
            raise DataError(
                f"{where}.image_stride ({transform.stride}) must equal {self.patch_key} ({self.patch}): "
                "one token is one patch"
            )
        side = transform.largest_edge // self.patch
        if bounded and side > self.table:
            raise DataError(
                f"{where}.max_image_size ({transform.max_image_size}) gives {side} patches a side, more than "
                f"{self.table_key} ({self.table}): lower the one or raise the other"
            )
