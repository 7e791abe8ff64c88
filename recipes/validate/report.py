"""Everything that was found out about a run's data, as one value and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recipes.validate.caches import CacheReport
from recipes.validate.findings import Finding, Severity
from recipes.validate.packs import PacksReport
from recipes.validate.shares import ShareReport
from recipes.validate.sources import SourceReport


@dataclass(kw_only=True, slots=True)
class Report:
    """What was looked at, in the order of looking: raw rows have sources, shares and packs, latents have caches."""

    name: str
    sources: list[SourceReport] = field(default_factory=list)
    shares: list[ShareReport] = field(default_factory=list)
    packs: PacksReport | None = None
    packs_findings: list[Finding] = field(default_factory=list)
    caches: list[CacheReport] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """All findings, problems first."""
        return sorted(self._findings(), key=lambda found: found.severity is not Severity.PROBLEM)

    def _findings(self) -> Iterator[Finding]:
        for looked_at in (*self.sources, *self.caches):
            yield from looked_at.findings
        for share in self.shares:
            yield from share.findings()
        yield from self.packs_findings

    @property
    def problems(self) -> list[Finding]:
        """The findings that fail the validation."""
        return [found for found in self.findings if found.severity is Severity.PROBLEM]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "ok": not self.problems,
            "name": self.name,
            "findings": [asdict(found) for found in self.findings],
            "sources": [_source(source) for source in self.sources],
            "shares": [asdict(share) for share in self.shares],
            "packs": None if self.packs is None else _packs(self.packs),
            "caches": [asdict(cache) for cache in self.caches],
        }

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")


def _source(source: SourceReport) -> dict[str, Any]:
    rows = source.sample
    return {
        "name": source.name,
        "opened": source.opened,
        "paths": source.paths,
        "rows": source.rows,
        "looked_at": rows.looked_at,
        "lost": rows.lost,
        "foreign": {form: asdict(those) for form, those in rows.foreign.items()},
        "median_tokens": rows.median_tokens,
        "most_tokens": rows.most_tokens,
        "too_long": source.too_long,
    }


def _packs(packs: PacksReport) -> dict[str, Any]:
    fills = packs.fills
    means = {"mean_fill": sum(fills) / len(fills), "least_fill": min(fills), "samples": packs.samples}
    return {**asdict(packs), **means, "tokens": packs.tokens}
