"""Encode all rows of a source into a cache: each rank its range of rows, then rank 0 the metadata."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from automodel_data.errors import DataError, DropLedger, SkipSample, merge_counts
from recipes.distributed import World
from recipes.encode import manifest
from recipes.encode.encoders.base import EncodedText, Encoder
from recipes.encode.hashing import hash_values
from recipes.encode.layouts import Encoded, Layout
from recipes.encode.manifest import Journal, Record
from recipes.encode.prepare import Prepared, Preparer, map_ahead
from recipes.encode.sources import Source
from recipes.encode.transform import BucketedImage, Transform
from recipes.encode.writer import TEMPORARY_SUFFIX, write_json, write_payload

log = logging.getLogger(__name__)

SAMPLES = "samples"
SHARDS = "metadata_shard_{}_{}.json"
_AHEAD_PER_THREAD = 4  # rows


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

    def run(self) -> dict[str, dict[str, int]]:
        """Encode what is not there yet, write the metadata, and return the rows lost, over all ranks.

        Raises:
            DataError: not one row could be used.
        """
        if self.world.leads:
            manifest.take_up(self.cache_dir)
            _remove_temporary(self.cache_dir)
        self.world.barrier()
        known = {record.key: record for record in manifest.read_manifest(self.cache_dir)}
        ledger = DropLedger()
        self._encode_share(known, ledger)
        losses = merge_counts(*self.world.gather(ledger.counts))
        if self.world.leads:
            self._finish(losses)
        self.world.barrier()
        return losses

    def _encode_share(self, known: dict[str, Record], ledger: DropLedger) -> None:
        """Encode this rank's rows; a row's record is written behind its payload."""
        encoded = 0
        bar = tqdm(total=len(self._share()), desc="rows", unit="row", disable=not self.world.leads)
        with Journal(self.cache_dir, self.world.rank) as journal, bar:
            for prepared in self._prepare(known):
                bar.update()
                try:
                    if isinstance(prepared, SkipSample):
                        raise prepared
                    record = self._record(prepared, known)
                except SkipSample as skip:
                    ledger.drop(self.source_name, skip.reason, detail=skip.detail)
                    continue
                journal.append(record)
                known[record.key] = record
                encoded += prepared.target is not None
                bar.set_postfix(encoded=encoded, lost=ledger.total(), refresh=False)
        log.info(
            "rank %d: %d rows, %d encoded now, %d lost", self.world.rank, len(self._share()), encoded, ledger.total()
        )

    def _share(self) -> range:
        rows, rank, size = len(self.source), self.world.rank, self.world.size
        return range(rows * rank // size, rows * (rank + 1) // size)

    def _prepare(self, known: dict[str, Record]) -> Iterator[Prepared | SkipSample]:
        preparer = Preparer(
            layout=self.layout,
            transform=self.transform,
            encoder_hash=encoder_hash(self.encoder_identity, self.dtype),
            is_done=lambda key: key in known and (self.cache_dir / cache_file(key)).exists(),
        )
        share = self._share()
        rows = self.source.rows(share.start, share.stop)
        return map_ahead(preparer, rows, self.threads, self.threads * _AHEAD_PER_THREAD)

    def _record(self, prepared: Prepared, known: dict[str, Record]) -> Record:
        """Return the row's record, its payload written before if it was not there."""
        key = prepared.hashes.key
        item = known[key].item if prepared.target is None else self._encode(prepared, prepared.target)
        hashes = asdict(prepared.hashes)
        return Record(row=prepared.raw.number, where=prepared.raw.where, item=item, **hashes)

    def _encode(self, prepared: Prepared, target: BucketedImage) -> dict[str, Any]:
        """Encode one row, write its payload, and return its item.

        Raises:
            SkipSample: the encoder gave NaN or infinity, or cannot take the row.
        """
        images = [context.image for context in prepared.contexts]
        encoded = Encoded(
            target=self._stored(self.encoder.encode_image(target.pixels())),
            contexts=[self._stored(self.encoder.encode_image(c.pixels())) for c in prepared.contexts],
            text=self._stored_text(self.encoder.encode_text(prepared.row.text, images)),
        )
        file = cache_file(prepared.hashes.key)
        write_payload(self.cache_dir / file, self.layout.payload(prepared.raw, prepared.row, target, encoded))
        return self.layout.item(file, target, encoded)

    def _stored_text(self, text: EncodedText) -> EncodedText:
        pooled = None if text.pooled is None else self._stored(text.pooled)
        return EncodedText(embeddings=self._stored(text.embeddings), mask=text.mask, pooled=pooled)

    def _stored(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as the file holds it; what the type cannot hold is a loss as well."""
        stored = tensor.to(self.dtype)
        if not torch.isfinite(stored).all():
            raise SkipSample("encoded to NaN or infinity")
        return stored

    def _finish(self, losses: dict[str, dict[str, int]]) -> None:
        """Write shards, ``metadata.json`` and the manifest from the journals of all ranks."""
        records = manifest.read_journals(self.cache_dir)
        if not records:
            raise DataError(f"source ({self.source_name}): not one of {len(self.source)} rows could be used: {losses}")
        shards = self._write_shards([record.item for record in records])
        about = {"layout": self.layout.name, "source": self.source_name, "rows": len(self.source), "lost": losses}
        made_by = {"transform": self.transform.identity(), "encoder": self.encoder_identity, "dtype": str(self.dtype)}
        write_json(self.cache_dir / "metadata.json", {"shards": shards, **about, **made_by})
        manifest.replace(self.cache_dir, records)
        for path in self.cache_dir.glob(SHARDS.format("*", "*")):
            if path.name not in shards:
                path.unlink()

    def _write_shards(self, items: list[dict[str, Any]]) -> list[str]:
        """Write the items; a shard is named by its content, so that the shards of a cache in use stay as they are."""
        names = []
        for start in range(0, len(items), self.items_per_shard):
            shard = items[start : start + self.items_per_shard]
            names.append(SHARDS.format(f"{len(names):04d}", hash_values({"items": shard})[:8]))
            write_json(self.cache_dir / names[-1], shard)
        return names


def encoder_hash(identity: Mapping[str, Any], dtype: torch.dtype) -> str:
    """Return what stands in a key for the encoder and for how its output is stored."""
    return hash_values({**identity, "stored_as": str(dtype)})


def cache_file(key: str) -> str:
    """Return the payload file of a key, relative to the cache; spread over 256 folders."""
    return f"{SAMPLES}/{key[:2]}/{key}.pt"


def _remove_temporary(cache_dir: Path) -> None:
    """Remove what a stopped run left half written."""
    for path in cache_dir.rglob(f"*{TEMPORARY_SUFFIX}"):
        path.unlink()
