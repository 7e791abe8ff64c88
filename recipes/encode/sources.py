"""Read rows from a folder with JSON lines, or from parquet files, a block of rows at a time."""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

from pyarrow import fs

from automodel_data.errors import DataError
from automodel_data.multimodal.parquet_utils import UNREADABLE, open_parquet, read_row_group
from automodel_data.storage import list_files, read_bytes, resolve
from recipes.encode.rows import Lost, RawRow

_BLOCKS_PER_READER = 8  # enough that readers end at about the same time, however much there is to do for each row


class Source(Protocol):
    """A fixed number of rows, numbered from 0."""

    def __len__(self) -> int: ...

    def blocks(self, readers: int) -> list[range]:
        """Return all rows as ranges, in order, which so many readers may take in turn."""
        ...

    def rows(self, block: range) -> Iterator[RawRow | Lost]:
        """Yield the rows of a range, in order, also those that cannot be read."""
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
    folder = path.rstrip("/") or "/"
    _require_folder(folder, lines_file)
    lines = f"{folder}/{lines_file}"
    if lines in list_files(folder, ".jsonl"):
        return LinesSource(folder=folder, path=lines, lines=_read_lines(lines))
    files = list_files(folder, ".parquet")
    if not files:
        raise DataError(f"source ({path}) holds neither {lines_file} nor *.parquet files")
    return ParquetSource.open(files, columns)


def _require_folder(folder: str, lines_file: str) -> None:
    filesystem, inner = resolve(folder)
    match filesystem.get_file_info(inner).type:
        case fs.FileType.Directory:
            return
        case fs.FileType.NotFound:
            hint = "; scripts/make_demo_data.py makes data/demo" if folder.startswith("data/demo") else ""
            raise DataError(f"source ({folder}): no such folder{hint}")
    raise DataError(f"source ({folder}) is a file: name the folder that holds {lines_file}, or a .parquet file")


def _read_lines(path: str) -> list[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers from 1."""
    return [(number, line) for number, line in enumerate(read_bytes(path).splitlines(), 1) if line.strip()]


def _cut(rows: range, longest: int) -> list[range]:
    return [rows[start : start + longest] for start in range(0, len(rows), longest)]


def _longest(rows: int, readers: int) -> int:
    """Return how many rows a block may have; a single reader has no use for small ones."""
    return max(1, rows if readers == 1 else rows // (readers * _BLOCKS_PER_READER))


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesSource:
    """JSON objects, one a line."""

    folder: str
    path: str
    lines: list[tuple[int, bytes]]

    def __len__(self) -> int:
        return len(self.lines)

    def blocks(self, readers: int) -> list[range]:
        """Return short ranges; reading a line costs nothing."""
        return _cut(range(len(self)), _longest(len(self), readers))

    def rows(self, block: range) -> Iterator[RawRow | Lost]:
        """Yield the rows of a range; a line that is no JSON object is lost."""
        for row in block:
            number, line = self.lines[row]
            where = f"{self.path}:{number}"
            values = _parse(line)
            if values is None:
                yield Lost(row=row, where=where, reason="no JSON object", detail=f"{line!r:.60}")
            else:
                yield RawRow(number=row, where=where, folder=self.folder, values=values)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, or nested beyond measure
        return None
    return values if isinstance(values, dict) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowGroup:
    """A row group of a parquet file; ``first`` counts the file's rows before it."""

    file: str
    number: int
    first: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetSource:
    """Rows of parquet files, whose footers tell how many there are."""

    columns: Sequence[str]
    groups: list[RowGroup]
    starts: list[int]  # the number of each group's first row, and at last that of all rows

    @classmethod
    def open(cls, files: Sequence[str], columns: Sequence[str]) -> "ParquetSource":
        """Read the footers.

        Raises:
            DataError: a file is no parquet, or lacks a column.
        """
        groups = [group for file in files for group in _read_footer(file, columns)]
        starts = list(accumulate((group.rows for group in groups), initial=0))
        return cls(columns=columns, groups=groups, starts=starts)

    def __len__(self) -> int:
        return self.starts[-1]

    def blocks(self, readers: int) -> list[range]:
        """Return row groups, which are read as a whole, or parts of them where they are too few for the readers."""
        longest = _longest(len(self), readers)
        return [block for start, stop in pairwise(self.starts) for block in _cut(range(start, stop), longest)]

    def rows(self, block: range) -> Iterator[RawRow | Lost]:
        """Yield the rows of a block; those of a row group that cannot be read are lost."""
        place = bisect_right(self.starts, block.start) - 1
        group, start = self.groups[place], self.starts[place]
        folder = group.file.rpartition("/")[0] or "."
        failures: list[str] = []

        def lose(reason: str, where: str, detail: str, count: int) -> None:
            failures.append(f"{where}, {detail}")

        following = block.start
        for row, values in read_row_group(group.file, group.number, block.start - start, lose, self.columns):
            if following == block.stop:
                return
            where = f"{group.file}:{group.first + row}"
            yield RawRow(number=following, where=where, folder=folder, values=values)
            following += 1
        for row in range(following, block.stop):
            where = f"{group.file}:{group.first + row - start}"
            yield Lost(row=row, where=where, reason="unreadable row group", detail="; ".join(failures))


def _read_footer(file: str, columns: Sequence[str]) -> list[RowGroup]:
    try:
        with open_parquet(file) as parquet:
            names = parquet.schema_arrow.names
            sizes = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
    except FileNotFoundError as error:
        raise DataError(f"source ({file}): no such file") from error
    except UNREADABLE as error:
        raise DataError(f"{file}: cannot be read as parquet: {error}") from error
    missing = [column for column in columns if column not in names]
    if missing:
        raise DataError(f"{file}: has no column {', '.join(missing)}, only {', '.join(names)}")
    firsts = accumulate(sizes, initial=0)
    return [
        RowGroup(file=file, number=number, first=first, rows=rows)
        for number, (first, rows) in enumerate(zip(firsts, sizes, strict=False))
    ]
