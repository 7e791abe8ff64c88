"""Seconds on the wall and on all cores."""

import time
from dataclasses import dataclass, field, replace
from typing import Self


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """How long something took: on the wall, and on this process's cores together."""

    wall: float
    cpu: float

    def __add__(self, other: Self) -> Self:
        return replace(self, wall=self.wall + other.wall, cpu=self.cpu + other.cpu)


@dataclass(slots=True)
class Stopwatch:
    """Times a block; ``seconds`` is there once the block is left."""

    seconds: Seconds = field(init=False)
    _wall: float = field(init=False)
    _cpu: float = field(init=False)

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = Seconds(wall=time.perf_counter() - self._wall, cpu=time.process_time() - self._cpu)
