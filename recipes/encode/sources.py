"""Read rows from a folder with JSON lines, or from parquet files; each rank reads only its own range."""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from automodel_data.errors import DataError
from automodel_data.storage import list_files, read_bytes, resolve
from recipes.encode.rows import RawRow

_ROWS_AT_ONCE = 64


class Source(Protocol):
    """A fixed number of rows, numbered from 0."""

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """Yield the rows of a range, in order."""
        ...


def open_source(path: str, lines_file: str, columns: Sequence[str]) -> Source:
    """Open a folder that holds ``lines_file``, a folder of parquet files, or one parquet file.

    Args:
        path: Local or a URI that ``pyarrow.fs`` opens.
        lines_file: E.g. ``pairs.jsonl``; file names in it start at the folder.
        columns: What is read of parquet files, all of which must have them.

    Raises:
        DataError: there is neither, or a column is missing.
    """
    if path.endswith(".parquet"):
        return ParquetSource.open([path], columns)
    folder = path.rstrip("/")
    lines = f"{folder}/{lines_file}"
    if lines in list_files(folder, ".jsonl"):
        return LinesSource(folder=folder, path=lines, lines=_read_lines(lines))
    files = list_files(folder, ".parquet")
    if not files:
        raise DataError(f"source ({path}) holds neither {lines_file} nor *.parquet files")
    return ParquetSource.open(files, columns)


def _read_lines(path: str) -> list[bytes]:
    return [line for line in read_bytes(path).splitlines() if line.strip()]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesSource:
    """JSON objects, one a line."""

    folder: str
    path: str
    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """Yield the rows of a range; a line that is no JSON object gives a row without values."""
        for number in range(start, min(stop, len(self))):
            where = f"{self.path}:{number + 1}"
            yield RawRow(number=number, where=where, folder=self.folder, values=_parse(self.lines[number]))


def _parse(line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetSource:
    """Rows of parquet files, whose footers tell how many there are."""

    files: list[str]
    columns: list[str]
    ends: list[int]  # rows up to and including each file

    @classmethod
    def open(cls, files: Sequence[str], columns: Sequence[str]) -> "ParquetSource":
        """Read the footers.

        Raises:
            DataError: a file is no parquet, or lacks a column.
        """
        counts = [_count_rows(file, columns) for file in files]
        return cls(files=list(files), columns=list(columns), ends=list(accumulate(counts)))

    def __len__(self) -> int:
        return self.ends[-1]

    def rows(self, start: int, stop: int) -> Iterator[RawRow]:
        """Yield the rows of a range; only the row groups that hold it are read."""
        number = start
        while number < min(stop, len(self)):
            place = bisect_right(self.ends, number)
            first = self.ends[place - 1] if place else 0
            file = self.files[place]
            for i, values in _read_rows(file, self.columns, number - first, stop - first):
                yield RawRow(number=first + i, where=f"{file}:{i}", folder=_parent(file), values=values)
            number = self.ends[place]


def _parent(file: str) -> str:
    return file.rpartition("/")[0] or "."


def _open(file: str) -> pq.ParquetFile:
    filesystem, inner = resolve(file)
    try:
        return pq.ParquetFile(filesystem.open_input_file(inner))
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{file}: cannot be read as parquet: {error}") from error


def _count_rows(file: str, columns: Sequence[str]) -> int:
    with _open(file) as parquet:
        missing = [column for column in columns if column not in parquet.schema_arrow.names]
        if missing:
            raise DataError(f"{file}: has no column {', '.join(missing)}, only {', '.join(parquet.schema_arrow.names)}")
        return parquet.metadata.num_rows


def _read_rows(file: str, columns: list[str], start: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows ``start`` up to ``stop`` of one file with their numbers."""
    with _open(file) as parquet:
        first = 0
        for group in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(group).num_rows
            if first < stop and first + size > start:
                batches = parquet.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns)
                rows = (row for batch in batches for row in batch.to_pylist())
                yield from ((i, row) for i, row in enumerate(rows, first) if start <= i < stop)
            first += size
