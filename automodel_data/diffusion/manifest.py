"""Read the metadata of a cache: ``metadata.json`` names shards, a shard is a JSON list of items."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from automodel_data.errors import DataError
from automodel_data.storage import contained_path

METADATA = "metadata.json"


def read_manifest(cache_dir: Path) -> dict[str, object]:
    """Read ``metadata.json``.

    Raises:
        DataError: it is missing, no JSON, or has no list of shard names.
    """
    path = cache_dir / METADATA
    if not path.exists():
        raise DataError(f"{cache_dir} is no finished cache, it has no {METADATA}; {_where_to_look(cache_dir)}")
    manifest = _read_json(path)
    if not isinstance(manifest, dict):
        raise DataError(f'{path}: must be a mapping {{"shards": [...]}}, got a {type(manifest).__name__}')
    shards = manifest.get("shards")
    if not isinstance(shards, list) or not shards or not all(isinstance(name, str) and name for name in shards):
        raise DataError(f"{path}: shards must be a list of at least one file name, got {shards!r}")
    return manifest


def _where_to_look(cache_dir: Path) -> str:
    near = [folder for folder in (cache_dir.parent, *sorted(cache_dir.glob("*/"))) if (folder / METADATA).exists()]
    if near:
        return f"{', '.join(map(str, near))} has one"
    return "scripts/encode_cache.py makes caches, and writes this file when all is encoded"


def iter_items(cache_dir: Path, manifest: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every item of every shard with the words that name its place.

    Raises:
        DataError: a shard is missing, lies outside the cache, or is not a list of mappings.
    """
    shards = manifest["shards"]
    assert isinstance(shards, list)
    for number, name in enumerate(shards):
        shard = contained_path(cache_dir, name, f"{cache_dir / METADATA}: shards[{number}]")
        items = _read_json(shard)
        if not isinstance(items, list):
            raise DataError(f"{shard}: must be a list of items, got a {type(items).__name__}")
        for i, item in enumerate(items):
            if not isinstance(item, dict):
                raise DataError(f"{shard}: item {i} must be a mapping, got {item!r}")
            yield f"{shard}: item {i}", item


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # no JSON, or bytes that are no text
        raise DataError(f"{path}: is not JSON: {error}") from error
