"""The examples in the docs are run as they stand."""

import io
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from PIL import Image
from transformers import AutoTokenizer

from automodel_data.multimodal.utils import add_special_tokens
from recipes import config, launch
from recipes.demo_data import DemoDataConfig, ensure_demo_data
from recipes.tasks.packed import PackedTaskConfig

ROOT = Path(__file__).parents[1]


def block(document: str, language: str, number: int = 0) -> str:
    """Return the text of one fenced block."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)[number]


def encoded(colour: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (96, 80), colour).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def sketches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the documented class and recipe, some rows, and the demo rows that the recipe mixes them with."""
    (tmp_path / "my_rows.py").write_text(block("docs/add_a_dataset.md", "python"))
    recipe = tmp_path / "my_conf" / "recipe" / "sketches.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(block("docs/add_a_dataset.md", "yaml"))
    columns = {
        "sketch": [encoded("white")] * 11 + [b"no image"],
        "picture": [encoded("red")] * 12,
        "texts": [["a red picture", "red"]] * 10 + [[]] + [["red"]],
    }
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "rows" / "sketches.parquet", row_group_size=4)
    ensure_demo_data(
        str(tmp_path / "demo"),
        DemoDataConfig(t2i_rows=32, edit_rows=16, vlm_rows=16, pairs=0, heldout_rows=8, oddities=False),
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_rows", None)


def test_the_documented_dataset_is_packed_and_its_lost_rows_are_counted(sketches: Path) -> None:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = compose(
            "train",
            [
                f"hydra.searchpath=[file://{sketches / 'my_conf'}]",
                "recipe=sketches",
                f"sources.root={sketches / 'demo'}",
                f"sources.train.sketches.mine.data_dir={sketches / 'rows'}",
                "sources.num_used_data.train.t2i_pretrain=[1]",
                "data.num_workers=0",
            ],
        )
    settings, _ = config.load(composed)
    assert isinstance(settings.task, PackedTaskConfig)
    loader = build_loader(settings)
    batches = list(islice(loader, 12))
    names = {index["dataset_name"] for batch in batches for index in batch.batch_data_indexes}
    assert names == {"sketches", "t2i_pretrain"}
    assert loader.drops()["sketches"].keys() == {"no text", "unreadable image"}


@pytest.fixture
def own_rows(tmp_path: Path) -> Path:
    """Return a folder with the sources file and the rows that the README describes."""
    for folder in ("photos", "photos_to_validate", "edits", "images/cats"):
        (tmp_path / folder).mkdir(parents=True)
    photos = {"image": [encoded("red")] * 8, "captions": ['{"short": "red", "long": "all red"}'] * 8}
    for folder in ("photos", "photos_to_validate"):
        pq.write_table(pa.table(photos), tmp_path / folder / "a.parquet")
    edits = {
        "image_list": [[encoded("red"), encoded("blue")]] * 8,
        "instruction_list": [[["make it blue", "blue, please"]]] * 8,
    }
    pq.write_table(pa.table(edits), tmp_path / "edits" / "a.parquet")
    (tmp_path / "images" / "cats" / "1.jpg").write_bytes(encoded("orange"))
    (tmp_path / "chats.jsonl").write_text(block("README.md", "json") * 8)
    sources = block("README.md", "yaml")
    for written, path in (
        ("s3://bucket", tmp_path),
        ("/data", tmp_path),
        ("/models/Qwen2.5-7B-Instruct", ROOT / "tests/data/parity/inputs/tokenizer"),
    ):
        sources = sources.replace(written, str(path))
    write(tmp_path / "conf" / "sources" / "mine.yaml", sources)
    return tmp_path / "conf"


def test_the_documented_rows_are_packed_without_a_loss(own_rows: Path) -> None:
    settings = composed_with(own_rows, "recipe=bagel", "sources=mine", "data.num_workers=0")
    loader = build_loader(settings)
    batches = list(islice(loader, 6))
    names = {index["dataset_name"] for batch in batches for index in batch.batch_data_indexes}
    assert names == {"t2i_pretrain", "unified_edit", "vlm_sft"}
    assert not any(loader.drops().values())
    assert list(settings.validation.data.dataset_config.groups) == ["t2i_pretrain"]


def composed_with(folder: Path, *overrides: str) -> config.RunConfig:
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = compose("train", [f"hydra.searchpath=[file://{folder}]", *overrides])
    return config.load(composed)[0]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_the_documented_recipe_sets_what_it_says(tmp_path: Path) -> None:
    write(tmp_path / "recipe" / "captions.yaml", block("docs/write_a_recipe.md", "yaml"))
    settings = composed_with(tmp_path, "recipe=captions")
    assert (settings.name, settings.train.max_steps, settings.lr_schedule.warmup_steps) == ("captions", 200, 20)
    assert list(settings.data.dataset_config.groups) == ["t2i_pretrain"]
    assert settings.callbacks["loss_curve"] is None


def test_a_mapping_of_groups_in_bagels_form_equals_the_native_config(tmp_path: Path) -> None:
    write(tmp_path / "dataset" / "mine.yaml", block("docs/coming_from.md", "yaml"))
    theirs = composed_with(tmp_path, "recipe=bagel", "+dataset=mine")
    groups = (
        "~data.dataset_config.grouped_datasets.unified_edit",
        "~validation.data.dataset_config.grouped_datasets.unified_edit",
    )
    ours = composed_with(tmp_path, "recipe=bagel", *groups)
    assert theirs.data == ours.data
    assert theirs.validation.data == ours.validation.data


def test_a_dataset_block_of_nemo_automodel_equals_the_native_config(tmp_path: Path) -> None:
    write(tmp_path / "recipe" / "theirs.yaml", block("docs/coming_from.md", "yaml", 1))
    theirs = composed_with(tmp_path, "recipe=theirs")
    ours = composed_with(tmp_path, "recipe=t2i", "packing.max_num_tokens_per_sample=512")
    assert theirs.data == ours.data
    assert theirs.validation.data == ours.validation.data


def test_a_dataset_block_may_name_its_groups_and_its_rows_as_files(tmp_path: Path) -> None:
    (tmp_path / "info.yaml").write_text("t2i_pretrain: {t2i: {data_dir: /t2i}}")
    files = f"grouped_datasets_path: {tmp_path}/groups.yaml\ndataset_info_path: {tmp_path}/info.yaml\n"
    sizes = "image_transform_args: {image_stride: 16, max_image_size: 256, min_image_size: 64}"
    (tmp_path / "groups.yaml").write_text(f"t2i_pretrain: {{dataset_names: [t2i], {sizes}}}")
    target = "_target_: nemo_automodel.components.datasets.multimodal.datasets.BagelDatasetConfig"
    write(tmp_path / "dataset" / "theirs.yaml", f"{target}\n{files}")
    settings = composed_with(tmp_path, "recipe=bagel", "+dataset=theirs")
    assert settings.data.dataset_config.groups.keys() == {"t2i_pretrain"}
    assert settings.data.dataset_config.resolved_dataset_info == {"t2i_pretrain": {"t2i": {"data_dir": "/t2i"}}}
    assert settings.validation.data.dataset_config.groups.keys() == {"t2i_pretrain"}


def test_the_readme_shows_the_documented_dataset() -> None:
    assert block("README.md", "python") == block("docs/add_a_dataset.md", "python")
    assert block("README.md", "yaml", 1) == block("docs/add_a_dataset.md", "yaml")


def build_loader(settings: config.RunConfig) -> Any:
    tokenizer, special_tokens, _ = add_special_tokens(AutoTokenizer.from_pretrained(settings.sources.tokenizer))
    return settings.data.build(tokenizer, special_tokens, 0, 1, 1, 0).dataloader
