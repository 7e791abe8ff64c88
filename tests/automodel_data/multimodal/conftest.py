"""The parity corpora, and packed datasets over them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from automodel_data.multimodal.datasets import BagelDatasetConfig
from automodel_data.multimodal.loader import BagelDataloaderBuild, BagelDataloaderConfig
from automodel_data.multimodal.utils import add_special_tokens

PARITY = Path(__file__).parents[2] / "data" / "parity"


@pytest.fixture(scope="session")
def parity() -> Path:
    return PARITY


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    tokenizer, _, _ = add_special_tokens(AutoTokenizer.from_pretrained(PARITY / "inputs" / "tokenizer"))
    return tokenizer


@pytest.fixture(scope="session")
def special_tokens(tokenizer: Any) -> dict[str, int]:
    return add_special_tokens(tokenizer)[1]


@pytest.fixture(scope="session")
def dataset_info(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    inputs = PARITY / "inputs"
    known = json.loads((inputs / "edit_info.json").read_text())
    info_path = tmp_path_factory.mktemp("info") / "edit_info.json"
    info_path.write_text(json.dumps({str(inputs / "edit" / name): info for name, info in known.items()}))
    return {
        "t2i_pretrain": {"t2i": {"data_dir": str(inputs / "t2i")}},
        "unified_edit": {"edit_data": {"data_dir": str(inputs / "edit"), "parquet_info_path": str(info_path)}},
        "vlm_sft": {
            "vlm_data": {
                "data_dir": str(inputs / "vlm" / "images"),
                "jsonl_path": str(inputs / "vlm" / "train.jsonl"),
            }
        },
    }


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    return lambda name: json.loads((PARITY / "golden" / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def build_golden(
    golden: Callable[[str], dict[str, Any]],
    tokenizer: Any,
    special_tokens: dict[str, int],
    dataset_info: dict[str, Any],
) -> Callable[..., BagelDataloaderBuild]:
    """Build the loader of a golden case; keywords replace its runtime (``workers``) or its packing options."""

    def build(name: str, workers: int | None = None, **options: Any) -> BagelDataloaderBuild:
        case = golden(name)
        runtime = case["runtime"]
        config = BagelDatasetConfig(
            grouped_datasets=case["groups"], dataset_info=dataset_info, **(case["config"] | options)
        )
        return BagelDataloaderConfig(config, num_workers=runtime["workers"] if workers is None else workers).build(
            tokenizer, special_tokens, runtime["rank"], runtime["world"], 1, runtime["global_seed"]
        )

    return build
