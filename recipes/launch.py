"""From a command line to ranks that agree: one run directory, one log file per rank, one line per mistake."""

import datetime
import logging
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf
from tqdm import tqdm

from recipes import config, distributed
from recipes.mistakes import EXIT_CODE, explain, told_in_one_line

_STAMP_KEY = "run_stamp"


def main(job: Callable[[], None], schema: type[config.RunConfig] = config.RunConfig) -> None:
    """Run the Hydra application ``job`` on this rank; a user's mistake ends it with one line and exit code 2."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra must hand errors on: they are explained in one place
    config.register(schema)
    register_resolvers()
    with told_in_one_line(), traceback_left_to_torchrun():
        job()
    distributed.stop()


@contextmanager
def refusals_told() -> Iterator[None]:
    """Tell a user's mistake within a job in one line, and leave no directory of a run that has written nothing.

    The directories of a sweep's jobs stay, and those of ranks: others may be writing.
    """
    try:
        with told_in_one_line():
            yield
    except SystemExit as left:
        alone = not started_by_torchrun() and HydraConfig.get().mode is RunMode.RUN
        if left.code == EXIT_CODE and alone:
            remove_traces(run_directory())
        raise


def remove_traces(directory: Path) -> None:
    """Remove a run's directory where it holds nothing but the config, the log and the lock."""
    if all(path.name in (".hydra", ".lock") or path.match("rank*.log") for path in directory.iterdir()):
        shutil.rmtree(directory)


@contextmanager
def traceback_left_to_torchrun() -> Iterator[None]:
    """Keep a traceback that torchrun shows at the end from being shown twice; the rank's log file has it too."""
    try:
        yield
    except Exception as error:
        if explain(error) is not None or not Path(os.environ.get("TORCHELASTIC_ERROR_FILE", "")).is_file():
            raise
        logging.getLogger("traceback").info("this rank failed", exc_info=True)  # no news: not for the console
        raise SystemExit(1) from None


class Console(logging.StreamHandler):
    """Writes above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the bar that a data worker was forked with is not its own to draw."""
        if multiprocessing.parent_process() is not None:
            super().emit(record)
        else:
            tqdm.write(self.format(record), file=self.stream)


class News(logging.Filter):
    """Lets through what a person at the console needs: the run's own lines and everybody's warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether ``record`` is news; the log files have all."""
        return record.levelno >= logging.WARNING or record.name.partition(".")[0] in ("recipes", "__main__")


def register_resolvers() -> None:
    """Teach the configuration what only a rank knows; must happen before Hydra composes."""
    rank = int(os.environ.get("RANK", "0"))
    stamp = agreed_stamp()
    OmegaConf.register_new_resolver("run_stamp", lambda: stamp, replace=True)
    OmegaConf.register_new_resolver("keys_of", lambda node: None if node is None else list(node), replace=True)
    OmegaConf.register_new_resolver("below", lambda folder, name: folder and f"{folder}/{name}", replace=True)
    OmegaConf.register_new_resolver("rank", lambda: rank, replace=True)
    OmegaConf.register_new_resolver("by_rank", lambda first, others: others if rank else first, replace=True)


def agreed_stamp() -> str:
    """Return the time of start, the same on all ranks and after an elastic restart.

    The first rank to come sets it, in the store where they meet, and all read it.
    """
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    if not started_by_torchrun():
        return stamp
    return distributed.meeting_place().compare_set(_STAMP_KEY, "", stamp).decode()


def is_rank_0() -> bool:
    """Tell whether this process is the one that writes what all ranks share."""
    return os.environ.get("RANK", "0") == "0"


def started_by_torchrun() -> bool:
    """Tell whether this process is one of torchrun's ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def run_directory() -> Path:
    """Return the directory that Hydra chose for this run, from within a job."""
    return Path(HydraConfig.get().runtime.output_dir)
