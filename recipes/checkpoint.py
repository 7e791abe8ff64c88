"""Checkpoints: all that a run needs to go on exactly where it was, published whole or not at all.

checkpoints/.step-00000200/            being written: weights by torch.distributed.checkpoint, one JSON per rank
checkpoints/step-00000200/complete.json   renamed once all ranks are done; lists every file with its size
"""

import json
import logging
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict

from recipes.distributed import World
from recipes.generators import generator_state
from recipes.mistakes import ConfigError, require_at_least

if TYPE_CHECKING:
    from recipes.trainer import Trainer

log = logging.getLogger(__name__)

RUN_RECORD = "run.json"
_MARKER = "complete.json"
_LIBRARIES = ("torch", "numpy", "transformers", "diffusers")


@dataclass(kw_only=True, slots=True)
class CheckpointConfig:
    """When checkpoints are written and how many stay.

    Args:
        every_steps: Steps between two checkpoints; None for one at the end only.
        keep: How many of the newest stay.
        best: A metric, as it is logged, whose lowest value's checkpoint stays too.
        at_end: Write one after the last step.
        asynchronous: Train on while a checkpoint is written, from a copy in the host's memory.
    """

    every_steps: int | None = None
    keep: int = 2
    best: str | None = None
    at_end: bool = True
    asynchronous: bool = False

    def check(self) -> None:
        """Refuse intervals and counts that mean nothing."""
        if self.every_steps is not None and self.every_steps < 1:
            raise ConfigError(f"checkpoint.every_steps ({self.every_steps}) must be at least 1, or null")
        require_at_least(1, **{"checkpoint.keep": self.keep})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Snapshot:
    """What of a run is written beside its tensors, as it was at one step, in plain values."""

    step: int
    rank: Mapping[str, Any]
    run: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one run.

    Args:
        resolved: The run's config as plain values, kept in every checkpoint.
    """

    def __init__(self, config: CheckpointConfig, directory: Path, resolved: Mapping[str, Any]) -> None:
        self._config = config
        self.directory = directory / "checkpoints"
        self.resolved = resolved
        self._saved_step: int | None = None
        self._writing: Future[None] | None = None
        self._apart: World | None = None  # what the writing threads of all ranks meet in

    def save_if_due(self, trainer: "Trainer") -> None:
        """Save where ``every_steps`` says so."""
        every = self._config.every_steps
        if every is not None and trainer.step % every == 0:
            self.save(trainer)

    def save_last(self, trainer: "Trainer") -> None:
        """Save the end of the run, or where it was asked to stop, unless that step is safe already; wait for all."""
        wanted = self._config.at_end or trainer.stopping
        if wanted and self._saved_step != trainer.step:
            self.save(trainer)
        self.wait()

    def save(self, trainer: "Trainer") -> None:
        """Write a checkpoint under a temporary name and publish it by one rename; every rank must call it.

        With ``asynchronous`` it returns once the tensors are copied; a failure is raised by the next ``wait``.

        Raises:
            ConfigError: It cannot be written, e.g. to a full disk; those before it are untouched.
        """
        self.wait()
        with self._explained_by_its_path(trainer.step):
            if trainer.world.leads:
                shutil.rmtree(self._temporary(trainer.step), ignore_errors=True)
                self._temporary(trainer.step).mkdir(parents=True)
            trainer.world.barrier()
            if self._config.asynchronous:
                self._save_behind(trainer)
            else:
                dcp.save(tensors(trainer), checkpoint_id=self._temporary(trainer.step))
                self._complete(self._snapshot(trainer), trainer.world)
        self._saved_step = trainer.step

    def wait(self) -> None:
        """Wait until the checkpoint that is being written, if any, is published; raise why it cannot be."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _save_behind(self, trainer: "Trainer") -> None:
        """Copy the tensors, then write in threads, whose messages to the other ranks are a group's of their own."""
        self._apart = self._apart or trainer.world.apart()
        written = dcp.async_save(
            tensors(trainer), checkpoint_id=self._temporary(trainer.step), process_group=self._apart.group
        )
        self._writing = self._thread.submit(self._complete_behind, written, self._snapshot(trainer), self._apart)

    def _complete_behind(self, written: Future[Any], snapshot: _Snapshot, world: World) -> None:
        with self._explained_by_its_path(snapshot.step):
            written.result()
            self._complete(snapshot, world)

    def _complete(self, snapshot: _Snapshot, world: World) -> None:
        """Write what belongs beside the tensors and publish the whole, once every rank has written its part."""
        writing = self._temporary(snapshot.step)
        _write_json(writing / rank_file(world.rank), snapshot.rank)
        world.barrier()
        if world.leads:
            _write_json(writing / RUN_RECORD, snapshot.run)
            _publish(writing, self._final(snapshot.step))
            self._prune()
        world.barrier()
        log.info("saved %s", self._final(snapshot.step))

    def _snapshot(self, trainer: "Trainer") -> _Snapshot:
        return _Snapshot(
            step=trainer.step,
            rank={
                "loader": trainer.loader.state_dict(),
                "generators": generator_state(),
                "means": trainer.means.state_dict(),
            },
            run={
                "step": trainer.step,
                "world_size": trainer.world.size,
                "schedule": trainer.schedule.state_dict(),
                "metrics": dict(trainer.latest),
                "config": self.resolved,
                "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
            },
        )

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def _final(self, step: int) -> Path:
        return self.directory / f"step-{step:08d}"

    def _temporary(self, step: int) -> Path:
        return self.directory / f".step-{step:08d}"

    @contextmanager
    def _explained_by_its_path(self, step: int) -> Iterator[None]:
        def what() -> str:
            free = shutil.disk_usage(self.directory.parent).free / 2**20
            return f"cannot write the checkpoint {self._final(step)} ({free:,.0f} MiB are free there)"

        with explained(what):
            yield

    def _prune(self) -> None:
        """Remove all but the newest ``keep``, and the best where one is asked for; the marker goes first."""
        found = sorted(path for path in self.directory.glob("step-*") if is_complete(path))
        kept = set(found[-self._config.keep :])
        kept |= self._best(found)
        for path in found:
            if path not in kept:
                (path / _MARKER).unlink()
                shutil.rmtree(path)

    def _best(self, found: Sequence[Path]) -> set[Path]:
        """Return the checkpoint with the lowest finite value of ``best``, if one is asked for and there is any."""
        name = self._config.best
        if name is None:
            return set()
        metrics = {path: json.loads((path / RUN_RECORD).read_text())["metrics"] for path in found}
        values = {path: known[name] for path, known in metrics.items() if math.isfinite(known.get(name, math.nan))}
        if not values:
            known = ", ".join(sorted(metrics[found[-1]])) or "none yet"
            log.warning("checkpoint.best (%s): no checkpoint has a finite value of it; metrics are: %s", name, known)
            return set()
        return {min(values, key=values.__getitem__)}


