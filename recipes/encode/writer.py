"""Write files that are whole or not there: under a temporary name first, then renamed."""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch

_TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.tmp")


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it; several processes may write one path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as stream:
            write(stream)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def half_written(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that a stopped process left under their temporary names."""
    return (path for path in folder.glob("*.tmp") if _TEMPORARY.fullmatch(path.name))


def write_payload(path: Path, payload: Mapping[str, Any]) -> int:
    """Write a mapping of tensors and plain values, as ``torch.load(weights_only=True)`` reads it; return its size."""
    write_atomically(path, lambda stream: torch.save(payload, stream))
    return path.stat().st_size


def write_json(path: Path, value: Any) -> None:
    """Write plain values as JSON."""
    write_atomically(path, lambda stream: stream.write(json.dumps(value, indent=1).encode()))


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write plain values as JSON, one a line."""
    write_atomically(path, lambda stream: stream.writelines(f"{json.dumps(value)}\n".encode() for value in values))
