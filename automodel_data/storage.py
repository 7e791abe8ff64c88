"""Open, list and contain paths: local ones and whatever ``pyarrow.fs`` reaches (s3, gs, hdfs, file)."""

import os
import posixpath
import re
from functools import cache
from pathlib import Path

from pyarrow import fs

from automodel_data.errors import DataError

_URI = re.compile(r"([a-z][a-z0-9+.-]*://[^/]*)(.*)", re.IGNORECASE | re.DOTALL)


def is_uri(path: str) -> bool:
    """Return whether a path starts with a scheme."""
    return _URI.match(path) is not None


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``; an absolute path or a URI stands for itself."""
    return name if is_uri(name) else posixpath.join(directory, name)


def resolve(path: str) -> tuple[fs.FileSystem, str]:
    """Split a path or URI into its filesystem and the path inside it, which is taken as it stands (no %-escapes).

    Raises:
        DataError: the scheme is unknown or its filesystem cannot be reached.
    """
    match = _URI.match(path)
    if match is None:
        return fs.LocalFileSystem(), path
    root, rest = match.groups()
    try:
        filesystem, base = _open_filesystem(root, os.getpid())
    except (OSError, ValueError) as error:
        raise DataError(f"cannot open the filesystem of {path!r}: {error}") from error
    return filesystem, base.rstrip("/") + rest


@cache
def _open_filesystem(root: str, process: int) -> tuple[fs.FileSystem, str]:
    """Open the filesystem of ``scheme://authority`` once in each process: its connections do not survive a fork."""
    return fs.FileSystem.from_uri(f"{root}/")


def read_bytes(path: str) -> bytes:
    """Read a whole file.

    Raises:
        OSError: the file is missing or cannot be read.
    """
    if not is_uri(path):
        return Path(path).read_bytes()
    filesystem, inner = resolve(path)
    with filesystem.open_input_stream(inner) as stream:
        return stream.read()


def list_files(directory: str, suffix: str = "") -> list[str]:
    """Return the paths of the files in ``directory`` (not below it) that end in ``suffix``, sorted by name.

    Raises:
        DataError: there is no such directory.
    """
    filesystem, inner = resolve(directory)
    info = filesystem.get_file_info(inner)
    if info.type != fs.FileType.Directory:
        raise DataError(f"{directory!r} is not a directory; a data_dir is listed for its *{suffix} files")
    entries = filesystem.get_file_info(fs.FileSelector(inner))
    names = sorted(entry.base_name for entry in entries if entry.is_file and entry.base_name.endswith(suffix))
    return [f"{directory.rstrip('/')}/{name}" for name in names]


def contained_path(root: Path, value: str, field: str) -> Path:
    """Resolve ``value`` against ``root`` and refuse whatever lies outside, also through links.

    Args:
        root: Directory that must hold the file.
        value: Absolute path, or one relative to ``root``.
        field: Name of the field that held the path, for the message.

    Raises:
        DataError: the path leaves ``root``.
    """
    base = root.resolve()
    path = (base / value).resolve()
    if not path.is_relative_to(base):
        raise DataError(f"{field}: {value!r} lies outside {base}; files of a cache must lie inside its directory")
    return path
