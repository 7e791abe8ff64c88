"""Read a finished cache back and compare it with its source: what is bad, stale, missing or orphaned."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.payload import PayloadError
from automodel_data.errors import SkipSample
from recipes.encode.cache import SAMPLES
from recipes.encode.layouts import Layout
from recipes.encode.manifest import Record, read_manifest
from recipes.encode.prepare import Hashes, Preparer, map_ahead
from recipes.encode.rows import RawRow
from recipes.encode.sources import Source

_LISTED = 20
_PARTS = ("sources", "text", "transform", "encoder")


@dataclass(kw_only=True, slots=True)
class Findings:
    """What is not as it should be.

    Args:
        bad: Payloads that cannot be used, and why.
        stale: Samples whose row has changed or gone, and what of it.
        missing: Rows that could be encoded and are not.
        orphaned: Payload files that no item names.
    """

    samples: int = 0
    bad: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    orphaned: list[Path] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Tell whether the cache is what its source says; orphans do no harm."""
        return not (self.bad or self.stale or self.missing)

    def lines(self) -> Iterator[str]:
        """Yield a report."""
        yield f"{self.samples} samples read back"
        advice = {
            "bad": "delete these files and encode again",
            "stale": "encode again",
            "missing": "encode again",
            "orphaned": "delete_orphans=true removes them",
        }
        for kind, remedy in advice.items():
            found = getattr(self, kind)
            yield f"{kind}: {len(found)}" + (f" ({remedy})" if found else "")
            yield from (f"  {one}" for one in found[:_LISTED])
            if len(found) > _LISTED:
                yield f"  and {len(found) - _LISTED} more"


def verify(dataset: BaseMultiresolutionDataset, threads: int) -> Findings:
    """Read every payload with the checks of training, and look for files that no item names."""
    findings = Findings(samples=len(dataset))

    def read(index: int) -> str | None:
        try:
            dataset[index]
        except PayloadError as error:
            return str(error)
        return None

    answers = map_ahead(read, range(len(dataset)), threads, 4 * threads)
    findings.bad = [answer for answer in tqdm(answers, total=len(dataset), desc="payloads") if answer is not None]
    named = {Path(item["cache_file"]) for item in dataset.metadata}
    files = (dataset.cache_dir.resolve() / SAMPLES).rglob("*")
    findings.orphaned = sorted(file for file in files if file.is_file() and file not in named)
    return findings


def compare_with_source(
    findings: Findings, cache_dir: Path, source: Source, layout: Layout, preparer: Preparer, threads: int
) -> None:
    """Hash every row of the source again, and add to ``findings`` what has changed since the cache was made."""
    records = read_manifest(cache_dir)
    cached = frozenset(record.key for record in records)

    def hash_row(raw: RawRow) -> tuple[RawRow, Hashes] | None:
        try:
            return raw, preparer.hashes(layout.parse(raw))
        except SkipSample:
            return None  # a loss, which encoding counts

    rows = map_ahead(hash_row, source.rows(0, len(source)), threads, 4 * threads)
    now = list(filter(None, tqdm(rows, total=len(source), desc="rows")))
    current = {hashes.key for _, hashes in now}
    unexplained = {record.row: record for record in records if record.key not in current}
    for raw, hashes in now:
        if hashes.key in cached:
            continue
        then = unexplained.pop(raw.number, None)
        if then is None:
            findings.missing.append(raw.where)
        else:
            findings.stale.append(f"{raw.where}: {_changes(then, hashes)} changed since it was encoded")
    findings.stale += [f"{record.where}: no longer in the source" for record in unexplained.values()]


def _changes(then: Record, now: Hashes) -> str:
    return ", ".join(part for part in _PARTS if getattr(then, part) != getattr(now, part))
