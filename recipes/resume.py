"""Going on from a checkpoint: exactly where it was, or with other numbers of ranks and workers."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import set_state_dict

from automodel_data.errors import DataError
from recipes.checkpoint import RUN_RECORD, explained, is_complete, newest, rank_file, tensors
from recipes.generators import restore_generators
from recipes.mistakes import ConfigError
from recipes.optim import adopt, options
from recipes.result import OF_NO_CONSEQUENCE

if TYPE_CHECKING:
    from recipes.trainer import Trainer

log = logging.getLogger(__name__)

_AUTO = "auto"
_SHOWN_CHANGES = 8


@dataclass(kw_only=True, slots=True)
class ResumeConfig:
    """Where a run goes on from.

    Args:
        path: The folder of a checkpoint; ``auto``: the newest complete one of this run or, where it has none, of the
            runs of the same name; null: a run starts from nothing.
        elastic: Also with another number of ranks or workers: the rows not yet read are dealt out anew.
    """

    path: str | None = None
    elastic: bool = False


def resume(trainer: "Trainer", config: ResumeConfig) -> None:
    """Load the checkpoint that ``config`` names, if any; every rank must call it.

    Raises:
        ConfigError: It is not complete, is another model's, or was written by other numbers of ranks or workers.
    """
    if config.path is None:
        return
    path = trainer.world.share(_choose(config.path, trainer.checkpoints.directory) if trainer.world.leads else None)
    if path is None:
        log.info("resume=auto: no complete checkpoint yet, starting from step 0")
        return
    record = json.loads((path / RUN_RECORD).read_text())
    changes = list(_changes(trainer.checkpoints.resolved, record["config"]))
    if changes:
        told = ", ".join(f"{key} ({then!r} then, {now!r} now)" for key, then, now in changes[:_SHOWN_CHANGES])
        log.warning("resume: the config is not the checkpoint's: %s", told)
    fresh = options(trainer.optimizer)
    _load_tensors(trainer, path)
    trainer.schedule.load_state_dict(record["schedule"])
    adopt(trainer.optimizer, trainer.schedule, fresh, _options_among(changes))
    trainer.step = record["step"]
    trainer.resumed_from = path
    trainer.latest.update(record["metrics"])
    ranks = [json.loads((path / rank_file(rank)).read_text()) for rank in range(record["world_size"])]
    _load_data(trainer, path, [one["loader"] for one in ranks], config.elastic)
    if trainer.world.rank < len(ranks):
        restore_generators(ranks[trainer.world.rank]["generators"])
        trainer.means.load_state_dict(ranks[trainer.world.rank]["means"])
    log.info("resumed at step %d from %s", trainer.step, path)
    if trainer.step >= trainer.config.max_steps:
        log.info("nothing to do: train.max_steps is %d; raise it to train on", trainer.config.max_steps)


def _choose(wanted: str, directory: Path) -> Path | None:
    if wanted == _AUTO:
        return newest([directory]) or newest(directory.parent.parent.glob(f"*/{directory.name}"))
    path = Path(wanted)
    if not is_complete(path):
        raise ConfigError(f"resume.path ({path}): not a complete checkpoint; name a step-... folder, or resume=auto")
    return path


def _load_tensors(trainer: "Trainer", path: Path) -> None:
    saved = tensors(trainer)
    with explained(lambda: f"resume ({path}): does not fit this model"):
        dcp.load(saved, checkpoint_id=path)
    set_state_dict(
        trainer.bare, trainer.optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
    )
    if trainer.ema is not None:
        trainer.ema.load_state_dict(saved["ema"])


def _load_data(trainer: "Trainer", path: Path, states: Sequence[Mapping[str, Any]], elastic: bool) -> None:
    """Give the loader its own rank's state or, where ranks or workers changed and it is wished, those of all."""
    world = trainer.world
    try:
        if len(states) != world.size:
            raise DataError(f"it was written by {len(states)} ranks, this run has {world.size}: launch as many as then")
        trainer.loader.load_state_dict(states[world.rank])
    except DataError as error:
        if not elastic:
            raise ConfigError(
                f"resume ({path}): {error}; or set resume.elastic=true to deal out the unread rows anew, which takes "
                "other ranks, workers and batch sizes"
            ) from error
        trainer.loader.load_elastic(states)
        log.info("resume: dealt the unread rows of %d ranks to %d (%s)", len(states), world.size, error)


def _changes(now: Mapping[str, Any], then: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    """Yield ``(key, value then, value now)`` of what has consequences for a step."""
    before = dict(_flat(then))
    for key, value in _flat(now):
        if key.partition(".")[0] not in OF_NO_CONSEQUENCE and before.get(key) != value:
            yield key, before.get(key), value


def _options_among(changes: Iterable[tuple[str, object, object]]) -> set[str]:
    """Return which options of the optimizer changed."""
    keys = (key.split(".") for key, _, _ in changes)
    return {parts[1] for parts in keys if parts[0] == "optimizer" and len(parts) > 1}


def _flat(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _flat(value, f"{key}.{name}" if key else name)
    else:
        yield key, node
