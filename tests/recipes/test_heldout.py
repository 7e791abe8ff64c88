"""What of the data is held out follows from the sources; where there is nothing, nothing else has to be set."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from recipes import config, launch
from recipes.config import RunConfig
from recipes.mistakes import ConfigError

CONF = Path(__file__).parents[2] / "conf"
ALL = """
  t2i_pretrain: {mine: {data_dir: /photos}, more: {data_dir: /more}}
  unified_edit: {edits: {data_dir: /edits}}
  vlm_sft: {chats: {data_dir: /images, jsonl_path: /chats.jsonl}}
"""
Load = Callable[..., RunConfig]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Return a function that loads a config whose ``sources`` file has this text."""
    config.register()
    launch.register_resolvers()
    (tmp_path / "sources").mkdir()

    def run(sources: str, *overrides: str) -> RunConfig:
        (tmp_path / "sources/mine.yaml").write_text(f"tokenizer: /tokenizer\n{sources}")
        given = [f"hydra.searchpath=[file://{tmp_path}]", "sources=mine", *overrides]
        return config.load(compose("train", given))[0]

    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield run


def groups(data: Any) -> dict[str, Any]:
    return data.dataset_config.groups


def test_without_counts_all_of_every_dataset_is_used(load: Load) -> None:
    group = groups(load(f"train: {ALL}").data)["t2i_pretrain"]
    assert (group["dataset_names"], group["num_used_data"]) == (["mine", "more"], None)


def test_without_held_out_rows_nothing_is_validated(load: Load) -> None:
    assert load(f"train: {ALL}").validation.data is None


def test_a_group_without_held_out_rows_is_not_validated(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        run = load(f"train: {ALL}\nheldout: {{vlm_sft: {{talk: {{data_dir: /talk, jsonl_path: /talk.jsonl}}}}}}")
    assert list(groups(run.validation.data)) == ["vlm_sft"]
    assert groups(run.validation.data)["vlm_sft"]["dataset_names"] == ["talk"]
    assert "no held-out rows of t2i_pretrain, unified_edit: not validated" in caplog.text


def test_a_group_that_is_not_trained_on_is_not_validated_either(load: Load) -> None:
    run = load(f"train: {ALL}\nheldout: {ALL}", "data.dataset_config.grouped_datasets.unified_edit=null")
    assert list(groups(run.validation.data)) == ["t2i_pretrain", "vlm_sft"]


def test_a_group_without_rows_to_train_on_is_refused_with_the_way_out(load: Load) -> None:
    photos = "train: {t2i_pretrain: {mine: {data_dir: /photos}}}"
    way_out = [f"data.dataset_config.grouped_datasets.{group}=null" for group in ("unified_edit", "vlm_sft")]
    with pytest.raises(ConfigError) as refusal:
        load(photos, way_out[1])
    assert str(refusal.value) == (
        "data.dataset_config.grouped_datasets.unified_edit: dataset_info (in conf/: sources.train) has no such group; "
        f"add its rows, choose another data=, or leave it out: {way_out[0]}"
    )
    assert list(groups(load(photos, *way_out).data)) == ["t2i_pretrain"]
    assert list(groups(load(photos, "data=t2i").data)) == ["t2i_pretrain"]


def test_an_objective_of_held_out_rows_needs_some(load: Load) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(f"train: {ALL}", "objective=val/ce")
    assert str(refusal.value) == (
        "objective (val/ce) needs held-out rows: give sources.heldout, or choose objective=auto"
    )
