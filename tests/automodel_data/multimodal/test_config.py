"""Groups and locations are given inline or by a file, never both."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from automodel_data.errors import DataError
from automodel_data.multimodal.datasets import DEFAULT_DATASET_INFO, BagelDatasetConfig

CONTENT = {"t2i_pretrain": {"dataset_names": ["a"]}}


@pytest.mark.parametrize("name", ["groups.yaml", "groups.json"])
def test_groups_may_stand_in_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(CONTENT) if name.endswith("json") else yaml.safe_dump(CONTENT))
    assert BagelDatasetConfig(grouped_datasets_path=str(path)).groups == CONTENT
    assert BagelDatasetConfig(dataset_info_path=str(path)).resolved_dataset_info == CONTENT


def test_what_is_given_inline_is_taken_as_it_is() -> None:
    config = BagelDatasetConfig(grouped_datasets=CONTENT)
    assert config.groups == CONTENT
    assert config.resolved_dataset_info == DEFAULT_DATASET_INFO == {}


def test_a_group_that_is_set_to_null_is_left_out() -> None:
    assert BagelDatasetConfig(grouped_datasets=CONTENT | {"vlm_sft": None}).groups == CONTENT


@pytest.mark.parametrize("key", ["grouped_datasets", "dataset_info"])
def test_both_ways_at_once_are_refused(key: str) -> None:
    with pytest.raises(DataError, match=f"{key} and {key}_path are both given; give one"):
        BagelDatasetConfig._resolve_mapping({}, "x.yaml", key)


@pytest.mark.parametrize("content", [None, "a: [", "- a list", "{broken"])
@pytest.mark.parametrize("name", ["file.yaml", "file.json"])
def test_a_file_that_holds_no_mapping_is_refused_with_its_key_and_path(
    content: str | None, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=f"dataset_info_path: .*'{path}'") as error:
        BagelDatasetConfig._resolve_mapping(None, str(path), "dataset_info")
    assert "\n" not in str(error.value)


def test_checking_and_building_change_nothing_in_the_config(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 11])
    config = workshop.config()
    before = json.dumps([config.groups, config.resolved_dataset_info])
    config.check()
    config.build(None, {"bos_token_id": 1, "eos_token_id": 2, "start_of_image": 3, "end_of_image": 4}, 0, 1, 0, 0)
    assert json.dumps([config.groups, config.resolved_dataset_info]) == before


def test_data_seed_orders_the_files_and_the_global_seed_does_not(workshop: Any) -> None:
    rows = [{"conversations": [{"from": "gpt", "value": letter}]} for letter in "abcdefgh"]
    workshop.add_vlm("talk", rows)

    def first(seed: int, data_seed: int) -> list[int]:
        return next(iter(workshop.build(seed=seed, data_seed=data_seed).dataloader)).packed_text_ids.tolist()

    assert first(0, 1) == first(9, 1) != first(0, 2)
