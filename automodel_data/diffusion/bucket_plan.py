"""How many batches a bucket gives in an epoch, and what that costs in lost and repeated samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

Policy = Literal["drop", "partial", "pad"]
POLICIES: Final = ("drop", "partial", "pad")


def parse_policy(bucket_policy: str | None, drop_last: bool) -> Policy:
    """Return what to do with a bucket's short batch; without ``bucket_policy`` it is ``drop_last`` that says.

    Raises:
        ValueError: there is no such policy.
    """
    if bucket_policy is None:
        return "drop" if drop_last else "partial"
    if bucket_policy not in POLICIES:
        raise ValueError(f"bucket_policy ({bucket_policy!r}) must be one of {', '.join(POLICIES)}")
    return cast("Policy", bucket_policy)


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketPlan:
    """One bucket in one epoch. Samples are counted over all ranks, batches for each rank (all have equally many)."""

    name: str
    samples: int
    batch_size: int
    replicas: int
    policy: Policy

    @property
    def padded(self) -> int:
        """Samples after cycling to a multiple of the replicas, and with ``pad`` of whole batches."""
        multiple = self.replicas * (self.batch_size if self.policy == "pad" else 1)
        return -(-self.samples // multiple) * multiple

    @property
    def batches(self) -> int:
        """Batches of each rank."""
        share = self.padded // self.replicas
        return share // self.batch_size if self.policy == "drop" else -(-share // self.batch_size)

    @property
    def lost(self) -> int:
        """Samples that no rank sees in an epoch."""
        return max(0, self.samples - self.batches * self.batch_size * self.replicas)

    @property
    def repeated(self) -> int:
        """Places filled by a sample's second use, so that ranks have equally many."""
        handed_out = self.padded if self.policy != "drop" else self.batches * self.batch_size * self.replicas
        return max(0, handed_out - self.samples)

    @property
    def missing(self) -> int:
        """Samples short of the bucket's first batch; 0 when it has one."""
        first = self.replicas * (self.batch_size - 1) + 1
        return 0 if self.batches else first - self.samples


def format_table(plans: Sequence[BucketPlan]) -> str:
    """Return a text table of the buckets, with a line of sums."""
    header = ("bucket", "samples", "batch size", "batches", "lost", "repeated")
    rows = [
        (plan.name, *map(str, (plan.samples, plan.batch_size, plan.batches, plan.lost, plan.repeated)))
        for plan in plans
    ]
    sums = [sum(column) for column in zip(*((p.samples, p.batches, p.lost, p.repeated) for p in plans), strict=True)]
    samples, *others = map(str, sums)
    table = [header, *rows, ("all", samples, "", *others)]
    name_width, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join((name.ljust(name_width), *(cell.rjust(w) for cell, w in zip(cells, widths, strict=True))))
        for name, *cells in table
    )
    return "\n".join(line.rstrip() for line in lines)
