"""The same cache encoded again: exactly what has changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset
from automodel_data.errors import DataError
from recipes.encode.cache import CacheWriter
from recipes.encode.transform import Transform
from tests.recipes.encode.watched import watch

Contents = Callable[[Path], dict[str, bytes]]


def test_a_second_run_encodes_nothing_and_changes_nothing(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], contents: Contents
) -> None:
    make_writer(pairs, tmp_path / "cache").run()
    before = contents(tmp_path / "cache")
    writer, watched = watch(make_writer(pairs, tmp_path / "cache"))
    writer.run()
    assert watched.images == 0
    assert contents(tmp_path / "cache") == before


@pytest.mark.parametrize("change", ["instruction", "image", "new row"])
def test_a_second_run_encodes_exactly_what_changed(
    pairs: Path,
    tmp_path: Path,
    make_writer: Callable[..., CacheWriter],
    change_row: Callable[..., None],
    change: str,
) -> None:
    make_writer(pairs, tmp_path / "cache").run()
    match change:
        case "instruction":
            change_row(pairs / "pairs.jsonl", 1, instruction="make it pink")
        case "image":
            (pairs / "1_1.png").write_bytes((pairs / "5_0.png").read_bytes())
        case "new row":
            lines = (pairs / "pairs.jsonl").read_text().splitlines()
            added = json.dumps(json.loads(lines[0]) | {"instruction": "something else"})
            (pairs / "pairs.jsonl").write_text("\n".join([added, *lines]) + "\n")
    writer, watched = watch(make_writer(pairs, tmp_path / "cache"))
    writer.run()
    assert watched.images == 2, "one row: its context and its target"
    assert len(ImageEditDataset(str(tmp_path / "cache"))) == (7 if change == "new row" else 6)


@pytest.mark.parametrize(
    "change",
    [
        {"transform": Transform(quantization=16, max_pixels=48 * 48)},
        {"encoder_identity": {"name": "another"}},
        {"dtype": torch.float16},
    ],
)
def test_another_transform_encoder_or_type_encodes_everything(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], change: dict[str, Any]
) -> None:
    make_writer(pairs, tmp_path / "cache").run()
    writer, watched = watch(make_writer(pairs, tmp_path / "cache", **change))
    writer.run()
    assert watched.images == 14


def test_a_payload_that_was_deleted_is_made_again(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], contents: Contents
) -> None:
    make_writer(pairs, tmp_path / "cache").run()
    before = contents(tmp_path / "cache")
    Path(ImageEditDataset(str(tmp_path / "cache")).metadata[3]["cache_file"]).unlink()
    writer, watched = watch(make_writer(pairs, tmp_path / "cache"))
    writer.run()
    assert watched.images == 2
    assert contents(tmp_path / "cache") == before


def test_a_cache_in_use_stays_whole_while_it_is_made_anew(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], change_row: Callable[..., None]
) -> None:
    make_writer(pairs, tmp_path / "cache").run()
    change_row(pairs / "pairs.jsonl", 0, instruction="make it pink")
    writer, _ = watch(make_writer(pairs, tmp_path / "cache"), stop_at=1)
    with pytest.raises(KeyboardInterrupt):
        writer.run()
    dataset = ImageEditDataset(str(tmp_path / "cache"))
    assert [dataset[i]["metadata"]["original_ids"]["instruction"] for i in range(2)] == ["make it red", "make it green"]


@pytest.mark.parametrize("layout", ["image_edit", "t2i"])
def test_a_payload_tells_of_nothing_that_may_change_without_it(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], contents: Contents, layout: str
) -> None:
    writer = make_writer(pairs, tmp_path / "cache", layout=layout)
    file = pairs / writer.layout.lines_file
    writer.run()
    moved = pairs.rename(tmp_path / "moved")
    file = moved / file.name
    first, *others = file.read_text().splitlines(keepends=True)
    file.write_text("\n" + first.replace("red", "pink") + first + "".join(others))
    writer, watched = watch(make_writer(moved, tmp_path / "cache", layout=layout))
    writer.run()
    assert watched.images == (2 if layout == "image_edit" else 1), "the new row alone"
    make_writer(moved, tmp_path / "fresh", layout=layout).run()
    assert contents(tmp_path / "cache") == contents(tmp_path / "fresh")


def test_a_renamed_image_is_encoded_anew_under_its_new_name(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], change_row: Callable[..., None]
) -> None:
    make_writer(pairs, tmp_path / "cache", layout="t2i").run()
    (pairs / "2_2.png").rename(pairs / "renamed.png")
    change_row(pairs / "captions.jsonl", 2, image="renamed.png")
    make_writer(pairs, tmp_path / "cache", layout="t2i").run()
    dataset = TextToImageDataset(str(tmp_path / "cache"))
    assert [dataset[i]["image_path"] for i in (1, 2, 3)] == ["1_1.png", "renamed.png", "3_1.png"]


@pytest.mark.parametrize("spoil", [lambda content: content[:-100], lambda content: b""], ids=["cut short", "emptied"])
def test_a_payload_that_was_cut_short_is_made_again(
    pairs: Path,
    tmp_path: Path,
    make_writer: Callable[..., CacheWriter],
    contents: Contents,
    spoil: Callable[[bytes], bytes],
) -> None:
    make_writer(pairs, tmp_path / "cache").run()
    before = contents(tmp_path / "cache")
    payload = Path(ImageEditDataset(str(tmp_path / "cache")).metadata[3]["cache_file"])
    payload.write_bytes(spoil(payload.read_bytes()))
    writer, watched = watch(make_writer(pairs, tmp_path / "cache"))
    writer.run()
    assert watched.images == 2
    assert contents(tmp_path / "cache") == before


def test_shards_of_an_older_state_are_removed(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], change_row: Callable[..., None]
) -> None:
    for instruction in ("make it pink", "make it grey"):
        change_row(pairs / "pairs.jsonl", 0, instruction=instruction)
        make_writer(pairs, tmp_path / "cache").run()
    shards = json.loads((tmp_path / "cache" / "metadata.json").read_text())["shards"]
    assert sorted(path.name for path in (tmp_path / "cache").glob("metadata_shard_*")) == sorted(shards)


def test_a_manifest_of_another_version_is_refused_with_the_way_out(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "manifest.jsonl").write_text('{"row": 0, "key": "x"}\n')
    with pytest.raises(DataError, match="written by another version of this script: delete the cache, or encode into"):
        make_writer(pairs, tmp_path / "cache").run()
