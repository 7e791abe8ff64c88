"""Encode all rows of a source into a cache: ranks take blocks of rows in turn, then rank 0 writes the metadata."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from automodel_data.diffusion.manifest import METADATA
from automodel_data.errors import DataError, DropLedger, SkipSample
from recipes.bars import Bar
from recipes.distributed import World
from recipes.encode import manifest
from recipes.encode.encoders.base import EncodedText, Encoder
from recipes.encode.hashing import hash_values
from recipes.encode.layouts import Encoded, Layout
from recipes.encode.manifest import Journal, Record
from recipes.encode.prepare import Hashed, Hasher, Prepared, Preparer, map_ahead
from recipes.encode.rows import Lost
from recipes.encode.sources import Source
from recipes.encode.transform import Transform
from recipes.encode.writer import half_written, write_json, write_payload

log = logging.getLogger(__name__)

_SAMPLES = "samples"
SHARDS = "metadata_shard_{}_{}.json"
_AHEAD_PER_THREAD = 4  # rows
_KEY = re.compile("[0-9a-f]{32}")

Known = dict[str, Record]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheWriter:
    """Everything that encoding needs; ``encoder_identity`` is the encoder's, taken once."""

    cache_dir: Path
    source: Source
    source_name: str
    layout: Layout
    transform: Transform
    encoder: Encoder
    encoder_identity: dict[str, Any]
    dtype: torch.dtype
    threads: int
    items_per_shard: int
    world: World

    def run(self) -> dict[str, int]:
        """Encode what is not there yet, write the metadata, and return how many rows were lost, by reason.

        Raises:
            DataError: not one row could be used.
        """
        if self.world.leads:
            manifest.take_up(self.cache_dir)
            _remove_temporary(self.cache_dir)
        self.world.barrier()
        known = {record.key: record for record in manifest.read_manifest(self.cache_dir)}
        self._encode_rows(known)
        self.world.barrier()
        return self.world.share(self._finish() if self.world.leads else None)

    @property
    def hasher(self) -> Hasher:
        """Return what makes the keys of this cache."""
        return Hasher(
            layout=self.layout,
            transform=self.transform,
            encoder_hash=encoder_hash(self.encoder_identity, self.dtype),
        )

    def _encode_rows(self, known: Known) -> None:
        """Encode the rows that fall to this rank; a row's line is written behind its payload."""
        rows, encoded, ledger = 0, 0, DropLedger()
        bar = Bar(total=len(self.source), what="rows", shown=self.world.leads)
        with Journal(self.cache_dir, self.world.rank) as journal, bar:
            for prepared in self._prepare(known):
                line = self._line(prepared, known)
                journal.append(line)
                rows += 1
                match line:
                    case Lost():
                        ledger.drop(self.source_name, line.reason, line.where, line.detail)
                    case Record():
                        before = known.get(line.key)
                        encoded += before is None or before.item is not line.item
                        known[line.key] = line
                # The rows before it are done too, or in other ranks' hands.
                bar.move_to(line.row + 1, encoded=encoded, lost=ledger.total())
        log.info("rank %d: %d rows, %d encoded now, %d lost", self.world.rank, rows, encoded, ledger.total())

    def _prepare(self, known: Known) -> Iterator[Prepared | Hashed | Lost]:
        preparer = Preparer(hasher=self.hasher, is_done=lambda key: self._is_there(known.get(key)))
        blocks = self.world.deal(self.source.blocks(self.world.size))
        rows = (row for block in blocks for row in self.source.rows(block))
        return map_ahead(preparer, rows, self.threads, self.threads * _AHEAD_PER_THREAD)

    def _is_there(self, record: Record | None) -> bool:
        """Tell whether a record's payload is there, as long as it was written."""
        if record is None:
            return False
        path = self.cache_dir / cache_file(record.key)
        return path.exists() and path.stat().st_size == record.bytes

    def _line(self, prepared: Prepared | Hashed | Lost, known: Known) -> Record | Lost:
        """Return the row's line for the journal; its payload is written before, if it was not there."""
        match prepared:
            case Lost():
                return prepared
            case Hashed():
                return _record_again(prepared, known[prepared.hashes.key])
        hashed = prepared.hashed
        there = known.get(hashed.hashes.key)
        if there is not None and self._is_there(there):  # by now: an equal row was encoded since this was prepared
            return _record_again(hashed, there)
        try:
            return self._encode(prepared)
        except SkipSample as skip:
            return Lost.of(hashed.raw, skip, hashed.hashes.key)

    def _encode(self, prepared: Prepared) -> Record:
        """Encode one row, write its payload, and return its record.

        Raises:
            SkipSample: the encoder gave NaN or infinity, or cannot take the row.
        """
        hashed, target = prepared.hashed, prepared.target
        images = [context.image for context in prepared.contexts]
        encoded = Encoded(
            target=self._stored(self.encoder.encode_image(target.pixels())),
            contexts=[self._stored(self.encoder.encode_image(context.pixels())) for context in prepared.contexts],
            text=self._stored_text(self.encoder.encode_text(hashed.row.text, images)),
        )
        file = cache_file(hashed.hashes.key)
        size = write_payload(self.cache_dir / file, self.layout.payload(hashed.row, target, encoded))
        return _record(hashed, size, self.layout.item(file, target, encoded))

    def _stored_text(self, text: EncodedText) -> EncodedText:
        pooled = None if text.pooled is None else self._stored(text.pooled)
        return EncodedText(embeddings=self._stored(text.embeddings), mask=text.mask, pooled=pooled)

    def _stored(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as the file holds it; what the type cannot hold is a loss as well."""
        stored = tensor.to(self.dtype)
        if not torch.isfinite(stored).all():
            raise SkipSample("encoded to NaN or infinity")
        return stored

    def _finish(self) -> dict[str, int]:
        """Write shards, ``metadata.json`` and the manifest from the journals of all ranks."""
        records, lost = manifest.read_journals(self.cache_dir)
        losses = dict(Counter(row.reason for row in lost))
        if not records:
            raise DataError(f"source ({self.source_name}): not one of {len(self.source)} rows could be used: {losses}")
        shards = self._write_shards([record.item for record in records])
        about = {"layout": self.layout.name, "source": self.source_name, "rows": len(self.source), "lost": losses}
        made_by = {"transform": self.transform.identity(), "encoder": self.encoder_identity, "dtype": str(self.dtype)}
        write_json(self.cache_dir / METADATA, {"shards": shards, **about, **made_by})
        manifest.finish(self.cache_dir, records, lost)
        for path in self.cache_dir.glob(SHARDS.format("*", "*")):
            if path.name not in shards:
                path.unlink()
        return losses

    def _write_shards(self, items: list[dict[str, Any]]) -> list[str]:
        """Write the items; a shard is named by its content, so that the shards of a cache in use stay as they are."""
        names = []
        for start in range(0, len(items), self.items_per_shard):
            shard = items[start : start + self.items_per_shard]
            names.append(SHARDS.format(f"{len(names):04d}", hash_values({"items": shard})[:8]))
            write_json(self.cache_dir / names[-1], shard)
        return names


def _record(hashed: Hashed, size: int, item: dict[str, Any]) -> Record:
    return Record(row=hashed.raw.number, where=hashed.raw.where, bytes=size, item=item, **asdict(hashed.hashes))


def _record_again(hashed: Hashed, there: Record) -> Record:
    return _record(hashed, there.bytes, there.item)


def encoder_hash(identity: Mapping[str, Any], dtype: torch.dtype) -> str:
    """Return what stands in a key for the encoder and for how its output is stored."""
    return hash_values({**identity, "stored_as": str(dtype)})


def cache_file(key: str) -> str:
    """Return the payload file of a key, relative to the cache; spread over 256 folders."""
    return f"{_SAMPLES}/{key[:2]}/{key}.pt"


def payload_files(cache_dir: Path) -> Iterator[Path]:
    """Yield the files that are named as payloads are; what else lies in the folder is not the cache's."""
    files = cache_dir.glob(cache_file("*"))
    return (path for path in files if _KEY.fullmatch(path.stem) and path == cache_dir / cache_file(path.stem))


def _remove_temporary(cache_dir: Path) -> None:
    """Remove what a stopped run left half written."""
    for folder in (cache_dir, *cache_dir.glob(f"{_SAMPLES}/??")):
        for path in half_written(folder):
            path.unlink()
