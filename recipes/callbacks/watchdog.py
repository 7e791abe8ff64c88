"""Say where every thread is when no step has ended for too long."""

import faulthandler
from dataclasses import dataclass, field
from typing import IO

from recipes.callbacks.base import Callback
from recipes.trainer import Trainer


@dataclass(kw_only=True, slots=True)
class Watchdog(Callback):
    """Write every thread's stack to ``stacks-rank<N>.txt`` in the run directory after ``seconds`` without a step.

    Args:
        seconds: How long a step may take; the stacks are written again each time as many have passed.
    """

    seconds: float = 300.0
    _file: IO[str] | None = field(default=None, init=False)

    def start(self, trainer: Trainer) -> None:
        """Start the clock."""
        self._file = (trainer.directory / f"stacks-rank{trainer.world.rank}.txt").open("a")
        self._wind()

    def after_step(self, trainer: Trainer) -> None:
        """Start it anew."""
        self._wind()

    def finish(self, trainer: Trainer) -> None:
        """Stop it."""
        faulthandler.cancel_dump_traceback_later()
        self._file.close()

    def _wind(self) -> None:
        faulthandler.dump_traceback_later(self.seconds, repeat=True, file=self._file)
