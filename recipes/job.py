"""One training run from its config to its last metric: join the ranks, make the parts, train."""

import functools
import logging
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recipes import distributed, result
from recipes.checkpoint import Checkpoints
from recipes.config import RunConfig
from recipes.distributed import Fsdp2, World
from recipes.ema import Ema
from recipes.generators import seed_all
from recipes.mistakes import ConfigError
from recipes.models.bagel import BagelConfig, PublishedWeights
from recipes.optim import build_optimizer
from recipes.resume import resume
from recipes.tasks.base import Loader, Task
from recipes.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run: its config, the same as plain values for the record, and its directory."""

    config: RunConfig
    resolved: Mapping[str, Any]
    directory: Path


def run(job: Job) -> float | None:
    """Train as ``job`` says on this rank, together with all others; return the value of its objective.

    Raises:
        ConfigError, DataError: The configuration or the data cannot feed a run; before the model is built, if possible.
        SystemExit: The run was asked to stop and is saved; the code is 128 plus the signal.
    """
    world = distributed.start(job.config.distributed.timeout_minutes)
    steps = f"{job.config.name}: {job.config.train.max_steps} steps"
    log.info("%s on %d rank(s), %s; everything goes to %s", steps, world.size, world.device, job.directory)
    if job.config.sources.prepare is not None:
        job.config.sources.prepare()
    trainer = build_trainer(job, world)
    resume(trainer, job.config.resume)
    with stopped_by_signals(trainer) as received:
        metrics = trainer.fit()
    if trainer.stopping:
        number = max(world.gather(max(received, default=0)))
        name, last = signal.Signals(number).name, trainer.config.max_steps
        log.info("stopped by %s at step %d of %d; go on with resume=auto", name, trainer.step, last)
        raise SystemExit(128 + number)
    return _leave_result(job, trainer, metrics)


def build_trainer(job: Job, world: World) -> Trainer:
    """Make every part of a run; the data first, so that its faults show before the model costs time."""
    config = job.config
    task = config.task.build(config.model, world.device)
    loader = _loader(task, config.data, world, config.train.seed)
    seed_all(config.train.seed)  # the same weights on every rank
    bare, model = _model(config, world)
    seed_all(config.train.seed + 1 + world.rank)
    optimizer = build_optimizer(config.optimizer, bare)
    heldout = config.validation.data
    return Trainer(
        config=config.train,
        directory=job.directory,
        world=world,
        task=task,
        loader=loader,
        heldout=None if heldout is None else functools.partial(_loader, task, heldout, world, config.train.seed),
        bare=bare,
        model=model,
        strategy=config.distributed,
        precision=_precision(config.train.precision, world.device),
        optimizer=optimizer,
        schedule=config.lr_schedule.build(optimizer, config.train.max_steps),
        ema=None if config.train.ema_decay is None else Ema(bare, config.train.ema_decay),
        checkpoints=Checkpoints(config.checkpoint, job.directory, job.resolved),
        callbacks=[one for one in (*config.logger.values(), *config.callbacks.values()) if one is not None],
    )


def _leave_result(job: Job, trainer: Trainer, metrics: Mapping[str, float]) -> float | None:
    name = job.config.objective
    if name == "auto":
        name = "val/loss" if "val/loss" in metrics else "loss"
    value = None if name is None else metrics.get(name)
    if name is not None and value is None:
        log.warning("objective (%s): no such metric; choose one of %s", name, ", ".join(sorted(metrics)))
    if trainer.world.leads:
        settings = result.fingerprint(job.resolved)
        result.write(result.Result(step=trainer.step, objective=name, value=value, settings=settings), job.directory)
    return value


@contextmanager
def stopped_by_signals(trainer: Trainer) -> Iterator[list[int]]:
    """Make SIGTERM and SIGINT ask ``trainer`` to save and leave; yield the list of signals that came.

    A second SIGINT, from somebody who does not want to wait for that, ends the process at once.
    """
    received: list[int] = []

    def ask(number: int, frame: object) -> None:
        received.append(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        trainer.stop_requested = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _loader(task: Task, data: Any, world: World, seed: int) -> Loader:
    try:
        return task.loader(data, world, seed)
    except ValueError as error:  # the data's own checks of its knobs; they name the key
        raise ConfigError(str(error)) from error


def _model(config: RunConfig, world: World) -> tuple[nn.Module, nn.Module]:
    """Return the model itself, and the same tied to the other ranks."""
    precision = _precision(config.train.precision, world.device)
    match config.model, config.distributed:
        case BagelConfig(pretrained=PublishedWeights() as weights), Fsdp2() as strategy:  # never whole on any rank:
            bare = config.model.build(device="meta")  # sharded while it is nothing but shapes,
            model = strategy.wrap(bare, world, precision)
            bare.to_empty(device=world.device)
            weights.load(bare)  # then every rank keeps its part of what it reads
        case _, strategy:
            bare = config.model.build().to(world.device)
            model = strategy.wrap(bare, world, precision)
    return bare, model


def _precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return getattr(torch, name)
