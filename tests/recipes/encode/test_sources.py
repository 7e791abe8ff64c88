import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from automodel_data.errors import DataError, SkipSample
from recipes.encode.layouts import ImageEditLayout, TextToImageLayout
from recipes.encode.rows import Lost, RawRow
from recipes.encode.sources import Source, open_source


def raw(folder: Path, **values: Any) -> RawRow:
    return RawRow(number=0, where="rows:1", folder=str(folder), values=values)


def read(source: Source) -> list[Any]:
    return [row for block in source.blocks(1) for row in source.rows(block)]


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
    rows = read(source)
    assert [row.number for row in rows] == list(range(6))
    assert rows[2].values == {"image": "2_2.png", "caption": "a blue picture"}
    assert rows[2].where == f"{pairs}/captions.jsonl:3"


@pytest.mark.parametrize("broken", [b"{", b"[1]", b"7", b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_object_is_lost_with_its_place(tmp_path: Path, broken: bytes) -> None:
    row_line = json.dumps({"image": "a", "caption": "b"}).encode()
    (tmp_path / "captions.jsonl").write_bytes(b"\n" + broken + b"\n\n" + row_line + b"\n\n")
    source = open_source(str(tmp_path), "captions.jsonl", ())
    lost, row = read(source)
    assert isinstance(lost, Lost)
    assert (lost.reason, lost.where) == ("no JSON object", f"{tmp_path}/captions.jsonl:2")
    assert isinstance(row, RawRow)
    assert row.values == {"image": "a", "caption": "b"}
    assert row.where == f"{tmp_path}/captions.jsonl:4", "blank lines are counted, as an editor counts them"


@pytest.mark.parametrize("readers", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("kind", ["parquet", "pairs"])
def test_blocks_together_give_every_row_once(kind: str, readers: int, request: pytest.FixtureRequest) -> None:
    source = open_source(str(request.getfixturevalue(kind)), "captions.jsonl", ("image", "caption"))
    rows = [row for block in source.blocks(readers) for row in source.rows(block)]
    assert [row.number for row in rows] == list(range(len(source)))
    assert [row.values["caption"] for row in rows] == [row.values["caption"] for row in read(source)]


def test_parquet_files_give_their_rows_with_their_places(parquet: Path) -> None:
    source = open_source(str(parquet), "captions.jsonl", ("image", "caption"))
    rows = read(source)
    assert [row.values["caption"] for row in rows] == [f"caption {i}" for i in range(9)]
    assert [row.where.rpartition("/")[2] for row in rows] == [
        *(f"a.parquet:{i}" for i in range(5)),
        *(f"c.parquet:{i}" for i in range(4)),
    ]
    assert set(rows[0].values) == {"image", "caption"}, "columns that nobody needs are not read"


def test_a_block_is_a_row_group_unless_they_are_too_few(parquet: Path) -> None:
    source = open_source(str(parquet), "captions.jsonl", ("image", "caption"))
    assert source.blocks(1) == [range(2), range(2, 4), range(4, 5), range(5, 7), range(7, 9)]
    assert source.blocks(2) == [range(i, i + 1) for i in range(9)]


def test_rows_of_a_torn_row_group_are_lost_and_the_next_one_is_read(parquet: Path) -> None:
    file = parquet / "a.parquet"
    source = open_source(str(parquet), "captions.jsonl", ("image", "caption"))
    column = pq.ParquetFile(file).metadata.row_group(1).column(0)
    content = bytearray(file.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    file.write_bytes(content)
    rows = read(source)
    assert [row.number if isinstance(row, RawRow) else row.row for row in rows] == list(range(9))
    lost = [row for row in rows if isinstance(row, Lost)]
    assert [(row.row, row.where, row.reason) for row in lost] == [
        (2, f"{file}:2", "unreadable row group"),
        (3, f"{file}:3", "unreadable row group"),
    ]


def test_a_text_that_is_no_utf8_is_one_lost_row(tmp_path: Path) -> None:
    broken = pa.array([b"fine", b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"caption": broken, "image": [b"x", b"x"]}), tmp_path / "a.parquet")
    first, second = read(open_source(str(tmp_path / "a.parquet"), "captions.jsonl", ("image", "caption")))
    assert TextToImageLayout().parse(first).text == "fine"
    with pytest.raises(SkipSample, match="unreadable value"):
        TextToImageLayout().parse(second)


def test_one_parquet_file_is_a_source(parquet: Path) -> None:
    assert len(open_source(str(parquet / "c.parquet"), "captions.jsonl", ("caption",))) == 4


def test_a_folder_with_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds neither pairs.jsonl nor \*.parquet"):
        open_source(str(tmp_path), "pairs.jsonl", ())
    with pytest.raises(DataError, match=r"source \(.*/nowhere\): no such folder$"):
        open_source(str(tmp_path / "nowhere"), "pairs.jsonl", ())
    with pytest.raises(DataError, match=r"data/demo/nix\): no such folder; scripts/make_demo_data.py makes data/demo"):
        open_source("data/demo/nix", "pairs.jsonl", ())
    (tmp_path / "pairs.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"pairs.jsonl\) is a file: name the folder that holds pairs.jsonl, or a"):
        open_source(str(tmp_path / "pairs.jsonl"), "pairs.jsonl", ())
    with pytest.raises(DataError, match=r"source \(.*/x.parquet\): no such file"):
        open_source(str(tmp_path / "x.parquet"), "pairs.jsonl", ())


def test_a_parquet_file_without_a_column_is_refused(parquet: Path) -> None:
    with pytest.raises(DataError, match=r"a.parquet: has no column target, only caption, image, more"):
        open_source(str(parquet), "pairs.jsonl", ("caption", "target"))
    (parquet / "a.parquet").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"a.parquet: cannot be read as parquet"):
        open_source(str(parquet), "pairs.jsonl", ())


def test_an_image_is_a_file_name_or_bytes_or_both(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"file")
    forms = [
        "x.png",
        str(tmp_path / "x.png"),
        {"path": "x.png", "bytes": None},
        b"bytes",
        {"bytes": b"bytes"},
        {"bytes": b"bytes", "path": "y"},
    ]
    parsed = [TextToImageLayout().parse(raw(tmp_path, image=form, caption="c")).target for form in forms]
    assert [picture.content for picture in parsed] == [b"file"] * 3 + [b"bytes"] * 3
    of_content = f"sha256:{parsed[3].digest}"
    names = ["x.png", str(tmp_path / "x.png"), "x.png", of_content, of_content, "y"]
    assert [picture.name for picture in parsed] == names


@pytest.mark.parametrize("caption", [None, "", "  \n", 7])
def test_a_missing_caption_is_a_loss_and_never_made_up(tmp_path: Path, caption: Any) -> None:
    with pytest.raises(SkipSample, match="missing caption: caption is"):
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
        ({"target": "a\0b.png"}, "unreadable image"),
        ({"target": "half \ud83d.png"}, "unreadable image"),
        ({"target": "https://example.org/x.png"}, "unreadable image"),
        ({"contexts": "a.png"}, "contexts are no list"),
        ({"instruction": "half \ud83d of a pair"}, "broken instruction"),
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
