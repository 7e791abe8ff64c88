"""Parquet files are listed in one order everywhere, and read a few rows at a time, also when they are broken."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.multiprocessing as mp
from pyarrow import fs

from automodel_data.errors import DataError, SkipSample
from automodel_data.multimodal import parquet_utils
from automodel_data.multimodal.parquet_utils import (
    get_parquet_data_paths,
    init_arrow_pf_fs,
    open_parquet,
    read_footers,
    read_parquet_file,
    read_parquet_row,
    read_row_group,
)

# lists ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Return three folders of three, two and one files, written in no order, beside other files."""
    for folder, names in {"x": ["c", "a", "b"], "y": ["e", "d"], "z": ["f"]}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.parquet").touch()
        (tmp_path / folder / "_SUCCESS").touch()
    return [str(tmp_path / folder) for folder in "xyz"]


def names(paths: list[str]) -> str:
    return "".join(Path(path).stem for path in paths)


@pytest.mark.parametrize(
    ("counts", "listed"),
    [([3, 2, 1], "abcdef"), ([2, 1, 1], "abdf"), ([7, 5, 3], "abcabcadededfff"), ([None, 1, None], "abcdf")],
)
def test_each_folder_is_listed_by_name_repeated_whole_and_cut(
    counts: list[int | None], listed: str, folders: list[str]
) -> None:
    assert names(get_parquet_data_paths(folders, counts)) == listed


def test_a_folder_may_be_a_uri(folders: list[str]) -> None:
    paths = get_parquet_data_paths([f"file://{folders[0]}"], [2])
    assert paths == [f"file://{folders[0]}/a.parquet", f"file://{folders[0]}/b.parquet"]
    assert isinstance(init_arrow_pf_fs(paths[0]), fs.LocalFileSystem)


