"""What a cache holds and what it was made from, and which rows were lost: ``manifest.jsonl`` and ``lost.jsonl``.

A line is one row, as JSON. While a run goes on, each rank appends the lines of its rows to its own journal, each after
its payload was written; the records in a stopped run's journals are taken into the manifest by the next one.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from automodel_data.errors import DataError
from recipes.encode.rows import Lost
from recipes.encode.writer import write_lines

MANIFEST = "manifest.jsonl"
LOST = "lost.jsonl"
JOURNALS = "journal-*.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One row: its key, what the key was made of, the payload's size in bytes, and its item in the cache's metadata."""

    row: int
    where: str
    key: str
    sources: list[str]
    text: str
    transform: str
    encoder: str
    bytes: int
    item: dict[str, Any]


class Journal:
    """Appends rows to this rank's journal; what was appended survives a stop. To be used with ``with``."""

    def __init__(self, cache_dir: Path, rank: int) -> None:
        self._stream: IO[str] = (cache_dir / JOURNALS.replace("*", str(rank))).open("a", encoding="utf-8")

    def append(self, line: Record | Lost) -> None:
        """Write one row through to the file."""
        self._stream.write(json.dumps(asdict(line)) + "\n")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()


def read_manifest(cache_dir: Path) -> list[Record]:
    """Return the records of the last finished or taken-up run; none if there was none.

    Raises:
        DataError: another version has written them.
    """
    path = cache_dir / MANIFEST
    try:
        return [Record(**values) for values in _read(path)]
    except TypeError as error:
        raise DataError(
            f"{path} was written by another version of this script: delete the cache, or encode into another folder"
        ) from error


def read_lost(cache_dir: Path) -> list[Lost]:
    """Return the rows that the last finished run lost."""
    return [Lost(**values) for values in _read(cache_dir / LOST)]


def read_journals(cache_dir: Path) -> tuple[list[Record], list[Lost]]:
    """Return what the run that goes on has written, in the order of rows."""
    lines = [values for path in sorted(cache_dir.glob(JOURNALS)) for values in _read(path)]
    lines.sort(key=lambda values: values["row"])
    records = [Record(**values) for values in lines if "item" in values]
    return records, [Lost(**values) for values in lines if "reason" in values]


def take_up(cache_dir: Path) -> None:
    """Take the records of a stopped run into the manifest; what it lost is tried again."""
    written, _ = read_journals(cache_dir)
    known = {record.key: record for record in (*read_manifest(cache_dir), *written)}
    _replace(cache_dir / MANIFEST, known.values())
    _remove_journals(cache_dir)


def finish(cache_dir: Path, records: Iterable[Record], lost: Iterable[Lost]) -> None:
    """Write a new manifest and the list of lost rows, and remove the journals."""
    _replace(cache_dir / LOST, lost)
    _replace(cache_dir / MANIFEST, records)
    _remove_journals(cache_dir)


def _replace(path: Path, lines: Iterable[Record | Lost]) -> None:
    write_lines(path, map(asdict, lines))


def _remove_journals(cache_dir: Path) -> None:
    for path in cache_dir.glob(JOURNALS):
        path.unlink()


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines; the last line of a journal may be torn."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)
