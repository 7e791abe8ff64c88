"""The parity corpora, and packed datasets over them; small sources made by hand, and packed datasets over those."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
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


class Letters:
    """A tokenizer with one id for each character."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


LETTER_TOKENS = {"bos_token_id": 1001, "eos_token_id": 1002, "start_of_image": 1003, "end_of_image": 1004}
VAE_IMAGES = {"image_stride": 16, "max_image_size": 256, "min_image_size": 16}
VIT_IMAGES = {"image_stride": 14, "max_image_size": 224, "min_image_size": 14}


class Workshop:
    """Writes sources by hand and builds packed datasets over them, without dropout unless asked for."""

    def __init__(self, root: Path, encode: Callable[..., bytes]) -> None:
        self.root = root
        self.groups: dict[str, dict[str, Any]] = {}
        self.info: dict[str, dict[str, Any]] = {}
        self._encode = encode

    def image(self, width: int, height: int, color: int = 0, format: str = "PNG") -> bytes:
        """Encode a grey picture."""
        return self._encode(Image.new("RGB", (width, height), (color,) * 3), format)

    def parquet(self, path: Path, columns: Mapping[str, Sequence[Any]], rows_per_group: int = 1000) -> Path:
        """Write a parquet file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(columns)), path, row_group_size=rows_per_group)
        return path

    def add_t2i(self, name: str, rows: Sequence[tuple[Any, Any]], rows_per_group: int = 1000, **group: Any) -> Path:
        """Add a group of ``(image, captions)`` rows; captions that are no text are written as JSON."""
        captions = [text if isinstance(text, str) or text is None else json.dumps(text) for _, text in rows]
        columns = {"image": pa.array([image for image, _ in rows], pa.binary()), "captions": captions}
        path = self.parquet(self.root / name / "a.parquet", columns, rows_per_group)
        self._add(name, {"data_dir": str(path.parent)}, "t2i_pretrain", {"image_transform_args": VAE_IMAGES} | group)
        return path

    def add_lengths(self, name: str, lengths: Sequence[int], rows_per_group: int = 1000, **group: Any) -> Path:
        """Add a group of captioned images whose samples have these lengths, in tokens (6 or more)."""
        image = self.image(16, 16)
        rows = [(image, {"a": "x" * (length - 5)}) for length in lengths]
        return self.add_t2i(name, rows, rows_per_group, **group)

    def add_edit(self, name: str, rows: Sequence[tuple[Any, Any]], rows_per_group: int = 1000, **group: Any) -> Path:
        """Add a group of ``(images, instructions)`` rows."""
        columns = {
            "image_list": pa.array([images for images, _ in rows], pa.list_(pa.binary())),
            "instruction_list": [instructions for _, instructions in rows],
        }
        path = self.parquet(self.root / name / "a.parquet", columns, rows_per_group)
        sizes = {"image_transform_args": VAE_IMAGES, "vit_image_transform_args": VIT_IMAGES}
        self._add(name, {"data_dir": str(path.parent)}, "unified_edit", sizes | group)
        return path

    def add_vlm(self, name: str, rows: Sequence[Any], files: Mapping[str, bytes] | None = None, **group: Any) -> Path:
        """Add a group of conversations; rows that are no text are written as JSON."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        for file, content in (files or {}).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        path = folder / "rows.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        info = {"data_dir": str(folder), "jsonl_path": str(path)}
        self._add(name, info, "vlm_sft", {"image_transform_args": VIT_IMAGES} | group)
        return path

    def _add(self, name: str, info: dict[str, str], dataset_class: str, group: dict[str, Any]) -> None:
        self.groups[name] = {"dataset_names": ["rows"], "dataset_class": dataset_class} | group
        self.info[name] = {"rows": info}

    def config(self, **options: Any) -> BagelDatasetConfig:
        """Return the config of all groups, with budgets of a few dozen tokens."""
        defaults = {
            "expected_num_tokens": 30,
            "max_num_tokens_per_sample": 20,
            "max_num_tokens": 40,
            "prefer_buffer_before": 0,
            "max_buffer_size": 3,
            "use_flex": True,
            "text_cond_dropout_prob": 0.0,
            "vit_cond_dropout_prob": 0.0,
            "vae_cond_dropout_prob": 0.0,
        }
        return BagelDatasetConfig(grouped_datasets=self.groups, dataset_info=self.info, **(defaults | options))

    def build(
        self, workers: int = 0, rank: int = 0, world_size: int = 1, seed: int = 0, **options: Any
    ) -> BagelDataloaderBuild:
        """Build the loader over all groups."""
        loader = BagelDataloaderConfig(self.config(**options), num_workers=workers, pin_memory=False)
        return loader.build(Letters(), LETTER_TOKENS, rank, world_size, 1, seed)


@pytest.fixture
def workshop(tmp_path: Path, encode: Callable[..., bytes]) -> Workshop:
    return Workshop(tmp_path, encode)


@pytest.fixture(scope="session")
def letters() -> Letters:
    return Letters()
