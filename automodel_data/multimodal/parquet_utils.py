"""Parquet files as a list of paths, and their rows read a few at a time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from automodel_data.errors import DataError, SkipSample
from automodel_data.storage import list_files, resolve

_ROWS_AT_ONCE = 16  # bounds memory: a row may hold megabytes of images
_FOOTERS_AT_ONCE = 16

LoseRows = Callable[[str, str, str, int], None]
"""Takes a reason, a place, a detail and how many rows are lost."""

UNREADABLE = (OSError, pa.ArrowException)
"""What reading a broken or missing parquet file raises."""


def get_parquet_data_paths(
    data_dir_list: Sequence[str], num_sampled_data_paths: Sequence[int | None], rank: int = 0, world_size: int = 1
) -> list[str]:
    """List each directory's ``*.parquet`` in name order, repeated whole and cut at its count (None: once).

    With ``world_size > 1`` every rank lists its share of the directories and all ranks gather all paths; this needs
    an initialised process group.

    Raises:
        DataError: a directory is missing or holds no parquet file, or the counts do not match the directories.
    """
    if len(data_dir_list) != len(num_sampled_data_paths):
        raise DataError(
            f"{len(data_dir_list)} data directories but {len(num_sampled_data_paths)} counts; "
            "num_used_data needs one each"
        )
    wanted = list(zip(data_dir_list, num_sampled_data_paths, strict=True))
    if world_size == 1:
        return _list_parquet(wanted)
    import torch.distributed as dist  # only this documented collective needs it

    chunk = math.ceil(len(wanted) / world_size)
    gathered: list[list[str] | DataError] = [[] for _ in range(world_size)]
    dist.all_gather_object(gathered, _try_to_list_parquet(wanted[rank * chunk : (rank + 1) * chunk]))
    paths: list[str] = []
    for found in gathered:
        if isinstance(found, DataError):  # on every rank alike, or the others would wait for the one that failed
            raise found
        paths += found
    return paths


def _try_to_list_parquet(wanted: Sequence[tuple[str, int | None]]) -> list[str] | DataError:
    try:
        return _list_parquet(wanted)
    except DataError as error:
        return error


def _list_parquet(wanted: Sequence[tuple[str, int | None]]) -> list[str]:
    paths: list[str] = []
    for directory, count in wanted:
        files = list_files(directory, ".parquet")
        if not files:
            raise DataError(f"{directory!r} holds no *.parquet file")
        count = len(files) if count is None else count
        paths += (files * math.ceil(count / len(files)))[:count]
    return paths


def init_arrow_pf_fs(parquet_file_path: str) -> fs.FileSystem:
    """Return the filesystem that holds a parquet file."""
    return resolve(parquet_file_path)[0]


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a parquet file anywhere that ``pyarrow.fs`` reaches."""
    filesystem, inner = resolve(path)
    return pq.ParquetFile(inner, filesystem=filesystem)


@dataclass(frozen=True, kw_only=True, slots=True)
class Footers:
    """What the footers of some files say: row groups by path, and what is wrong with files that cannot be read."""

    row_groups: Mapping[str, int]
    unreadable: Sequence[SkipSample]


def read_footers(paths: Sequence[str]) -> Footers:
    """Read the footers of ``paths``, each once."""
    unique = list(dict.fromkeys(paths))
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        found = dict(zip(unique, pool.map(_try_to_count_row_groups, unique), strict=True))
    return Footers(
        row_groups={path: groups for path, groups in found.items() if isinstance(groups, int)},
        unreadable=[error for error in found.values() if isinstance(error, SkipSample)],
    )


def _try_to_count_row_groups(path: str) -> int | SkipSample:
    try:
        with open_parquet(path) as file:
            return file.num_row_groups
    except UNREADABLE as error:
        return _unreadable_file(path, error)


def _unreadable_file(path: str, error: Exception) -> SkipSample:
    return SkipSample("unreadable parquet file", f"{path}: {error}")


class ParquetRow(Mapping[str, Any]):
    """One row of a record batch; a column becomes Python values when it is read."""

    def __init__(self, batch: pa.RecordBatch, row: int, path: str) -> None:
        self._batch = batch
        self._row = row
        self._path = path

    def __getitem__(self, column: str) -> Any:
        index = self._batch.schema.get_field_index(column)
        if index < 0:
            raise DataError(f"{self._path} has no column {column!r}; its columns are {self._batch.schema.names}")
        try:
            return self._batch.column(index)[self._row].as_py()
        except ValueError as error:  # e.g. a string column that holds no UTF-8
            raise SkipSample("unreadable value", f"column {column!r}: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.schema.names)

    def __len__(self) -> int:
        return self._batch.num_columns


def read_parquet_file(path: str, group: int, start: int, lose: LoseRows) -> Iterator[tuple[int, int, ParquetRow]]:
    """Yield ``(row group, row, values)`` of one file, from row ``start`` of row group ``group`` on.

    Where reading fails, what is left of the row group is reported to ``lose``, and the next one starts afresh.

    Raises:
        SkipSample: the file cannot be opened.
    """
    try:
        file = open_parquet(path)
    except UNREADABLE as error:
        raise _unreadable_file(path, error) from error
    with file:
        for number in range(group, file.num_row_groups):
            for row, values in _rows_or_losses(path, file, number, start if number == group else 0, lose):
                yield number, row, values


def read_row_group(
    path: str, group: int, start: int, lose: LoseRows, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, ParquetRow]]:
    """Yield ``(row, values)`` of one row group from row ``start``; see ``read_parquet_file``.

    Args:
        columns: Read these alone.
    """
    try:
        file = open_parquet(path)
    except UNREADABLE as error:
        lose("unreadable row group", f"{path}, row group {group}", f"from row {start}: {error}", 1)
        return
    with file:
        yield from _rows_or_losses(path, file, group, start, lose, columns)


def _rows_or_losses(
    path: str,
    file: pq.ParquetFile,
    group: int,
    start: int,
    lose: LoseRows,
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[int, ParquetRow]]:
    following, size = start, file.metadata.row_group(group).num_rows
    try:
        for row, values in _rows(path, file, group, start, columns):
            yield row, values
            following = row + 1
    except UNREADABLE as error:
        lose("unreadable row group", f"{path}, row group {group}", f"from row {following}: {error}", size - following)


def _rows(
    path: str, file: pq.ParquetFile, group: int, start: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, ParquetRow]]:
    first = 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False):
        for row in range(max(start - first, 0), batch.num_rows):
            yield first + row, ParquetRow(batch, row, path)
        first += batch.num_rows


def read_parquet_row(path: str, group: int, row: int) -> ParquetRow:
    """Read one row.

    Raises:
        SkipSample: the file or the row is not there any more.
    """
    try:
        with open_parquet(path) as file:
            if group < file.num_row_groups:
                for _, values in _rows(path, file, group, row):
                    return values
    except UNREADABLE as error:
        raise SkipSample("unreadable row group", f"{path}, row group {group}: {error}") from error
    raise SkipSample("missing row", f"{path} has no row {row} in row group {group}")
