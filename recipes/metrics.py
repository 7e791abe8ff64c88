"""Means that are exact over ranks and steps: sums and counts are added up, one place divides."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from recipes.distributed import World
from recipes.tasks.base import Task


class Means:
    """Sums and counts by name since the last ``reduce``."""

    def __init__(self) -> None:
        self._totals: dict[str, list[torch.Tensor | float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, name: str, total: torch.Tensor | float, count: torch.Tensor | float) -> None:
        """Add ``count`` values that sum to ``total``; tensors stay where they are, so nothing waits for a GPU."""
        entry = self._totals[name]
        entry[0], entry[1] = entry[0] + total, entry[1] + count

    def reduce(self, world: World) -> dict[str, float]:
        """Return the mean of every name that any rank has seen, over all ranks, and start again from nothing."""
        mine = self.state_dict()
        self._totals.clear()
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for theirs in world.gather(mine):
            for name, (total, count) in theirs.items():
                sums[name][0] += total
                sums[name][1] += count
        return {name: total / count for name, (total, count) in sums.items() if count}

    def state_dict(self) -> dict[str, list[float]]:
        """Return this rank's sums and counts as plain values."""
        return {name: [float(total), float(count)] for name, (total, count) in self._totals.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from saved sums and counts."""
        self._totals.clear()
        for name, (total, count) in state.items():
            self.add(name, total, count)


def add_losses(means: Means, terms: Sequence[str], groups: Mapping[str, torch.Tensor], prefix: str = "") -> None:
    """Add a batch's loss sums and counts (``LossTerms.groups``) to ``means``, by dataset group and over all groups."""
    for group, table in groups.items():
        for term, (total, count) in zip(terms, table, strict=True):
            means.add(f"{prefix}{term}", total, count)
            means.add(f"{prefix}{term}/{group}", total, count)


def weighted_loss(task: Task, metrics: Mapping[str, float], prefix: str = "") -> float:
    """Return what the optimizer sees: the means of all terms, each times its weight."""
    weighted = zip(task.weights, task.terms, strict=True)
    return sum(weight * metrics.get(f"{prefix}{term}", 0.0) for weight, term in weighted)