def newest(directories: Iterable[Path]) -> Path | None:
    """Return the complete checkpoint that was published last in any of ``directories``; None where there is none."""
    found = [path for directory in directories for path in directory.glob("step-*") if is_complete(path)]
    return max(found, key=lambda path: ((path / _MARKER).stat().st_mtime_ns, path.name), default=None)


def is_complete(path: Path) -> bool:
    """Tell whether ``path`` was published, and nothing in it was cut short since."""
    marker = path / _MARKER
    if not marker.is_file():
        return False
    sizes = json.loads(marker.read_text())
    return all((path / name).is_file() and (path / name).stat().st_size == size for name, size in sizes.items())


def tensors(trainer: "Trainer") -> dict[str, Any]:
    """Return what ``torch.distributed.checkpoint`` writes and reads: weights, optimizer, average of the weights."""
    model, optimizer = get_state_dict(trainer.bare, trainer.optimizer)
    ema = {} if trainer.ema is None else {"ema": trainer.ema.state_dict()}
    return {"model": model, "optimizer": optimizer, **ema}


def rank_file(rank: int) -> str:
    """Return the name of the file that holds what only one rank knows: its loader's state, its generators."""
    return f"rank-{rank:05d}.json"


@contextmanager
def explained(what: Callable[[], str]) -> Iterator[None]:
    """Turn errors of files, names and shapes into one line; ``torch.distributed.checkpoint`` wraps its own."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what()}: {error}") from error
    except CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        if not isinstance(cause, OSError | ValueError | RuntimeError):
            raise
        raise ConfigError(f"{what()}: {str(cause).strip().partition(chr(10))[0]}") from error


def _publish(writing: Path, final: Path) -> None:
    _write_json(writing / _MARKER, {path.name: path.stat().st_size for path in sorted(writing.iterdir())})
    shutil.rmtree(final, ignore_errors=True)
    writing.rename(final)
    _sync(final.parent)


def _write_json(path: Path, value: object) -> None:
    with path.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
