from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.datasets import BagelDatasetConfig
from automodel_data.multimodal.utils import add_special_tokens
from recipes.demo_data import DemoDataConfig, ensure_demo_data

LATENTS = {"image_stride": 16, "max_image_size": 160, "min_image_size": 64}
PATCHES = {"image_stride": 14, "max_image_size": 154, "min_image_size": 56, "max_pixels": 100_000}


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = DemoDataConfig(
        t2i_rows=24, edit_rows=24, vlm_rows=48, pairs=0, heldout_rows=4, min_edge=96, max_edge=160, oddities=False
    )
    return ensure_demo_data(tmp_path_factory.mktemp("data") / "demo", config)


@pytest.fixture(scope="session")
def tokenizer(rows: Path) -> PreTrainedTokenizerBase:
    return add_special_tokens(AutoTokenizer.from_pretrained(rows / "tokenizer"))[0]


@pytest.fixture(scope="session")
def packs(rows: Path, tokenizer: PreTrainedTokenizerBase) -> Callable[[bool], list[SimpleCustomBatch]]:
    """Return a function that makes the same few packs of all three kinds of rows, with flex splits or dense masks."""
    groups = {
        "t2i_pretrain": {"dataset_names": ["t2i"], "image_transform_args": LATENTS, "num_used_data": [4]},
        "unified_edit": {
            "dataset_names": ["edit"],
            "image_transform_args": LATENTS,
            "vit_image_transform_args": PATCHES,
            "num_used_data": [4],
        },
        "vlm_sft": {
            "dataset_names": ["vlm"],
            "image_transform_args": PATCHES,
            "frame_sampler_args": {"max_num_frames": 4, "min_num_frames": 3},
            "num_used_data": [48],
        },
    }
    train = rows / "train"
    info = {
        "t2i_pretrain": {"t2i": {"data_dir": str(train / "t2i")}},
        "unified_edit": {"edit": {"data_dir": str(train / "edit")}},
        "vlm_sft": {"vlm": {"data_dir": str(train / "vlm/images"), "jsonl_path": str(train / "vlm/rows.jsonl")}},
    }

    def make(use_flex: bool) -> list[SimpleCustomBatch]:
        config = BagelDatasetConfig(
            grouped_datasets={name: {"is_mandatory": False, "weight": 1} | group for name, group in groups.items()},
            dataset_info=info,
            expected_num_tokens=1000,
            max_num_tokens=1200,
            max_num_tokens_per_sample=600,
            prefer_buffer_before=500,
            max_buffer_size=4,
            use_flex=use_flex,
        )
        special_tokens = add_special_tokens(tokenizer)[1]
        dataset = config.build(tokenizer, special_tokens, rank=0, world_size=1, num_workers=0, global_seed=3)
        return [SimpleCustomBatch([pack]) for pack in islice(dataset, 4)]

    return make
