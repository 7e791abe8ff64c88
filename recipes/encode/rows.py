"""A row to encode: its images, undecoded, and its text; or a row that is lost, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from automodel_data.errors import SkipSample
from automodel_data.storage import is_uri, read_bytes
from recipes.encode.hashing import hash_bytes


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
class Lost:
    """A row that cannot be encoded: counted under ``reason``. Its ``key`` is known where it could be read."""

    row: int
    where: str
    reason: str
    detail: str
    key: str | None = None

    @classmethod
    def of(cls, raw: RawRow, skip: SkipSample, key: str | None = None) -> "Lost":
        """Say that ``raw`` is lost for the reason that ``skip`` gives."""
        return cls(row=raw.number, where=raw.where, reason=skip.reason, detail=skip.detail, key=key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """An image file.

    ``name`` is the file's as the row gives it, or follows from its content, so that it does not change when rows are
    added before it; ``where`` names the row too, for messages.
    """

    content: bytes = field(repr=False)
    digest: str
    name: str
    where: str

    @classmethod
    def of(cls, content: bytes, where: str, name: str | None = None) -> "Picture":
        """Hash the content."""
        digest = hash_bytes(content)
        return cls(content=content, digest=digest, name=name or f"sha256:{digest}", where=where)


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
            return Picture.of(value, column)
        case {"bytes": bytes(content)} if content:
            path = value.get("path")
            return Picture.of(content, f"{column}: {path!r}", path if isinstance(path, str) else None)
        case str(name) | {"path": str(name)} if name:
            return Picture.of(_read_file(row, name), f"{column}: {name!r}", name)
    raise SkipSample("missing image", f"{column} is {value!r:.60}, not a file name or a file's bytes")


def _read_file(row: RawRow, name: str) -> bytes:
    path = name if name.startswith("/") or is_uri(name) else f"{row.folder}/{name}"
    try:
        return read_bytes(path)
    except FileNotFoundError as error:
        raise SkipSample("missing image", f"{path!r}: no such file") from error
    except (OSError, ValueError) as error:  # ValueError: no name of a file, or of a filesystem that there is
        raise SkipSample("unreadable image", f"{path!r}: {error}") from error


def read_text(row: RawRow, column: str) -> str:
    """Return a text that must not be blank; it is never made up.

    Raises:
        SkipSample: it is missing, blank, no text, or no Unicode.
    """
    value = row.values.get(column)
    if not isinstance(value, str) or not value.strip():
        raise SkipSample(f"missing {column}", f"{column} is {value!r:.60}")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can hold
        raise SkipSample(f"broken {column}", f"{column} is {value!r:.60}: {error.reason}") from error
    return value.strip()
