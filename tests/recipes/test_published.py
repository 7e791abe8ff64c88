"""What a published dataset block replaces, and what it leaves alone."""

from typing import Any

import pytest

from recipes import published
from recipes.mistakes import ConfigError

LOADER = "nemo_automodel.components.datasets.multimodal.datasets.BagelDatasetConfig"


def run(dataset: object, **data: object) -> dict[str, Any]:
    overlay = {"dataset_config": {"dataset_info": {"held": "out"}, "grouped_datasets": {"a": {"x": 1}, "b": {"x": 2}}}}
    return {"dataset": dataset, "data": data, "validation": {"data": overlay}}


def test_held_out_rows_keep_their_place_for_the_groups_that_the_block_has() -> None:
    taken = published.taken(run({"a": {"weight": 2}}, dataset_config={"use_flex": True}))
    assert taken["data"]["dataset_config"] == {"use_flex": True, "grouped_datasets": {"a": {"weight": 2}}}
    heldout = taken["validation"]["data"]["dataset_config"]
    assert heldout == {"dataset_info": {"held": "out"}, "dataset_info_path": None, "grouped_datasets": {"a": {"x": 1}}}


def test_what_the_block_names_as_a_file_is_not_given_inline_too() -> None:
    block = {"_target_": LOADER, "dataset_info_path": "info.yaml"}
    taken = published.taken(run(block, dataset_config={"dataset_info": {"here": "in"}}))["data"]["dataset_config"]
    assert (taken["dataset_info"], taken["dataset_info_path"]) == (None, "info.yaml")
    assert taken["_target_"] == "automodel_data.multimodal.datasets.BagelDatasetConfig"


def test_a_cache_has_no_place_for_a_dataset_block() -> None:
    with pytest.raises(ConfigError, match="dataset needs a packed mixture to stand in for: choose data=bagel"):
        published.taken(run({"a": {}}, cache_dir="cache"))
