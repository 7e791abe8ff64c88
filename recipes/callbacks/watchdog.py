"""Say where every thread is, and which files are being read, when no step has ended for too long."""

import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from recipes.callbacks.base import Callback
from recipes.trainer import Trainer

log = logging.getLogger(__name__)

_STDERR = 2


@dataclass(kw_only=True, slots=True)
class Watchdog(Callback):
    """After ``seconds`` without a step, write every thread's stack and warn which files are open.

    The stacks of the rank and of its data workers go to ``stacks-rank<N>.txt`` in the run directory.

    Args:
        seconds: How long a step may take; all is told again each time as many have passed.
    """

    seconds: float = 300.0
    _stacks: IO[str] | None = field(default=None, init=False)
    _watch: "_Watch | None" = field(default=None, init=False)

    def start(self, trainer: Trainer) -> None:
        """Start the clock."""
        self._stacks = (trainer.directory / f"stacks-rank{trainer.world.rank}.txt").open("a")
        signal.signal(signal.SIGQUIT, lambda number, frame: dump(self._stacks))  # data workers are forked with it
        self._watch = _Watch(self.seconds, self._stacks)
        self._watch.start()

    def after_step(self, trainer: Trainer) -> None:
        """Start it anew."""
        self._watch.stepped.set()

    def finish(self, trainer: Trainer) -> None:
        """Stop it."""
        self._watch.end()
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        self._stacks.close()
        path = Path(self._stacks.name)
        if path.stat().st_size == 0:
            path.unlink()


class _Watch(threading.Thread):
    """Waits for steps, and reports when there is none."""

    def __init__(self, seconds: float, stacks: IO[str]) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.stepped = threading.Event()
        self._ended = False
        self._seconds = seconds
        self._stacks = stacks

    def run(self) -> None:
        """Report each time ``seconds`` have passed without a step."""
        while not self._ended:
            if self.stepped.wait(self._seconds):
                self.stepped.clear()
            else:
                self._report()

    def end(self) -> None:
        """Stop waiting."""
        self._ended = True
        self.stepped.set()
        self.join()

    def _report(self) -> None:
        dump(self._stacks)
        workers = multiprocessing.active_children()
        if multiprocessing.get_start_method() == "fork":  # others have not inherited the handler
            for worker in workers:
                os.kill(worker.pid, signal.SIGQUIT)
        path = Path(self._stacks.name)
        processes = [os.getpid(), *(worker.pid for worker in workers)]
        log.warning(
            "no step for %g s; open files: %s; stacks of this rank and its %d data workers: %s",
            self._seconds,
            ", ".join(open_files(processes, but_in=path.parent)) or "none",
            len(workers),
            path,
        )


def dump(stacks: IO[str]) -> None:
    """Write the stack of every thread of this process."""
    faulthandler.dump_traceback(stacks)  # while the GIL is held; by faulthandler's own signal handler it may crash


def open_files(processes: Sequence[int], but_in: Path) -> list[str]:
    """Return the files that ``processes`` have open, besides their standard streams and those in ``but_in``."""
    paths: set[str] = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            opened = psutil.Process(process).open_files()
            paths |= {file.path for file in opened if file.fd > _STDERR}
    return sorted(path for path in paths if not Path(path).is_relative_to(but_in.resolve()))
