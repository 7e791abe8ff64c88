"""Read a finished cache back and compare it with its source: what is bad, stale, missing or orphaned."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.payload import PayloadError
from recipes.bars import Bar, watched
from recipes.encode.cache import payload_files
from recipes.encode.manifest import Record, read_journals, read_lost, read_manifest
from recipes.encode.prepare import Hashed, Hasher, Hashes, map_ahead
from recipes.encode.rows import Lost, RawRow
from recipes.encode.sources import Source

_LISTED = 20
_PARTS = ("sources", "text", "transform", "encoder")


@dataclass(kw_only=True, slots=True)
class Findings:
    """What is not as it should be.

    Args:
        bad: Payloads that cannot be used, and why.
        stale: Samples whose row has changed or gone, and what of it.
        missing: Rows that were not encoded yet.
        lost: Rows that cannot be encoded, and why.
        orphaned: Payload files that no item names, nor a run that was stopped and may go on.
    """

    samples: int = 0
    bad: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    orphaned: list[Path] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Tell whether the cache is what encoding again would make of its source; orphans do no harm."""
        return not (self.bad or self.stale or self.missing)

    def lines(self) -> Iterator[str]:
        """Yield a report."""
        yield f"{self.samples} samples read back"
        advice = {
            "bad": "delete these files and encode again",
            "stale": "encode again",
            "missing": "encode again",
            "lost": "rows that cannot be encoded",
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
    findings.bad = [
        answer for answer in watched(answers, Bar(total=len(dataset), what="payloads")) if answer is not None
    ]
    written, _ = read_journals(dataset.cache_dir)
    used = {Path(item["cache_file"]).stem for item in dataset.metadata}
    used |= {record.key for record in (*read_manifest(dataset.cache_dir), *written)}
    findings.orphaned = sorted(file for file in payload_files(dataset.cache_dir.resolve()) if file.stem not in used)
    return findings


def compare_with_source(
    findings: Findings, dataset: BaseMultiresolutionDataset, source: Source, hasher: Hasher, threads: int
) -> None:
    """Hash every row of the source again, and add to ``findings`` what has changed since the cache was made."""
    cached = {Path(item["cache_file"]).stem for item in dataset.metadata}  # a payload is named by its key
    records = [record for record in read_manifest(dataset.cache_dir) if record.key in cached]
    reasons = {lost.key: lost for lost in read_lost(dataset.cache_dir)}
    seen = list(watched(_look(source, hasher, threads), Bar(total=len(source), what="rows")))
    current = {row.hashes.key for row in seen if isinstance(row, _Seen)}
    unexplained = {record.row: record for record in records if record.key not in current}
    for row in seen:
        match row:
            case Lost():
                findings.lost.append(f"{row.where}: {row.reason}: {row.detail}")
            case _Seen(hashes=Hashes(key=key)) if key in cached:
                pass
            case _Seen(hashes=Hashes(key=key)) if key in reasons:
                findings.lost.append(f"{row.where}: {reasons[key].reason}: {reasons[key].detail}")
            case _Seen() if row.number in unexplained:
                changes = _changes(unexplained.pop(row.number), row.hashes)
                findings.stale.append(f"{row.where}: {changes} changed since it was encoded")
            case _Seen():
                findings.missing.append(row.where)
    findings.stale += [f"{record.where}: no longer in the source" for record in unexplained.values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What is kept of a row that could be read."""

    number: int
    where: str
    hashes: Hashes


def _look(source: Source, hasher: Hasher, threads: int) -> Iterator[_Seen | Lost]:
    def look(raw: RawRow | Lost) -> _Seen | Lost:
        match hasher(raw):
            case Hashed(raw=RawRow(number=number, where=where), hashes=hashes):
                return _Seen(number=number, where=where, hashes=hashes)
            case Lost() as lost:
                return lost

    rows = (row for block in source.blocks(readers=1) for row in source.rows(block))
    return map_ahead(look, rows, threads, 4 * threads)


def _changes(then: Record, now: Hashes) -> str:
    return ", ".join(part for part in _PARTS if getattr(then, part) != getattr(now, part))
