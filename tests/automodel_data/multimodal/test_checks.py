"""Knobs that contradict each other are refused before a file is touched: key, value, rule and way out."""

from collections.abc import Callable
from typing import Any

import pytest

from automodel_data.errors import DataError


@pytest.fixture
def nowhere(workshop: Any) -> Any:
    """Return a workshop whose groups lie in folders that do not exist."""
    workshop.add_t2i("t2i", [])
    workshop.add_edit("edit", [])
    workshop.add_vlm("talk", [], frame_sampler_args={"max_num_frames": 4, "min_num_frames": 2})
    for name, keys in workshop.info.items():
        keys["rows"] = dict.fromkeys(keys["rows"], f"/nowhere/{name}")
    return workshop


Spoil = Callable[[Any], dict[str, Any]]


def options(**values: Any) -> Spoil:
    return lambda workshop: values


def group(name: str, **values: Any) -> Spoil:
    def spoil(workshop: Any) -> dict[str, Any]:
        workshop.groups[name] |= values
        return {}

    return spoil


def datasets(name: str, value: Any) -> Spoil:
    def spoil(workshop: Any) -> dict[str, Any]:
        workshop.info[name] = value
        return {}

    return spoil


def group_without(name: str, key: str) -> Spoil:
    def spoil(workshop: Any) -> dict[str, Any]:
        del workshop.groups[name][key]
        return {}

    return spoil


