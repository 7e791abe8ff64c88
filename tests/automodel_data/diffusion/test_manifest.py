"""What is refused in a cache's metadata: each refusal names the file and the field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset
from automodel_data.errors import DataError

SHAPE = (4, 4, 4)


@pytest.fixture
def cache(make_edit_cache: Callable[..., Path]) -> Path:
    return make_edit_cache({SHAPE: 3})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1", "metadata.json: is not JSON"),
        ("[]", r"metadata.json: must be a mapping"),
        ("{}", "metadata.json: shards must be a list of at least one file name, got None"),
        ('{"shards": []}', "metadata.json: shards must be"),
        ('{"shards": [3]}', "metadata.json: shards must be"),
        ('{"shards": ["gone.json"]}', "gone.json: cannot be read: No such file"),
        ('{"shards": ["../x.json"]}', r"metadata.json: shards\[0\]: '../x.json' lies outside"),
    ],
)
def test_a_broken_manifest_is_refused(cache: Path, text: str, says: str) -> None:
    (cache / "metadata.json").write_text(text)
    with pytest.raises(DataError, match=says):
        ImageEditDataset(str(cache))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "shard.json: is not JSON"),
        ("\udcff", "shard.json: is not JSON"),
        ("{}", "shard.json: must be a list of items, got a dict"),
        ("[7]", "shard.json: item 0 must be a mapping, got 7"),
    ],
)
def test_a_broken_shard_is_refused(cache: Path, text: str, says: str) -> None:
    (cache / "shard.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=says):
        ImageEditDataset(str(cache))


def test_a_cache_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere is no finished cache, it has no metadata.json; scripts/enc"):
        ImageEditDataset(str(tmp_path / "nowhere"))


SIGNATURE = {"target": [4, 4, 4], "contexts": [[4, 4, 4]]}


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("cache_file", None, "cache_file must be a file name, got None"),
        ("cache_file", 3, "cache_file must be a file name, got 3"),
        ("cache_file", "", "cache_file must be a file name"),
        ("cache_file", "../other.pt", r"cache_file: '../other.pt' lies outside"),
        ("cache_file", "samples/../../other.pt", "lies outside"),
        ("cache_file", "..", "lies outside"),
        ("cache_file", "/etc/hostname", "cache_file: '/etc/hostname' lies outside"),
        ("compound_bucket_signature", None, "compound_bucket_signature must be a mapping of 'target' and 'contexts'"),
        ("compound_bucket_signature", {"target": [4, 4, 4]}, "must be a mapping of"),
        ("compound_bucket_signature", {**SIGNATURE, "contexts": []}, "contexts must be a list of at least one shape"),
        ("compound_bucket_signature", {**SIGNATURE, "target": [4, 4]}, "signature.target must be a list of 3 ints"),
        ("compound_bucket_signature", {**SIGNATURE, "target": [4, 0, 4]}, "target must hold ints of at least 1"),
        ("compound_bucket_signature", {**SIGNATURE, "contexts": [[4, 4.0, 4]]}, r"contexts\[0\] must hold ints"),
        ("compound_bucket_signature", {**SIGNATURE, "target": [4, True, 4]}, "target must hold ints"),
        ("compound_bucket_signature", {**SIGNATURE, "target": [4, -1, 4]}, "target must hold ints of at least 1"),
    ],
)
def test_a_broken_image_edit_item_is_refused(cache: Path, field: str, value: Any, says: str) -> None:
    items = json.loads((cache / "shard.json").read_text())
    items[1][field] = value
    (cache / "shard.json").write_text(json.dumps(items))
    with pytest.raises(DataError, match=f"shard.json: item 1: .*{says}"):
        ImageEditDataset(str(cache))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("bucket_resolution", None, "bucket_resolution must be a list of 2 ints"),
        ("bucket_resolution", [64, 0], "bucket_resolution must hold ints of at least 1"),
        ("original_resolution", [64], "original_resolution must be a list of 2 ints"),
        ("bucket_id", -1, "bucket_id must be an int of at least 0"),
        ("bucket_id", None, "bucket_id must be an int of at least 0"),
        ("aspect_ratio", 0, "aspect_ratio must be a positive number"),
        ("aspect_ratio", "wide", "aspect_ratio must be a positive number"),
        ("aspect_ratio", float("nan"), "aspect_ratio must be a positive number"),
        ("cache_file", "/etc/hostname", "lies outside"),
    ],
)
def test_a_broken_text_to_image_item_is_refused(
    make_t2i_cache: Callable[..., Path], field: str, value: Any, says: str
) -> None:
    def spoil(item: dict[str, Any], row: int) -> None:
        if row == 1:
            item[field] = value

    with pytest.raises(DataError, match=f"shard.json: item 1: .*{says}"):
        TextToImageDataset(str(make_t2i_cache({(64, 64): 2}, change_item=spoil)))


def test_a_link_out_of_the_cache_is_refused(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.pt"
    payload = cache / "samples" / "0001.pt"
    payload.rename(outside)
    payload.symlink_to(outside)
    with pytest.raises(DataError, match=r"item 1: cache_file: 'samples/0001.pt' lies outside"):
        ImageEditDataset(str(cache))


def test_a_linked_folder_out_of_the_cache_is_refused(cache: Path, tmp_path: Path) -> None:
    (cache / "samples").rename(tmp_path / "elsewhere")
    (cache / "samples").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="lies outside"):
        ImageEditDataset(str(cache))


def test_links_within_the_cache_and_absolute_paths_into_it_are_taken(cache: Path) -> None:
    (cache / "samples" / "link.pt").symlink_to(cache / "samples" / "0000.pt")
    items = json.loads((cache / "shard.json").read_text())
    items[1]["cache_file"] = "samples/link.pt"
    items[2]["cache_file"] = str(cache / "samples" / "0002.pt")
    (cache / "shard.json").write_text(json.dumps(items))
    dataset = ImageEditDataset(str(cache))
    assert [dataset[i]["metadata"]["original_ids"]["row"] for i in range(3)] == [0, 0, 2]


def test_relative_paths_start_at_the_cache_wherever_the_process_stands(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = ImageEditDataset(cache.name)
    monkeypatch.chdir("/")
    assert dataset[2]["metadata"]["original_ids"] == {"row": 2}


def test_a_cache_nearby_is_named_when_the_folder_is_none(cache: Path) -> None:
    with pytest.raises(DataError, match=f"{cache.parent} is no finished cache, it has .*; {cache} has one"):
        ImageEditDataset(str(cache.parent))
    with pytest.raises(DataError, match=f"{cache}/image_edit is no finished cache, .*; {cache} has one"):
        ImageEditDataset(str(cache / "image_edit"))


def test_a_cache_of_another_kind_is_refused_by_its_name(cache: Path) -> None:
    (cache / "metadata.json").write_text(json.dumps({"shards": ["shard.json"], "layout": "image_edit"}))
    assert len(ImageEditDataset(str(cache))) == 3
    with pytest.raises(DataError, match="is a cache made with encode=image_edit, not with encode=t2i: open it as such"):
        TextToImageDataset(str(cache))
