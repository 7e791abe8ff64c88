"""One pass over the buckets, step by step, and what of it is left when the number of ranks or the batch size changes.

A step is what all ranks together read at one time: samples of one bucket, of which each rank takes its stride. So the
samples that were read are those of the steps taken, and whoever knows the earlier stretches of a pass, a few numbers,
can replay it and deal out the rest anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple, cast

import torch

from automodel_data.diffusion.bucket_plan import BucketPlan

Order = Literal["sequential", "interleaved"]
ORDERS: Final = ("sequential", "interleaved")


def parse_order(bucket_order: str) -> Order:
    """Return in which order buckets come.

    Raises:
        ValueError: there is no such order.
    """
    if bucket_order not in ORDERS:
        raise ValueError(f"bucket_order ({bucket_order!r}) must be one of {', '.join(ORDERS)}")
    return cast("Order", bucket_order)


class Step(NamedTuple):
    """The samples that all ranks read at one time, and the number of their bucket; a rank takes its stride of them."""

    bucket: int
    samples: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketPass:
    """The steps of one pass; they depend on these values alone.

    Args:
        buckets: The samples of every bucket.
        plans: How many batches each bucket gives.
        order: See ``SequentialBucketSampler``, as for the two below.
        seed: Of the order of this pass.
    """

    buckets: Sequence[Sequence[int]]
    plans: Sequence[BucketPlan]
    order: Order
    shuffle_buckets: bool
    shuffle_within_bucket: bool
    seed: int

    def __len__(self) -> int:
        """Return the number of steps."""
        return sum(plan.batches for plan in self.plans)

    def __iter__(self) -> Iterator[Step]:
        """Iterate over the steps; every rank makes the same draws."""
        generator = torch.Generator().manual_seed(self.seed)
        order = self._bucket_sequence(generator)
        if self.order == "sequential":
            for bucket in order:
                yield from self._bucket_steps(bucket, generator)
            return
        waiting = {bucket: iter(self._bucket_steps(bucket, generator)) for bucket in order}
        # A draw in proportion to what is left, step by step, is a uniform shuffle of one label for each step.
        labels = [bucket for bucket in order for _ in range(self.plans[bucket].batches)]
        for place in torch.randperm(len(labels), generator=generator).tolist():
            yield next(waiting[labels[place]])

    def _bucket_sequence(self, generator: torch.Generator) -> list[int]:
        if not self.shuffle_buckets:
            return list(range(len(self.plans)))
        return torch.randperm(len(self.plans), generator=generator).tolist()

    def _bucket_steps(self, bucket: int, generator: torch.Generator) -> list[Step]:
        plan, samples = self.plans[bucket], self.buckets[bucket]
        if self.shuffle_within_bucket:
            samples = [samples[i] for i in torch.randperm(len(samples), generator=generator).tolist()]
        cycled = [samples[i % len(samples)] for i in range(plan.padded)]
        size = plan.batch_size * plan.replicas
        return [Step(bucket, cycled[i * size : (i + 1) * size]) for i in range(plan.batches)]

    def unread_after(self, steps: int) -> list[list[int]]:
        """Return what the first ``steps`` leave of every bucket."""
        read = {index for step in islice(self, steps) for index in step.samples}
        return [[index for index in bucket if index not in read] for bucket in self.buckets]
