"""The datasets by name, and the packed dataset from plain arguments."""

from collections.abc import Mapping
from typing import Any

from automodel_data.multimodal.config import DEFAULT_DATASET_INFO, BagelDatasetConfig
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.interleave import UnifiedEditIterableDataset
from automodel_data.multimodal.t2i import T2IIterableDataset
from automodel_data.multimodal.vlm_sft import SftJSONLIterableDataset

__all__ = [
    "DATASET_REGISTRY",
    "DEFAULT_DATASET_INFO",
    "BagelDatasetConfig",
    "SftJSONLIterableDataset",
    "T2IIterableDataset",
    "UnifiedEditIterableDataset",
    "make_bagel_multimodal_dataset",
]

DATASET_REGISTRY: dict[str, type[DistributedIterableDataset]] = {
    "t2i_pretrain": T2IIterableDataset,
    "vlm_sft": SftJSONLIterableDataset,
    "unified_edit": UnifiedEditIterableDataset,
}
"""The dataset class of a group, by the group's name; a group's ``dataset_class`` names any other."""


def make_bagel_multimodal_dataset(
    tokenizer: Any,
    special_tokens: Mapping[str, Any],
    grouped_datasets: Mapping[str, Any],
    local_rank: int = 0,
    world_size: int = 1,
    num_workers: int = 4,
    expected_num_tokens: int = 32768,
    max_num_tokens_per_sample: int = 16384,
    max_num_tokens: int = 36864,
    prefer_buffer_before: int = 16384,
    max_buffer_size: int = 50,
    interpolate_pos: bool = False,
    use_flex: bool = False,
    data_status: Any = None,
    data_seed: int = 42,
    text_cond_dropout_prob: float = 0.1,
    vit_cond_dropout_prob: float = 0.4,
    vae_cond_dropout_prob: float = 0.1,
    vae_image_downsample: int = 16,
    max_latent_size: int = 32,
    vit_patch_size: int = 14,
    max_num_patch_per_side: int = 70,
    dataset_info: Mapping[str, Any] | None = None,
) -> Any:
    """Build a ``PackedDataset`` from plain arguments (see ``BagelDatasetConfig``); ``data_seed`` seeds all draws."""
    config = BagelDatasetConfig(
        grouped_datasets=grouped_datasets,
        dataset_info=DEFAULT_DATASET_INFO if dataset_info is None else dataset_info,
        expected_num_tokens=expected_num_tokens,
        max_num_tokens_per_sample=max_num_tokens_per_sample,
        max_num_tokens=max_num_tokens,
        prefer_buffer_before=prefer_buffer_before,
        max_buffer_size=max_buffer_size,
        interpolate_pos=interpolate_pos,
        use_flex=use_flex,
        data_seed=data_seed,
        text_cond_dropout_prob=text_cond_dropout_prob,
        vit_cond_dropout_prob=vit_cond_dropout_prob,
        vae_cond_dropout_prob=vae_cond_dropout_prob,
        vae_image_downsample=vae_image_downsample,
        max_latent_size=max_latent_size,
        vit_patch_size=vit_patch_size,
        max_num_patch_per_side=max_num_patch_per_side,
    )
    return config.build(tokenizer, special_tokens, local_rank, world_size, num_workers, data_seed, data_status)