def test_a_folder_that_is_missing_or_empty_is_refused_with_its_name(folders: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty' holds no \*.parquet file"):
        get_parquet_data_paths([str(tmp_path / "empty")], [1])
    with pytest.raises(DataError, match="none' is not a directory"):
        get_parquet_data_paths([str(tmp_path / "none")], [1])
    with pytest.raises(DataError, match="3 data directories but 2 counts; num_used_data needs one each"):
        get_parquet_data_paths(folders, [1, 1])


def list_on_rank(rank: int, folders: list[str], meeting: str, answers: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        answers.put((rank, get_parquet_data_paths(folders, [2, None, 2], rank, 2)))
    except DataError as error:
        answers.put((rank, str(error)))
    torch.distributed.destroy_process_group()


def list_on_two_ranks(folders: list[str], tmp_path: Path) -> dict[int, Any]:
    context = mp.get_context("fork")
    answers = context.SimpleQueue()
    ranks = [
        context.Process(target=list_on_rank, args=(rank, folders, str(tmp_path / "meeting"), answers))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    listed = dict(answers.get() for _ in ranks)
    for process in ranks:
        process.join()
    return listed


def test_two_ranks_list_their_folders_and_both_have_all_paths(folders: list[str], tmp_path: Path) -> None:
    listed = list_on_two_ranks(folders, tmp_path)
    assert names(listed[0]) == names(listed[1]) == "abdeff"


def test_a_folder_that_one_rank_cannot_list_is_refused_on_both(folders: list[str], tmp_path: Path) -> None:
    listed = list_on_two_ranks([*folders[:2], str(tmp_path / "none")], tmp_path)
    assert listed[0] == listed[1]
    assert "none' is not a directory" in listed[0]


def test_footers_tell_row_groups_and_which_files_are_broken(tmp_path: Path) -> None:
    good, broken = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    pq.write_table(pa.table({"n": list(range(10))}), good, row_group_size=4)
    Path(broken).write_bytes(b"PAR1 no more")
    footers = read_footers([good, broken, good, broken])
    assert footers.row_groups == {good: 3}
    (error,) = footers.unreadable
    assert (error.reason, error.detail.partition(": ")[0]) == ("unreadable parquet file", broken)


# rows -------------------------------------------------------------------------------------------------------------


class Losses:
    """Remembers the rows that a reader reports as lost."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def __call__(self, reason: str, where: str, detail: str, count: int) -> None:
        self.seen.append((reason, where, count))


@pytest.fixture
def losses() -> Losses:
    return Losses()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a file of two row groups of 40 rows."""
    path = tmp_path / "a.parquet"
    table = pa.table({"n": list(range(80)), "text": [f"row {number}" for number in range(80)]})
    pq.write_table(table, path, row_group_size=40, compression="zstd")
    return str(path)


@pytest.mark.parametrize("start", [0, 1, 15, 16, 17, 39, 40])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_row_group_is_read_from_any_row_by_its_place(scheme: str, start: int, path: str, losses: Losses) -> None:
    rows = [(row, values["n"]) for row, values in read_row_group(f"{scheme}{path}", 1, start, losses)]
    assert rows == [(row, 40 + row) for row in range(start, 40)]
    assert losses.seen == []


def test_a_row_reads_as_a_mapping_of_its_columns(path: str) -> None:
    row = read_parquet_row(path, 1, 3)
    assert (dict(row), len(row)) == ({"n": 43, "text": "row 43"}, 2)


def test_a_missing_column_is_refused_with_the_file_and_its_columns(path: str) -> None:
    with pytest.raises(DataError, match=rf"{path} has no column 'image'; its columns are \['n', 'text'\]"):
        read_parquet_row(path, 0, 0)["image"]


def test_a_text_that_is_no_utf8_is_skipped_with_its_column(tmp_path: Path) -> None:
    content = pa.array([b"fine", b"\xff\xfe"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, content.buffers())
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    assert read_parquet_row(str(tmp_path / "a.parquet"), 0, 0)["text"] == "fine"
    with pytest.raises(SkipSample, match=r"unreadable value: column 'text': .*utf-8"):
        read_parquet_row(str(tmp_path / "a.parquet"), 0, 1)["text"]


def test_rows_are_counted_by_place_whatever_labels_pandas_wrote(tmp_path: Path, losses: Losses) -> None:
    path = str(tmp_path / "a.parquet")
    table = pa.table({"n": [5, 6, 7], "__index_level_0__": [90, 10, 50]})
    labels = b'{"index_columns": ["__index_level_0__"], "columns": [], "column_indexes": [], "pandas_version": "2.2.0"}'
    pq.write_table(table.replace_schema_metadata({b"pandas": labels}), path)
    assert [(row, values["n"]) for row, values in read_row_group(path, 0, 1, losses)] == [(1, 6), (2, 7)]


def test_a_row_that_is_not_there_is_skipped(path: str, tmp_path: Path) -> None:
    for file, group, row in ((path, 0, 40), (path, 2, 0), (str(tmp_path / "none.parquet"), 0, 0)):
        with pytest.raises(SkipSample, match=r"missing row|unreadable row group"):
            read_parquet_row(file, group, row)


def test_a_missing_file_costs_one_counted_loss(tmp_path: Path, losses: Losses) -> None:
    path = str(tmp_path / "none.parquet")
    assert list(read_row_group(path, 0, 0, losses)) == []
    assert losses.seen == [("unreadable row group", f"{path}, row group 0", 1)]


def break_pages(path: str, group: int, column: int, page: int = 0) -> None:
    """Overwrite a column's pages of a row group from its page of that number on."""
    with open_parquet(path) as file:
        chunk = file.metadata.row_group(group).column(column)
        start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        size = chunk.total_compressed_size
    offset = size * page // 4
    with Path(path).open("r+b") as stream:
        stream.seek(start + offset)
        stream.write(b"\xa5" * (size - offset))


def test_a_row_group_whose_bytes_are_broken_is_counted_with_all_its_rows(path: str, losses: Losses) -> None:
    break_pages(path, 0, 1)
    assert list(read_row_group(path, 0, 0, losses)) == []
    assert list(read_row_group(path, 0, 10, losses)) == []
    assert [count for _, _, count in losses.seen] == [40, 30]
    assert [row for row, _ in read_row_group(path, 1, 0, losses)] == list(range(40))


@pytest.mark.parametrize(("group", "start"), [(0, 0), (0, 39), (1, 5), (1, 40)])
def test_a_file_is_read_to_its_end_from_any_row_and_opened_once(
    group: int, start: int, path: str, losses: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(parquet_utils, "open_parquet", lambda path: (opened.append(path), open_parquet(path))[1])
    rows = [(number, row, values["n"]) for number, row, values in read_parquet_file(path, group, start, losses)]
    assert [value for *_, value in rows] == list(range(40 * group + start, 80))
    assert all(40 * number + row == value for number, row, value in rows)
    assert (opened, losses.seen) == ([path], [])


def test_behind_a_broken_row_group_a_file_goes_on_from_the_next_ones_beginning(path: str, losses: Losses) -> None:
    break_pages(path, 0, 1)
    assert [(group, row) for group, row, _ in read_parquet_file(path, 0, 10, losses)] == [(1, row) for row in range(40)]
    assert losses.seen == [("unreadable row group", f"{path}, row group 0", 30)]


def test_a_row_group_that_breaks_off_is_counted_from_its_first_missing_row(tmp_path: Path, losses: Losses) -> None:
    path = str(tmp_path / "a.parquet")
    texts = [random.Random(row).randbytes(500).hex() for row in range(200)]
    pq.write_table(
        pa.table({"text": texts}),
        path,
        use_dictionary=False,
        compression="zstd",
        data_page_size=10_000,
        write_batch_size=10,
    )
    break_pages(path, 0, 0, page=2)
    read = [row for row, _ in read_row_group(path, 0, 0, losses)]
    assert 0 < len(read) < 200
    assert read == list(range(len(read)))
    assert losses.seen == [("unreadable row group", f"{path}, row group 0", 200 - len(read))]
