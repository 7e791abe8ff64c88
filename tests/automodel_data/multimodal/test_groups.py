"""A group of the mixture's YAML is a typed config that builds its source."""

import json
from itertools import islice
from typing import Any

import pytest

from automodel_data.multimodal.datasets import (
    DATASET_REGISTRY,
    SftJSONLIterableDataset,
    T2IIterableDataset,
    UnifiedEditIterableDataset,
)
from automodel_data.multimodal.groups import GroupConfig
from automodel_data.placement import Placement

SIZES = {"image_stride": 16, "max_image_size": 64, "min_image_size": 16}


def test_the_name_of_a_group_names_its_dataset_class() -> None:
    assert {
        "t2i_pretrain": T2IIterableDataset,
        "vlm_sft": SftJSONLIterableDataset,
        "unified_edit": UnifiedEditIterableDataset,
    } == DATASET_REGISTRY
    for name, kind in DATASET_REGISTRY.items():
        assert GroupConfig.from_mapping(name, {"dataset_names": ["a"]}).dataset_type is kind


@pytest.mark.parametrize("dataset_class", ["t2i_pretrain", "automodel_data.multimodal.t2i.T2IIterableDataset"])
def test_a_group_may_name_another_class_by_registry_or_by_path(dataset_class: str) -> None:
    config = GroupConfig.from_mapping("mine", {"dataset_names": ["a"], "dataset_class": dataset_class})
    assert config.dataset_type is T2IIterableDataset


def test_keys_of_the_group_are_fields_and_all_others_options() -> None:
    config = GroupConfig.from_mapping(
        "vlm_sft", {"dataset_names": ["a"], "weight": 2, "is_mandatory": True, "shuffle_lines": True, "shuffle_seed": 3}
    )
    assert (config.weight, config.is_mandatory) == (2, True)
    assert config.options == {"shuffle_lines": True, "shuffle_seed": 3}


def test_a_group_without_more_keys_has_the_plain_defaults() -> None:
    config = GroupConfig.from_mapping("t2i_pretrain", {"dataset_names": ["a"]})
    assert (config.weight, config.is_mandatory, config.num_used_data, config.options) == (1.0, False, None, {})


def test_a_transform_is_built_from_its_arguments() -> None:
    config = GroupConfig.from_mapping("t2i_pretrain", {"dataset_names": ["a"], "image_transform_args": SIZES})
    transform = config.transform("image_transform_args")
    assert transform is not None
    assert (transform.stride, transform.max_image_size, transform.min_image_size) == (16, 64, 16)
    assert config.transform("vit_image_transform_args") is None


def test_several_datasets_of_a_group_are_one_source_in_their_order(workshop: Any) -> None:
    image = workshop.image(16, 16)
    for name in ("x", "y"):
        workshop.add_t2i(name, [(image, {"a": name})] * 3)
    info = {"t2i_pretrain": {name: workshop.info[name]["rows"] for name in ("x", "y")}}
    config = GroupConfig.from_mapping(
        "t2i_pretrain", {"dataset_names": ["y", "x"], "num_used_data": [2, 1], "image_transform_args": SIZES}
    )
    tokenizer = workshop.build().dataset.tokenizer
    group = config.build(info, tokenizer, Placement(), None)
    folders = [path.split("/")[-2] for path in group.source.data_paths]
    assert sorted(folders) == ["x", "y", "y"]
    assert (group.name, group.source.dataset_name) == ("t2i_pretrain", "t2i_pretrain")


def test_files_of_parquet_info_are_merged(workshop: Any) -> None:
    picture = workshop.image(16, 16)
    known = {}
    for name in ("x", "y"):
        path = workshop.add_edit(name, [([picture] * 2, [["a"]])] * 4, rows_per_group=1)
        info = workshop.root / f"{name}.json"
        info.write_text(json.dumps({str(path): {"num_row_groups": 2}}))
        known[name] = workshop.info[name]["rows"] | {"parquet_info_path": str(info)}
    config = GroupConfig.from_mapping(
        "unified_edit",
        {
            "dataset_names": ["x", "y"],
            "image_transform_args": SIZES,
            "vit_image_transform_args": SIZES | {"image_stride": 14},
        },
    )
    group = config.build({"unified_edit": known}, workshop.build().dataset.tokenizer, Placement(), None)
    assert len(group.source.data_paths) == 4


def test_options_and_positions_reach_the_dataset(workshop: Any) -> None:
    rows = [{"conversations": [{"from": "gpt", "value": letter}]} for letter in "abcdef"]
    workshop.add_vlm("vlm_sft", rows, shuffle_lines=True, shuffle_seed=5, num_used_data=[3])
    config = GroupConfig.from_mapping("vlm_sft", workshop.groups["vlm_sft"])
    group = config.build(workshop.info, workshop.build().dataset.tokenizer, Placement(), [1])
    first = [sample["data_indexes"]["data_indexes"] for sample in islice(iter(group.source), 2)]
    assert (len(group.source.data_paths), first) == (3, [2, 0])
