"""A row to encode: its images, undecoded, and its text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from automodel_data.errors import SkipSample
from automodel_data.storage import read_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class RawRow:
    """One row as its source holds it.

    ``number`` counts the rows of the whole source; ``where`` names file and row; file names start at ``folder``.
    """

    number: int
    where: str
    folder: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """An image file's bytes and its name."""

    content: bytes = field(repr=False)
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What is encoded: the target, the images it is made from (none for text-to-image), and the text."""

    contexts: tuple[Picture, ...]
    target: Picture
    text: str


def read_picture(row: RawRow, value: object, column: str) -> Picture:
    """Return an image given as bytes, as a file name, or as a mapping of ``bytes`` and ``path``.

    Raises:
        SkipSample: there is no image, or its file cannot be read.
    """
    match value:
        case bytes() if value:
            return Picture(content=value, name=f"{row.where}:{column}")
        case {"bytes": bytes(content)} if content:
            return Picture(content=content, name=str(value.get("path") or f"{row.where}:{column}"))
        case str(name) | {"path": str(name)} if name:
            return Picture(content=_read_file(row, name), name=name)
    raise SkipSample("missing image", f"{row.where}: {column} is {value!r:.60}, not a file name or a file's bytes")


def _read_file(row: RawRow, name: str) -> bytes:
    path = name if name.startswith("/") or "://" in name else f"{row.folder}/{name}"
    try:
        return read_bytes(path)
    except FileNotFoundError as error:
        raise SkipSample("missing image", f"{row.where}: {path}") from error
    except OSError as error:
        raise SkipSample("unreadable image", f"{row.where}: {path}: {error}") from error


def read_text(row: RawRow, column: str, reason: str) -> str:
    """Return a text that must not be blank; it is never made up.

    Raises:
        SkipSample: it is missing, blank, or no text; counted under ``reason``.
    """
    value = row.values.get(column)
    if not isinstance(value, str) or not value.strip():
        raise SkipSample(reason, f"{row.where}: {column} is {value!r:.60}")
    return value.strip()
