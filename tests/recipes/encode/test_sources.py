import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from automodel_data.errors import DataError, SkipSample
from recipes.encode.layouts import ImageEditLayout, TextToImageLayout
from recipes.encode.rows import RawRow
from recipes.encode.sources import open_source


def raw(folder: Path, **values: Any) -> RawRow:
    return RawRow(number=0, where="rows:1", folder=str(folder), values=values)


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Write three files of 5, 0 and 4 captions in row groups of two."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    number = 0
    for name, count in (("a", 5), ("b", 0), ("c", 4)):
        rows = [{"caption": f"caption {number + i}", "image": b"x", "more": i} for i in range(count)]
        schema = pa.schema([("caption", pa.string()), ("image", pa.binary()), ("more", pa.int64())])
        pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet", row_group_size=2)
        number += count
    return folder


def test_a_folder_of_lines_gives_its_rows_with_their_places(pairs: Path) -> None:
    source = open_source(str(pairs), "captions.jsonl", ("image", "caption"))
    rows = list(source.rows(0, len(source)))
    assert [row.number for row in rows] == list(range(6))
    assert rows[2].values == {"image": "2_2.png", "caption": "a blue picture"}
    assert rows[2].where == f"{pairs}/captions.jsonl:3"


@pytest.mark.parametrize("broken", ["{", "[1]", "7"])
def test_a_line_that_is_no_object_is_a_row_without_values(tmp_path: Path, broken: str) -> None:
    (tmp_path / "captions.jsonl").write_text(f"{broken}\n" + json.dumps({"image": "a", "caption": "b"}) + "\n\n")
    source = open_source(str(tmp_path), "captions.jsonl", ())
    assert [row.values for row in source.rows(0, 9)] == [{}, {"image": "a", "caption": "b"}]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 9])
def test_ranges_of_parquet_files_together_give_every_row_once(parquet: Path, ranks: int) -> None:
    source = open_source(str(parquet), "captions.jsonl", ("image", "caption"))
    assert len(source) == 9
    ends = [9 * rank // ranks for rank in range(ranks + 1)]
    rows = [row for start, stop in pairwise(ends) for row in source.rows(start, stop)]
    assert [row.number for row in rows] == list(range(9))
    assert [row.values["caption"] for row in rows] == [f"caption {i}" for i in range(9)]
    assert rows[5].where == f"{parquet}/c.parquet:0"
    assert set(rows[0].values) == {"image", "caption"}, "columns that nobody needs are not read"


def test_one_parquet_file_is_a_source(parquet: Path) -> None:
    assert len(open_source(str(parquet / "c.parquet"), "captions.jsonl", ("caption",))) == 4


def test_a_folder_with_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds neither pairs.jsonl nor \*.parquet"):
        open_source(str(tmp_path), "pairs.jsonl", ())
    with pytest.raises(DataError, match="nowhere' is not a directory"):
        open_source(str(tmp_path / "nowhere"), "pairs.jsonl", ())


def test_a_parquet_file_without_a_column_is_refused(parquet: Path) -> None:
    with pytest.raises(DataError, match=r"a.parquet: has no column target, only caption, image, more"):
        open_source(str(parquet), "pairs.jsonl", ("caption", "target"))
    (parquet / "a.parquet").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"a.parquet: cannot be read as parquet"):
        open_source(str(parquet), "pairs.jsonl", ())


def test_an_image_is_a_file_name_or_bytes_or_both(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"file")
    forms = ["x.png", str(tmp_path / "x.png"), {"path": "x.png", "bytes": None}, b"bytes", {"bytes": b"bytes"}]
    parsed = [TextToImageLayout().parse(raw(tmp_path, image=form, caption="c")).target for form in forms]
    assert [picture.content for picture in parsed] == [b"file"] * 3 + [b"bytes"] * 2
    assert [picture.name for picture in parsed] == ["x.png", str(tmp_path / "x.png"), "x.png", *["rows:1:image"] * 2]


@pytest.mark.parametrize("caption", [None, "", "  \n", 7])
def test_a_missing_caption_is_a_loss_and_never_made_up(tmp_path: Path, caption: Any) -> None:
    with pytest.raises(SkipSample, match="missing caption: rows:1: caption is"):
        TextToImageLayout().parse(raw(tmp_path, image=b"x", caption=caption))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"contexts": None}, "missing context"),
        ({"contexts": []}, "missing context"),
        ({"contexts": [b"x", None]}, "missing image"),
        ({"contexts": ["gone.png"]}, "missing image"),
        ({"target": ""}, "missing image"),
        ({"target": "."}, "unreadable image"),
        ({"instruction": " "}, "missing instruction"),
    ],
)
def test_a_pair_that_lacks_a_part_is_a_loss_under_its_reason(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    whole = {"contexts": [b"x"], "instruction": "do it", "target": b"y"}
    with pytest.raises(SkipSample) as caught:
        ImageEditLayout().parse(raw(tmp_path, **(whole | fields)))
    assert caught.value.reason == reason