def info(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    def spoil(workshop: Any) -> dict[str, Any]:
        change(workshop.info)
        return {}

    return spoil


def all_mandatory(workshop: Any) -> dict[str, Any]:
    for one in workshop.groups.values():
        one["is_mandatory"] = True
    return {}


VAE = {"image_stride": 16, "max_image_size": 256, "min_image_size": 16}
VIT = {"image_stride": 14, "max_image_size": 224, "min_image_size": 14}

CONTRADICTIONS: dict[str, tuple[Spoil, str]] = {
    "a sample above the pack": (
        options(max_num_tokens_per_sample=41),
        r"max_num_tokens_per_sample \(41\) must not exceed max_num_tokens \(40\): lower the one or raise the other",
    ),
    "expected above the maximum": (
        options(expected_num_tokens=50),
        r"expected_num_tokens \(50\) must not exceed max_num_tokens \(40\)",
    ),
    "mandatory groups that cannot fit together": (
        all_mandatory,
        r"3 mandatory groups may bring 57 tokens, more than max_num_tokens \(40\): lower max_num_tokens_per_sample",
    ),
    "a stride that is no VAE patch": (
        group("t2i", image_transform_args=VAE | {"image_stride": 8}),
        r"grouped_datasets.t2i.image_transform_args.image_stride \(8\) must equal vae_image_downsample \(16\)",
    ),
    "a stride that is no ViT patch": (
        group("edit", vit_image_transform_args=VIT | {"image_stride": 16}),
        r"grouped_datasets.edit.vit_image_transform_args.image_stride \(16\) must equal vit_patch_size \(14\)",
    ),
    "a stride of conversations that is no ViT patch": (
        group("talk", image_transform_args=VAE),
        r"grouped_datasets.talk.image_transform_args.image_stride \(16\) must equal vit_patch_size \(14\)",
    ),
    "images larger than the table of latents": (
        group("t2i", image_transform_args=VAE | {"max_image_size": 528}),
        r"grouped_datasets.t2i.image_transform_args.max_image_size \(528\) gives 33 patches a side, more than "
        r"max_latent_size \(32\): lower the one or raise the other",
    ),
    "images larger than the table of patches": (
        group("talk", image_transform_args=VIT | {"max_image_size": 994}),
        r"grouped_datasets.talk.image_transform_args.max_image_size \(994\) gives 71 patches a side, more than "
        r"max_num_patch_per_side \(70\)",
    ),
    "a smallest image above the largest": (
        group("talk", image_transform_args=VIT | {"min_image_size": 300}),
        r"grouped_datasets.talk.image_transform_args.min_image_size \(300\) must be above 0 and must not exceed "
        r"max_image_size \(224\)",
    ),
    "a probability above 1": (options(vit_cond_dropout_prob=1.5), r"vit_cond_dropout_prob \(1.5\) must lie between"),
    "a probability below 0": (options(text_cond_dropout_prob=-0.1), r"text_cond_dropout_prob \(-0.1\) must lie"),
    "no thread": (options(decode_threads=0), r"decode_threads \(0\) must be at least 1"),
    "no patch": (options(vit_patch_size=0), r"vit_patch_size \(0\) must be at least 1"),
    "an unknown backend": (options(image_backend="opencv"), r"image_backend is 'opencv'; it must be one of"),
    "an unknown key with a near one": (
        group("talk", shufle_lines=True),
        r"grouped_datasets.talk.shufle_lines: unknown key; did you mean 'shuffle_lines'\?",
    ),
    "a typo in a key of every group": (
        group("t2i", is_mandatry=True),
        r"grouped_datasets.t2i.is_mandatry: unknown key; did you mean 'is_mandatory'\?",
    ),
    "an unknown key of a transform": (
        group("t2i", image_transform_args=VAE | {"max_size": 3}),
        r"grouped_datasets.t2i.image_transform_args.max_size: unknown key; did you mean 'max_image_size'\?",
    ),
    "a missing key of a transform": (
        group("t2i", image_transform_args={"image_stride": 16}),
        r"grouped_datasets.t2i.image_transform_args lacks max_image_size, min_image_size",
    ),
    "a missing transform": (
        group_without("talk", "image_transform_args"),
        r"grouped_datasets.talk.image_transform_args is missing; SftJSONLIterableDataset needs it",
    ),
    "a missing transform of the other tower": (
        group_without("edit", "vit_image_transform_args"),
        r"grouped_datasets.edit.vit_image_transform_args is missing; UnifiedEditIterableDataset needs it",
    ),
    "an unknown key of the frame sampler": (
        group("talk", frame_sampler_args={"max_frames": 3}),
        r"grouped_datasets.talk.frame_sampler_args.max_frames: unknown key; did you mean 'max_num_frames'\?",
    ),
    "more frames at least than at most": (
        group("talk", frame_sampler_args={"max_num_frames": 3, "min_num_frames": 5}),
        r"grouped_datasets.talk.frame_sampler_args: max_num_frames \(3\) must not be below min_num_frames \(5\)",
    ),
    "an unknown sampling": (
        group("talk", frame_sampler_args={"sample": "first"}),
        r"grouped_datasets.talk.frame_sampler_args: sample is 'first'; it must be 'rand', 'middle' or 'fps<rate>'",
    ),
    "no dataset names": (
        group_without("t2i", "dataset_names"),
        r"grouped_datasets.t2i has no dataset_names; list the keys of dataset_info.t2i to use",
    ),
    "names that are no list": (
        group("t2i", dataset_names="rows"),
        r"grouped_datasets.t2i.dataset_names is 'rows'; it must be a list of keys of dataset_info.t2i",
    ),
    "a weight of 0": (group("t2i", weight=0), r"grouped_datasets.t2i.weight is 0; it must be a number above 0, or"),
    "a weight that is a word": (
        group("t2i", weight="much"),
        r"grouped_datasets.t2i.weight is 'much'; it must be a number",
    ),
    "a weight without end": (
        group("t2i", weight=float("inf")),
        r"grouped_datasets.t2i.weight is inf; it must be a number",
    ),
    "a word for a switch": (
        group("t2i", is_mandatory="no"),
        r"grouped_datasets.t2i.is_mandatory is 'no'; it must be true",
    ),
    "a transform that is no mapping": (
        group("t2i", image_transform_args=224),
        r"grouped_datasets.t2i.image_transform_args is 224; it must be a mapping of arguments",
    ),
    "a table of datasets that is none": (
        datasets("t2i", "/rows"),
        r"dataset_info.t2i is '/rows'; it must be a mapping of datasets",
    ),
    "an option that the run sets": (
        group("t2i", num_workers=4),
        r"grouped_datasets.t2i.num_workers: this is set by the loader's num_workers, not by the group; take it out",
    ),
    "a count for every name": (
        group("t2i", num_used_data=[1, 2]),
        r"grouped_datasets.t2i.num_used_data is \[1, 2\]; it must be a list with one number for each of the 1",
    ),
    "a count that is no list": (group("t2i", num_used_data=4), r"grouped_datasets.t2i.num_used_data is 4; it must be"),
    "a count of 0": (
        group("t2i", num_used_data=[0]),
        r"num_used_data is \[0\]; every number must be whole and at least 1",
    ),
    "a count of half a file": (group("t2i", num_used_data=[0.5]), r"num_used_data is \[0.5\]; every number must be"),
    "an unknown class": (
        group("t2i", dataset_class="t2i_pretran"),
        r"grouped_datasets.t2i: no dataset class of that name; the registry has \['t2i_pretrain', 'unified_edit'",
    ),
    "a class that cannot be imported": (
        group("t2i", dataset_class="no.such.Module"),
        r"grouped_datasets.t2i.dataset_class: cannot import 'no.such.Module': No module named 'no'",
    ),
    "a class that is no dataset": (
        group("t2i", dataset_class="pathlib.Path"),
        r"grouped_datasets.t2i.dataset_class: 'pathlib.Path' is no DistributedIterableDataset; derive it from one",
    ),
    "a group that dataset_info does not know": (
        info(lambda known: known.update(tik=known.pop("talk"))),
        r"dataset_info has no group 'talk'",
    ),
    "a dataset that dataset_info does not know": (
        info(lambda known: known["talk"].update(row=known["talk"].pop("rows"))),
        r"dataset_info.talk has no dataset 'rows'; did you mean 'row'\?",
    ),
    "no folder": (
        info(lambda known: known["t2i"]["rows"].pop("data_dir")),
        r"dataset_info.t2i.rows has no data_dir; T2IIterableDataset needs it",
    ),
    "no file of rows": (
        info(lambda known: known["talk"]["rows"].pop("jsonl_path")),
        r"dataset_info.talk.rows has no jsonl_path; SftJSONLIterableDataset needs it",
    ),
}


@pytest.mark.parametrize("contradiction", CONTRADICTIONS)
def test_a_contradiction_is_refused_before_a_file_is_touched(contradiction: str, nowhere: Any) -> None:
    spoil, message = CONTRADICTIONS[contradiction]
    changed = spoil(nowhere)
    with pytest.raises(DataError, match=message):
        nowhere.config(**changed).check()
    with pytest.raises(DataError, match=message):
        nowhere.build(**changed)


def test_knobs_that_agree_pass_without_a_file(nowhere: Any) -> None:
    nowhere.config().check()
    nowhere.config(max_num_tokens=100, image_backend="torchvision", text_cond_dropout_prob=1.0).check()


def test_positions_spread_over_the_table_fit_any_image(nowhere: Any) -> None:
    nowhere.groups["t2i"]["image_transform_args"] = VAE | {"max_image_size": 1024}
    nowhere.config(interpolate_pos=True).check()


def test_a_config_without_groups_is_refused(workshop: Any) -> None:
    with pytest.raises(DataError, match="grouped_datasets names no group; give it inline or by grouped_datasets_path"):
        workshop.config().check()


def test_a_group_that_is_no_mapping_is_refused(nowhere: Any) -> None:
    nowhere.groups["talk"] = ["rows"]
    with pytest.raises(DataError, match=r"grouped_datasets.talk has no dataset_names"):
        nowhere.config().check()


@pytest.mark.parametrize("rank", range(3))
def test_fewer_paths_than_ranks_and_workers_are_refused_on_every_rank(rank: int, workshop: Any) -> None:
    workshop.add_lengths("a", [10] * 6, 1)
    with pytest.raises(DataError, match=r"a: 1 paths cannot be shared by 3 ranks; every rank needs at least one: use"):
        workshop.build(rank=rank, world_size=3)
    workshop.groups.clear()
    workshop.add_vlm("talk", [{"conversations": [{"from": "gpt", "value": "x"}]}] * 6)
    with pytest.raises(DataError, match=r"talk: 2 paths cannot be shared by 4 workers on each rank; every worker"):
        workshop.build(rank=rank, world_size=3, workers=4)


@pytest.mark.parametrize("content", [None, "no JSON", "[1]"])
def test_a_parquet_info_that_cannot_be_read_is_refused_with_its_path(content: str | None, workshop: Any) -> None:
    workshop.add_edit("edit", [])
    path = workshop.root / "info.json"
    if content is not None:
        path.write_text(content)
    workshop.info["edit"]["rows"]["parquet_info_path"] = str(path)
    with pytest.raises(DataError, match=f"dataset_info.edit: cannot read parquet_info_path '{path}'"):
        workshop.build()


def test_a_parquet_info_for_some_datasets_of_a_group_is_refused(workshop: Any) -> None:
    workshop.add_edit("edit", [])
    workshop.info["edit"]["more"] = {"data_dir": "/nowhere", "parquet_info_path": "/nowhere.json"}
    workshop.groups["edit"]["dataset_names"] = ["rows", "more"]
    with pytest.raises(DataError, match="1 of 2 datasets have a parquet_info_path; give it for all of them or for"):
        workshop.build()
