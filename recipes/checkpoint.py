"""Checkpoints: all that a run needs to go on exactly where it was, published whole or not at all.

checkpoints/.step-00000200/            being written: weights by torch.distributed.checkpoint, one JSON per rank
checkpoints/step-00000200/complete.json   renamed once all ranks are done; lists every file with its size
"""

import json
import logging
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from automodel_data.errors import DataError
from recipes.generators import generator_state, restore_generators
from recipes.mistakes import ConfigError

if TYPE_CHECKING:
    from recipes.trainer import Trainer

log = logging.getLogger(__name__)

_MARKER = "complete.json"
_AUTO = "auto"
_SHOWN_CHANGES = 8
_LIBRARIES = ("torch", "numpy", "transformers", "diffusers")
_MAY_CHANGE = ("resume", "output_dir", "logger", "callbacks", "checkpoint", "launch")


@dataclass(kw_only=True, slots=True)
class CheckpointConfig:
    """When checkpoints are written and how many stay.

    Args:
        every_steps: Steps between two checkpoints; None for one at the end only.
        keep: How many of the newest stay.
        best: A metric, as it is logged, whose lowest value's checkpoint stays too.
        at_end: Write one after the last step.
        elastic: Resume also with another number of ranks or workers: the rows not yet read are dealt out anew.
    """

    every_steps: int | None = None
    keep: int = 2
    best: str | None = None
    at_end: bool = True
    elastic: bool = False

    def check(self) -> None:
        """Refuse intervals and counts that mean nothing."""
        if self.every_steps is not None and self.every_steps < 1:
            raise ConfigError(f"checkpoint.every_steps ({self.every_steps}) must be at least 1, or null")
        if self.keep < 1:
            raise ConfigError(f"checkpoint.keep ({self.keep}) must be at least 1")


