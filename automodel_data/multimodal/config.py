"""The packed dataset's config: groups, budgets, dropout, patch sizes; refused where its knobs contradict each other."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from automodel_data.errors import DataError
from automodel_data.multimodal.policy import PackingPolicy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from automodel_data.multimodal.packing import PackedDataset

DEFAULT_DATASET_INFO: dict[str, Any] = {}
"""Where the datasets lie, for configs that say nothing: nowhere."""


@dataclass(slots=True)
class BagelDatasetConfig:
    """The mixture and how it is packed.

    Args:
        grouped_datasets: Groups by name (see ``GroupConfig``).
        grouped_datasets_path: YAML or JSON file that holds them instead.
        dataset_info: ``{group: {dataset: {data_dir, jsonl_path?, parquet_info_path?}}}``.
        dataset_info_path: YAML or JSON file that holds it instead.
        expected_num_tokens: A pack with this many tokens is full.
        max_num_tokens_per_sample: Longer samples are dropped, in tokens.
        max_num_tokens: No pack holds more tokens.
        prefer_buffer_before: Below this many tokens the pack takes from the buffer first.
        max_buffer_size: Most samples set aside.
        interpolate_pos: Spread position ids over the whole table instead of counting from its corner.
        use_flex: Describe attention by splits (flex attention) instead of dense masks.
        data_seed: Seed of the order of files.
        text_cond_dropout_prob: Probability that a condition text is left out.
        vit_cond_dropout_prob: Probability that a condition image is left out for the understanding tower.
        vae_cond_dropout_prob: Probability that a condition image's clean latent is left out.
        vae_image_downsample: Pixels a side of one latent token.
        max_latent_size: Side of the latents' position table, in tokens.
        vit_patch_size: Pixels a side of one patch of the understanding tower.
        max_num_patch_per_side: Side of that tower's position table, in patches.
        image_backend: ``pillow`` (bit-equal to the published pipelines) or ``torchvision`` (several times faster).
        exif_orientation: Turn images upright as their EXIF data says.
        max_image_pixels: Larger images are dropped before they are decoded, in pixels.
        decode_threads: Threads that decode a pack's images, in each worker.
    """

    grouped_datasets: Mapping[str, object] | None = None
    grouped_datasets_path: str | None = None
    dataset_info: Mapping[str, object] | None = None
    dataset_info_path: str | None = None
    expected_num_tokens: int = 32768
    max_num_tokens_per_sample: int = 16384
    max_num_tokens: int = 36864
    prefer_buffer_before: int = 16384
    max_buffer_size: int = 50
    interpolate_pos: bool = False
    use_flex: bool = False
    data_seed: int = 42
    text_cond_dropout_prob: float = 0.1
    vit_cond_dropout_prob: float = 0.4
    vae_cond_dropout_prob: float = 0.1
    vae_image_downsample: int = 16
    max_latent_size: int = 32
    vit_patch_size: int = 14
    max_num_patch_per_side: int = 70
    image_backend: str = "pillow"
    exif_orientation: bool = True
    max_image_pixels: int = 178_956_970
    decode_threads: int = 2

    @property
    def groups(self) -> dict[str, Any]:
        """The groups by name, from wherever they are given; one that an overlay set to null is left out."""
        given = self._resolve_mapping(self.grouped_datasets, self.grouped_datasets_path, "grouped_datasets")
        return {name: entry for name, entry in given.items() if entry is not None}

    @property
    def resolved_dataset_info(self) -> dict[str, Any]:
        """Where the datasets lie, from wherever that is given."""
        return self._resolve_mapping(self.dataset_info, self.dataset_info_path, "dataset_info")

    @staticmethod
    def _resolve_mapping(inline: Mapping[str, object] | None, path: str | None, name: str) -> dict[str, Any]:
        """Return the inline mapping, or that of the file.

        Raises:
            DataError: both are given, or the file is missing or holds no mapping.
        """
        if inline is not None and path is not None:
            raise DataError(f"{name} and {name}_path are both given; give one")
        if path is None:
            return dict(inline or {})
        try:
            text = Path(path).read_text(encoding="utf-8")
            content = json.loads(text) if path.endswith(".json") else _load_yaml(text)
        except (OSError, ValueError) as error:
            raise DataError(f"{name}_path: cannot read {path!r}: {error}") from error
        if not isinstance(content, dict):
            raise DataError(f"{name}_path: {path!r} holds no mapping")
        return content

    def check(self) -> None:
        """Refuse knobs that contradict each other; no data is touched.

        Raises:
            DataError: naming the keys, their values and the way out.
        """
        from automodel_data.multimodal.checks import check_config  # it reads this config

        check_config(self, self.policy, self.resolved_dataset_info)

    @property
    def policy(self) -> PackingPolicy:
        """The budgets."""
        return PackingPolicy(
            expected_num_tokens=self.expected_num_tokens,
            max_num_tokens_per_sample=self.max_num_tokens_per_sample,
            max_num_tokens=self.max_num_tokens,
            prefer_buffer_before=self.prefer_buffer_before,
            max_buffer_size=self.max_buffer_size,
        )

    def build(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        special_tokens: Mapping[str, object],
        rank: int,
        world_size: int,
        num_workers: int,
        global_seed: int,
        data_status: object | None = None,
    ) -> "PackedDataset":
        """Build the dataset of one rank.

        Raises:
            DataError: knobs contradict each other, or the data cannot be shared out (see ``check``).
        """
        from automodel_data.multimodal.packing import PackedDataset  # it reads this config

        dataset = PackedDataset(
            self,
            tokenizer,
            special_tokens,
            local_rank=rank,
            world_size=world_size,
            num_workers=num_workers,
            **asdict(self.policy),
            interpolate_pos=self.interpolate_pos,
            use_flex=self.use_flex,
            data_status=data_status,
            dataset_info=self.resolved_dataset_info,
            global_seed=global_seed,
        )
        dataset.set_epoch(self.data_seed)
        return dataset


def _load_yaml(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
