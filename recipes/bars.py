"""How far a long loop is: a bar on a terminal, a log line now and then elsewhere."""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self, TypeVar

from tqdm import tqdm

log = logging.getLogger(__name__)

LINE_EVERY_SECONDS = 30.0
_REMEMBERED = 50  # moments

Item = TypeVar("Item")


@dataclass(slots=True)
class Pace:
    """Seconds that a step takes, over the last moments it was told of: one slow step does not change it much."""

    _moments: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def add(self, step: int, now: float) -> None:
        """Take that ``step`` was done at ``now``, in seconds of any clock."""
        self._moments.append((step, now))

    def seconds_left(self, steps: int) -> float | None:
        """Return how long ``steps`` more take; None before two steps were told of."""
        if len(self._moments) < 2:
            return None
        (first, began), (last, ended) = self._moments[0], self._moments[-1]
        return steps * (ended - began) / max(1, last - first)


class Bar:
    """Shows how many of ``total`` are done: ``with Bar(total=9, what="rows") as bar: bar.move_to(3, lost=1)``.

    Args:
        what: They are called.
        shown: False shows nothing, e.g. on ranks that do not lead.
        every_seconds: Least seconds between two log lines, where there is no terminal; the end is always told.
    """

    def __init__(
        self,
        *,
        total: int,
        what: str,
        shown: bool = True,
        every_seconds: float = LINE_EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._what, self._every_seconds, self._clock = total, what, every_seconds, clock
        terminal = sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=what) if shown and terminal else None
        self._tells = shown and not terminal
        self._done, self._counts = 0, ""
        self._began = self._told = clock()
        self._pace = Pace()
        self._pace.add(0, self._began)

    def __enter__(self) -> Self:
        """Return the bar."""
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the bar on the screen, or tell where it ended."""
        if self._bar is not None:
            self._bar.close()
        elif self._tells:
            log.info("%s in %.0f s%s", self._so_far(), self._clock() - self._began, self._counts)

    def move_to(self, done: int, **counts: int) -> None:
        """Show that ``done`` of all are done, and other counts by their names."""
        self._done = done
        if self._bar is not None:
            self._bar.set_postfix(counts, refresh=False)
            self._bar.update(done - self._bar.n)
        elif self._tells:
            self._counts = "".join(f", {name} {count}" for name, count in counts.items())
            self._tell_if_due()

    def _tell_if_due(self) -> None:
        now = self._clock()
        if now - self._told < self._every_seconds or self._done >= self._total:
            return
        self._told = now
        self._pace.add(self._done, now)
        log.info("%s, %.0f s left%s", self._so_far(), self._pace.seconds_left(self._total - self._done), self._counts)

    def _so_far(self) -> str:
        return f"{self._what}: {self._done} of {self._total}"


def watched(items: Iterable[Item], bar: Bar) -> Iterator[Item]:
    """Hand out ``items``, and move ``bar`` on by one for each."""
    with bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.move_to(done)
