"""Where a reader stands among ranks and workers: the only shard arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """One reader among ``world_size`` ranks with ``num_workers`` worker processes each (0: none)."""

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 0

    def seed(self, global_seed: int) -> int:
        """Return this reader's 32-bit seed."""
        workers = max(1, self.num_workers)
        return ((global_seed * self.world_size + self.rank) * workers + self.worker) % 2**32

    def rank_share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this rank's equal, contiguous share; what does not divide is left out."""
        return _share(items, self.rank, self.world_size)

    def worker_share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this worker's share of its rank's items, last first; without workers all of them, in order."""
        if self.num_workers == 0:
            return items
        return _share(items, self.worker, self.num_workers)[::-1]


def _share(items: Sequence[T], index: int, parts: int) -> Sequence[T]:
    size = len(items) // parts
    return items[index * size : (index + 1) * size]