class Checkpoints:
    """The checkpoints of one run.

    Args:
        resolved: The run's config as plain values, kept in every checkpoint.
    """

    def __init__(self, config: CheckpointConfig, directory: Path, resolved: Mapping[str, Any]) -> None:
        self._config = config
        self._directory = directory / "checkpoints"
        self.resolved = resolved
        self._saved_step: int | None = None

    def save_if_due(self, trainer: "Trainer") -> None:
        """Save where ``every_steps`` says so."""
        every = self._config.every_steps
        if every is not None and trainer.step % every == 0:
            self.save(trainer)

    def save_last(self, trainer: "Trainer") -> None:
        """Save the end of the run, or where it was asked to stop, unless that step is safe already."""
        wanted = self._config.at_end or trainer.stopping
        if wanted and self._saved_step != trainer.step:
            self.save(trainer)

    def save(self, trainer: "Trainer") -> None:
        """Write a checkpoint under a temporary name and publish it by one rename; every rank must call it.

        Raises:
            ConfigError: It cannot be written, e.g. to a full disk; those before it are untouched.
        """
        final = self._directory / f"step-{trainer.step:08d}"
        with _explained(f"cannot write the checkpoint {final}"):
            self._write(trainer, final, writing=self._directory / f".{final.name}")
        self._saved_step = trainer.step
        log.info("saved %s", final)

    def _write(self, trainer: "Trainer", final: Path, writing: Path) -> None:
        world = trainer.world
        if world.leads:
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
        world.barrier()
        dcp.save(_tensors(trainer), checkpoint_id=writing)
        _write_json(writing / _rank_file(world.rank), _rank_state(trainer))
        world.barrier()
        if world.leads:
            _write_json(writing / "run.json", self._run_record(trainer))
            _publish(writing, final)
            self._prune(trainer)
        world.barrier()

    def restore(self, trainer: "Trainer", resume: str) -> None:
        """Load the checkpoint that ``resume`` names; ``auto`` starts from nothing where there is none yet."""
        path = trainer.world.share(self._choose(resume) if trainer.world.leads else None)
        if path is None:
            log.info("resume=auto: no complete checkpoint yet, starting from step 0")
            return
        record = json.loads((path / "run.json").read_text())
        _warn_of_changes(self.resolved, record)
        tensors = _tensors(trainer)
        with _explained(f"resume ({path}): does not fit this model"):
            dcp.load(tensors, checkpoint_id=path)
        set_state_dict(
            trainer.bare, trainer.optimizer, model_state_dict=tensors["model"], optim_state_dict=tensors["optimizer"]
        )
        if trainer.ema is not None:
            trainer.ema.load_state_dict(tensors["ema"])
        trainer.schedule.load_state_dict(record["schedule"])
        trainer.step = record["step"]
        ranks = [json.loads((path / _rank_file(rank)).read_text()) for rank in range(record["world_size"])]
        self._restore_data(trainer, path, [one["loader"] for one in ranks])
        if trainer.world.rank < len(ranks):
            restore_generators(ranks[trainer.world.rank]["generators"])
            trainer.means.load_state_dict(ranks[trainer.world.rank]["means"])
        log.info("resumed at step %d from %s", trainer.step, path)

    def _restore_data(self, trainer: "Trainer", path: Path, states: Sequence[Mapping[str, Any]]) -> None:
        """Give the loader its own rank's state or, where ranks or workers changed and it is wished, those of all."""
        world = trainer.world
        try:
            if len(states) != world.size:
                raise DataError(f"it was written by {len(states)} ranks, this run has {world.size}")
            trainer.loader.load_state_dict(states[world.rank])
        except DataError as error:
            if not self._config.elastic:
                raise ConfigError(
                    f"resume ({path}): {error}; or set checkpoint.elastic=true to deal out the unread rows anew"
                ) from error
            trainer.loader.load_elastic(states)
            log.info("resume: dealt the unread rows of %d ranks to %d (%s)", len(states), world.size, error)

    def _choose(self, resume: str) -> Path | None:
        if resume == _AUTO:
            return newest([self._directory]) or newest(self._directory.parent.parent.glob("*/checkpoints"))
        path = Path(resume)
        if not is_complete(path):
            raise ConfigError(f"resume ({path}): not a complete checkpoint; name a step-... folder, or use resume=auto")
        return path

    def _run_record(self, trainer: "Trainer") -> dict[str, Any]:
        return {
            "step": trainer.step,
            "world_size": trainer.world.size,
            "schedule": trainer.schedule.state_dict(),
            "metrics": trainer.latest,
            "config": self.resolved,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        }

    def _prune(self, trainer: "Trainer") -> None:
        """Remove all but the newest ``keep``, and the best where one is asked for; the marker goes first."""
        found = sorted(path for path in self._directory.glob("step-*") if is_complete(path))
        kept = set(found[-self._config.keep :])
        if self._config.best is not None:
            kept.add(min(found, key=lambda path: _metric(path, self._config.best)))
        for path in found:
            if path not in kept:
                (path / _MARKER).unlink()
                shutil.rmtree(path)


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


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn errors of files, names and shapes into one line; ``torch.distributed.checkpoint`` wraps its own."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{what}: {error}") from error
    except CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        if not isinstance(cause, OSError | ValueError | RuntimeError):
            raise
        raise ConfigError(f"{what}: {str(cause).strip().partition(chr(10))[0]}") from error


def _tensors(trainer: "Trainer") -> dict[str, Any]:
    model, optimizer = get_state_dict(trainer.bare, trainer.optimizer)
    ema = {} if trainer.ema is None else {"ema": trainer.ema.state_dict()}
    return {"model": model, "optimizer": optimizer, **ema}


def _rank_state(trainer: "Trainer") -> dict[str, Any]:
    return {
        "loader": trainer.loader.state_dict(),
        "generators": generator_state(),
        "means": trainer.means.state_dict(),
    }


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


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def _metric(path: Path, name: str) -> float:
    return json.loads((path / "run.json").read_text())["metrics"].get(name, float("inf"))


def _warn_of_changes(now: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    then = dict(_flat(record["config"]))
    changed = [
        f"{key} ({then.get(key)!r} then, {value!r} now)"
        for key, value in _flat(now)
        if key.partition(".")[0] not in _MAY_CHANGE and then.get(key) != value
    ]
    if changed:
        log.warning("resume: the config is not the checkpoint's: %s", ", ".join(changed[:_SHOWN_CHANGES]))


def _flat(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _flat(value, f"{key}.{name}" if key else name)
    else:
        yield key, node
