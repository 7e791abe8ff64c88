"""Where a reader stands among ranks and workers, and which paths it reads: the only shard arithmetic."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automodel_data.errors import DataError

log = logging.getLogger(__name__)


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

    def rank_share(self, paths: int) -> range:
        """Return which of ``paths`` this rank reads: an equal stretch; what does not divide is left out."""
        return _equal_part(range(paths), self.rank, self.world_size)

    def worker_share(self, paths: int) -> range:
        """Return which of ``paths`` this worker reads: its part of the rank's, last first, or all of that."""
        share = self.rank_share(paths)
        return share if self.num_workers == 0 else _equal_part(share, self.worker, self.num_workers)[::-1]


def check_share(dataset: str, paths: int, parts: int, one: str, many: str) -> None:
    """Refuse to share ``paths`` among more ``parts``, and warn of a remainder that nobody reads.

    Args:
        one: What a part is called, e.g. ``rank``.
        many: What several are called.

    Raises:
        DataError: somebody would get none.
    """
    share, rest = divmod(paths, parts)
    if share == 0:
        raise DataError(
            f"{dataset}: {paths} paths cannot be shared by {parts} {many}; every {one} needs at least "
            f"one: use fewer {many}, raise num_used_data, or split the data into more files"
        )
    if rest:
        log.warning("%s: %d of %d paths are left out, they do not divide by %d %s", dataset, rest, paths, parts, many)


def _equal_part(items: range, index: int, parts: int) -> range:
    size = len(items) // parts
    return items[index * size : (index + 1) * size]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Paths read one after another, ``range(start, stop, step)`` of the whole list.

    Args:
        after: Place in the first path behind which reading starts; None: at its beginning.
    """

    start: int
    stop: int
    step: int = 1
    after: list[int] | None = None

    @classmethod
    def of(cls, indices: range, after: list[int] | None = None) -> "Stretch":
        """Return the stretch over these indices."""
        return cls(start=indices.start, stop=indices.stop, step=indices.step, after=after)

    @property
    def indices(self) -> range:
        """Which paths."""
        return range(self.start, self.stop, self.step)

    def __len__(self) -> int:
        return len(self.indices)

    def tail(self, number: int) -> "Stretch":
        """Return the stretch from its path of that number on."""
        return self if number == 0 else Stretch.of(self.indices[number:])

    def head(self, number: int) -> "Stretch":
        """Return the stretch up to its path of that number."""
        return Stretch.of(self.indices[:number], self.after)


def left_behind(stretches: Sequence[Stretch], number: int, place: list[int]) -> list[Stretch]:
    """Return what is left of ``stretches`` behind ``place`` in path ``number`` (an empty place: the path is a row)."""
    if not place:
        return cut(stretches, number + 1)[1]
    first, *rest = cut(stretches, number)[1]
    return [Stretch.of(first.indices, place), *rest]


def cut(stretches: Sequence[Stretch], number: int) -> tuple[list[Stretch], list[Stretch]]:
    """Cut before path ``number``, counted through all ``stretches``."""
    before: list[Stretch] = []
    behind: list[Stretch] = []
    for stretch in stretches:
        here = min(max(number, 0), len(stretch))
        before += [stretch.head(here)] if here > 0 else []
        behind += [stretch.tail(here)] if here < len(stretch) else []
        number -= len(stretch)
    return before, behind


def left_out(paths: int, world_size: int, num_workers: int) -> list[Stretch]:
    """Return the paths that nobody reads, because they do not divide by ranks and workers."""
    parts: list[range] = []
    for rank in range(world_size):
        share = Placement(rank=rank, world_size=world_size).rank_share(paths)
        parts.append(share[len(share) // max(1, num_workers) * max(1, num_workers) :])
    parts.append(range(paths // world_size * world_size, paths))
    return [Stretch.of(part) for part in parts if len(part)]


def walk(stretches: Sequence[Stretch]) -> Iterator[tuple[int, list[int] | None]]:
    """Yield ``(path, after)`` in reading order: each path's index in the whole list, and where to start in it."""
    for stretch in stretches:
        for number, index in enumerate(stretch.indices):
            yield index, stretch.after if number == 0 else None
