"""JSONL files by line, memory-mapped: an index of offsets instead of the lines themselves."""

import mmap
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import overload

import numpy as np

from automodel_data.errors import DataError
from automodel_data.storage import is_uri, read_bytes

_SORT_PREFIX = 64  # bytes; lines that agree so far are compared whole
_SCANNED_AT_ONCE = 2**26  # bytes


class JsonlFile:
    """The lines of one file, as bytes, read where they lie.

    Raises:
        DataError: the file is missing or empty.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._open()
        self._offsets = _line_starts(np.frombuffer(self._bytes, dtype=np.uint8))

    def _open(self) -> None:
        self._bytes: mmap.mmap | bytes
        try:
            if is_uri(self.path):
                self._bytes = read_bytes(self.path)
            else:
                with Path(self.path).open("rb") as file:
                    self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise DataError(f"cannot read the JSONL file {self.path!r}: {error}") from error

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self._bytes)

    def line(self, number: int) -> bytes:
        """Return a line without its end."""
        return self._bytes[self._offsets[number] : self._offsets[number + 1]].rstrip(b"\r\n")

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_offsets": self._offsets}

    def __setstate__(self, state: dict) -> None:
        self.path, self._offsets = state["path"], state["_offsets"]
        self._open()


def _line_starts(content: np.ndarray) -> np.ndarray:
    """Return where each line starts, and where the last one ends, int64."""
    behind_newlines = [
        np.flatnonzero(content[start : start + _SCANNED_AT_ONCE] == ord("\n")) + start + 1
        for start in range(0, len(content), _SCANNED_AT_ONCE)
    ]
    starts = np.concatenate([[0], *behind_newlines]).astype(np.int64)
    return starts if starts[-1] == len(content) else np.append(starts, len(content))


@dataclass(frozen=True, eq=False, slots=True)
class JsonlLines(Sequence[tuple[str, str]]):
    """A selection of lines, in some order, as ``(line, image directory)``; a slice shares the files.

    ``entries`` is int64 [N, 2]: the file's number, and the line's number in it.
    """

    files: tuple[JsonlFile, ...]
    image_dirs: tuple[str, ...]
    entries: np.ndarray

    @classmethod
    def take(
        cls,
        paths: Sequence[str],
        image_dirs: Sequence[str],
        counts: Sequence[int | None],
        shuffle_seed: int | None,
    ) -> "JsonlLines":
        """Take the first ``counts[i]`` lines of each file (None: all), of its shuffled lines where a seed is given."""
        files = tuple(JsonlFile(path) for path in paths)
        parts = []
        for number, (file, count) in enumerate(zip(files, counts, strict=True)):
            order = array("q", range(len(file)))
            if shuffle_seed is not None:
                random.Random(shuffle_seed).shuffle(order)
            lines = np.frombuffer(order, dtype=np.int64)[:count]
            parts.append(np.column_stack([np.full_like(lines, number), lines]))
        return cls(files, tuple(image_dirs), np.concatenate(parts))

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> "JsonlLines": ...
    def __getitem__(self, index: int | slice) -> "tuple[str, str] | JsonlLines":
        if isinstance(index, slice):
            return JsonlLines(self.files, self.image_dirs, self.entries[index])
        file, _ = self.entries[index]
        return self._line(index).decode("utf-8", errors="replace"), self.image_dirs[file]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return (self[index] for index in range(len(self)))

    def where(self, index: int) -> str:
        """Name a line's file and number."""
        file, line = self.entries[index]
        return f"{self.files[file].path}:{line + 1}"

    def reordered(self, order: Sequence[int]) -> "JsonlLines":
        """Return the same lines in another order."""
        return JsonlLines(self.files, self.image_dirs, self.entries[np.asarray(order, dtype=np.int64)])

    def sorted_order(self) -> "array[int]":
        """Return the indexes that sort by line, then image directory, without holding all lines at once."""

        def whole(index: int) -> tuple[bytes, str]:
            return self._line(index), self.image_dirs[self.entries[index, 0]]

        prefixes = np.fromiter(map(self._line, range(len(self))), dtype=f"S{_SORT_PREFIX}", count=len(self))
        order = np.argsort(prefixes, kind="stable")
        prefixes = prefixes[order]
        bounds = np.flatnonzero(np.concatenate([[True], prefixes[1:] != prefixes[:-1], [True]]))
        for start, stop in pairwise(bounds):
            if stop - start > 1:
                order[start:stop] = sorted(order[start:stop], key=whole)
        return array("q", order.astype(np.int64).tobytes())

    def digest(self) -> str:
        """Return a digest of the files' names and sizes, and of the order of their lines."""
        digest = blake2b(self.entries.tobytes(), digest_size=8)
        for file in self.files:
            digest.update(f"{file.path.rpartition('/')[2]}\0{file.size}\0".encode())
        return digest.hexdigest()

    def _line(self, index: int) -> bytes:
        file, line = self.entries[index]
        return self.files[file].line(line)
