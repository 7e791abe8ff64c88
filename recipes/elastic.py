"""Ranks from plain python: torchrun's own engine runs in this process for the time of one job."""

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from recipes.mistakes import EXIT_CODE


class Stopped(SystemExit):
    """This process was told to stop while its ranks ran; they were told too, and are gone. The code is 128 + signal."""


def run(script: str, arguments: Sequence[str], ranks: int) -> None:
    """Run ``script`` on so many new ranks of this machine, and wait for them.

    Raises:
        SystemExit: A rank failed; its traceback has been shown, the code is its own.
        Stopped: A signal came; the ranks had torchrun's grace time to save and leave.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what it says is told below
    options = ["--standalone", f"--nproc-per-node={ranks}", script, *arguments]
    with _signal_handlers_kept():
        try:
            torchrun.run(torchrun.parse_args(options))
        except ChildFailedError as error:
            raise SystemExit(_tell(error)) from None
        except SignalException as stop:
            raise Stopped(128 + stop.sigval) from None


def arguments_of_this_job() -> list[str]:
    """Return the arguments that make Hydra compose the job at hand once more, for the same directory."""
    hydra = HydraConfig.get()
    folders = {source.provider: source.path for source in hydra.runtime.config_sources}
    arguments = ["--config-path", folders["main"], "--config-name", hydra.job.config_name]
    if "command-line" in folders:
        arguments += ["--config-dir", folders["command-line"]]
    about_hydra = [override for override in hydra.overrides.hydra if not override.startswith("hydra.mode=")]
    return [*arguments, *about_hydra, *hydra.overrides.task, override("hydra.run.dir", hydra.runtime.output_dir)]


def override(key: str, value: object) -> str:
    """Return ``key=value`` for Hydra's command line, whatever signs ``value`` has; None is null."""
    return f"{key}=null" if value is None else f"{key}='" + str(value).replace("'", r"\'") + "'"


def _tell(error: ChildFailedError) -> int:
    """Show the traceback of the rank that failed first, once, and return an exit code."""
    rank, failure = min(error.failures.items(), key=_order_of_failing)
    if isinstance(failure.message, dict):  # an exception, as @record wrote it
        told = failure.message["extraInfo"]["py_callstack"]
    elif failure.exitcode < 0:
        told = f"killed by {failure.signal_name()}"
    else:
        told = f"exit code {failure.exitcode}"
    if failure.exitcode != EXIT_CODE:  # a user's mistake: the rank has told it
        sys.stderr.write(f"rank {rank} failed: {told}\n")
    return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode


def _order_of_failing(item: tuple[int, ProcessFailure]) -> tuple[bool, float]:
    """Put ranks that torchrun ended because of the others last; torchrun's own times are whole seconds."""
    _, failure = item
    file = Path(failure.error_file)
    return failure.exitcode == -signal.SIGTERM, file.stat().st_mtime if file.exists() else failure.timestamp


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Put back the handlers that torchrun replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
