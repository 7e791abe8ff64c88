"""A group's paths against the workers that share them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automodel_data.placement import Placement, left_out
from recipes.validate.findings import Check, Finding, problem, warning
from recipes.validate.sources import SourceReport


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareReport:
    """How many of a group's paths each worker reads, and how many nobody does."""

    name: str
    paths: int
    world_size: int
    num_workers: int
    per_worker: int
    left_out: int

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with these counts."""
        readers = f"{self.world_size} ranks x {max(1, self.num_workers)} workers"
        if self.per_worker == 0:
            line = (
                f"{self.paths} paths cannot be shared by {readers}; every worker needs at least one: use fewer ranks "
                "or data.num_workers, raise num_used_data, or split the data into more files"
            )
            yield problem(Check.SHARES, self.name, line)
        elif self.left_out:
            line = f"{self.left_out} of {self.paths} paths are read by nobody: they do not divide by {readers}"
            yield warning(Check.SHARES, self.name, line)


def share_out(split: str, reports: Sequence[SourceReport], world_size: int, num_workers: int) -> list[ShareReport]:
    """Share out the paths of every group whose datasets all opened."""
    groups: dict[str, list[SourceReport]] = {}
    for report in reports:
        groups.setdefault(report.group, []).append(report)
    return [
        _share(f"{split}/{group}", sum(one.paths for one in of_group), world_size, num_workers)
        for group, of_group in groups.items()
        if all(one.opened for one in of_group)
    ]


def _share(name: str, paths: int, world_size: int, num_workers: int) -> ShareReport:
    placement = Placement(world_size=world_size, num_workers=num_workers)
    return ShareReport(
        name=name,
        paths=paths,
        world_size=world_size,
        num_workers=num_workers,
        per_worker=len(placement.worker_share(paths)),
        left_out=sum(len(stretch) for stretch in left_out(paths, world_size, num_workers)),
    )
