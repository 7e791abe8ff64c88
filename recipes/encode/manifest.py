"""What a cache holds and what it was made from: ``manifest.jsonl``, and the journals of a run that goes on.

A record is one line of JSON for one row. While a run goes on, each rank appends the records of its rows to its own
journal, each after its payload was written; a stopped run's journals are taken into the manifest by the next one.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from recipes.encode.writer import write_lines

MANIFEST = "manifest.jsonl"
JOURNALS = "journal-*.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One row: its key, the hashes the key was made of, and its item in the cache's metadata."""

    row: int
    where: str
    key: str
    sources: list[str]
    text: str
    transform: str
    encoder: str
    item: dict[str, Any]


class Journal:
    """Appends records to this rank's journal; what was appended survives a stop. To be used with ``with``."""

    def __init__(self, cache_dir: Path, rank: int) -> None:
        cache_dir.mkdir(parents=True, exist_ok=True)
        self._stream: IO[str] = (cache_dir / JOURNALS.replace("*", str(rank))).open("a", encoding="utf-8")

    def append(self, record: Record) -> None:
        """Write one record through to the file."""
        self._stream.write(json.dumps(asdict(record)) + "\n")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()


def read_manifest(cache_dir: Path) -> list[Record]:
    """Return the records of the last finished or taken-up run; none if there was none."""
    return list(_read(cache_dir / MANIFEST))


def read_journals(cache_dir: Path) -> list[Record]:
    """Return the records of the run that goes on, in the order of their rows."""
    records = [record for path in sorted(cache_dir.glob(JOURNALS)) for record in _read(path)]
    return sorted(records, key=lambda record: record.row)


def take_up(cache_dir: Path) -> None:
    """Take the journals of a stopped run into the manifest."""
    known = {record.key: record for record in (*read_manifest(cache_dir), *read_journals(cache_dir))}
    replace(cache_dir, known.values())


def replace(cache_dir: Path, records: Iterable[Record]) -> None:
    """Write a new manifest and remove the journals, whose records it has."""
    write_lines(cache_dir / MANIFEST, map(asdict, records))
    for path in cache_dir.glob(JOURNALS):
        path.unlink()


def _read(path: Path) -> Iterator[Record]:
    """Yield the whole lines; the last line of a journal may be torn."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield Record(**json.loads(line))
