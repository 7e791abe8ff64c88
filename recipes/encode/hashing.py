"""Hashes: of bytes, of plain values, and of a folder of weights."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LENGTH = 32  # hexadecimal digits kept: 128 bits


def hash_bytes(content: bytes) -> str:
    """Return the hash of bytes."""
    return hashlib.sha256(content).hexdigest()[:_LENGTH]


def hash_values(values: Mapping[str, Any]) -> str:
    """Return the hash of plain values, whatever the order of their keys."""
    return hash_bytes(json.dumps(values, sort_keys=True).encode())


def hash_folder(path: str) -> str:
    """Return the hash of a file, or of the names and contents of all files below a folder."""
    root = Path(path)
    files = sorted(file for file in root.rglob("*") if file.is_file()) if root.is_dir() else [root]
    names = {str(file.relative_to(root)): _hash_file(file) for file in files}
    return hash_values(names)


def _hash_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
