"""The training loop: ``fit`` and ``train_step``. The task knows what a loss is, the callbacks do everything beside."""

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from recipes.callbacks.base import Callback
from recipes.checkpoint import Checkpoints
from recipes.config import TrainConfig
from recipes.distributed import Ddp, Fsdp2, World
from recipes.ema import Ema
from recipes.metrics import Means, add_losses, weighted_loss
from recipes.tasks.base import Loader, LossTerms, Task

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """One step on this rank, before its update: micro-batches, their summed losses ``[terms]``, the gradient's norm."""

    batches: Sequence[Any]
    sums: Sequence[torch.Tensor]
    gradient_norm: torch.Tensor


@dataclass(kw_only=True, slots=True)
class Trainer:
    """Everything that takes part in training on one rank.

    Args:
        heldout: Makes a fresh stream of held-out batches, always the same.
        bare: The model itself; ``model`` is the same, tied to the other ranks by ``strategy``.
        resumed_from: The checkpoint that the run went on from, if it did.
        stop_requested: Set it (from a signal handler) to save and leave after the current step, on all ranks alike.
    """

    config: TrainConfig
    directory: Path
    world: World
    task: Task
    loader: Loader
    bare: nn.Module
    model: nn.Module
    strategy: Ddp | Fsdp2
    precision: torch.dtype
    optimizer: Optimizer
    schedule: LRScheduler
    ema: Ema | None
    checkpoints: Checkpoints
    callbacks: Sequence[Callback]
    heldout: Callable[[], Loader] | None = None
    step: int = 0
    resumed_from: Path | None = None
    stop_requested: bool = False
    stopping: bool = False  # every rank has seen the request
    report: StepReport | None = None
    latest: dict[str, float] = field(default_factory=dict)
    means: Means = field(default_factory=Means)  # since the last log
    _batches: Iterator[Any] = field(init=False)

    def fit(self) -> Mapping[str, float]:
        """Train up to ``max_steps``; return the latest metrics."""
        for callback in self.callbacks:
            callback.start(self)
        self._batches = iter(self.loader)
        while self.step < self.config.max_steps and not self.stopping:
            self.train_step()
            if self.step % self.config.log_every_steps == 0:
                self.log(self._measure())
            for callback in self.callbacks:
                callback.after_step(self)
            self.checkpoints.save_if_due(self)
        self.checkpoints.save_last(self)
        # Loggers are first to start, so that they see all, and last to finish.
        for callback in reversed(self.callbacks):
            callback.finish(self)
        return self.latest

    def train_step(self) -> None:
        """Take one optimizer step: the counts of the whole step first, then every micro-batch forward and backward."""
        began = time.perf_counter()
        batches = [next(self._batches) for _ in range(self.config.accumulation_steps)]
        waited = time.perf_counter() - began
        divisors = self._reduced_counts(batches)
        sums = [self._micro_step(index, batch, divisors) for index, batch in enumerate(batches)]
        self.report = StepReport(batches=batches, sums=sums, gradient_norm=self._clip())
        for callback in self.callbacks:
            callback.before_update(self, self.report)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        if self.ema is not None:
            self.ema.update()
        self.step += 1
        self._count(batches, waited, time.perf_counter() - began)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Hand ``metrics`` of the present step to every callback."""
        self.latest.update(metrics)
        for callback in self.callbacks:
            callback.log(self, metrics)

    def losses(self, batch: Any, seed: int, number: int) -> LossTerms:
        """Compute a batch's loss terms; the noise depends on ``seed`` and the batch's ``number`` alone."""
        device = self.world.device
        generator = noise_generator(seed, number, device)
        with torch.autocast(device.type, self.precision, enabled=self.precision != torch.float32):
            return self.task.losses(self.model, self.task.to(batch, device), generator)

    def _micro_step(self, index: int, batch: Any, divisors: torch.Tensor) -> torch.Tensor:
        """Add a micro-batch's gradient; DDP and FSDP average over ranks, hence the factor."""
        last = index == self.config.accumulation_steps - 1
        number = (self.step * self.config.accumulation_steps + index) * self.world.size + self.world.rank
        with self.strategy.synchronised(self.model, last):
            terms = self.losses(batch, self.config.seed, number)
            weights = torch.tensor(self.task.weights, device=self.world.device)
            (self.world.size * (weights * terms.sums / divisors).sum()).backward()
        add_losses(self.means, self.task.terms, terms.groups)
        return terms.sums.detach()

    def _reduced_counts(self, batches: Sequence[Any]) -> torch.Tensor:
        """Return what each term of this step is divided by: its count in all ranks and micro-batches, or 1 for none.

        One collective, the same on every rank whatever its batches hold; it also carries the wish to stop.
        """
        counts = torch.stack([self.task.counts(batch) for batch in batches]).sum(0)
        wish = torch.tensor([float(self.stop_requested)], dtype=torch.float64)
        totals = self.world.sum(torch.cat([counts, wish]))
        self.stopping = bool(totals[-1] > 0)
        return totals[:-1].masked_fill(totals[:-1] == 0, 1).to(self.world.device, torch.float32)

    def _clip(self) -> torch.Tensor:
        limit = self.config.clip_gradient_norm
        norm = clip_grad_norm_(self.bare.parameters(), float("inf") if limit is None else limit)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _count(self, batches: Sequence[Any], waited: float, seconds: float) -> None:
        self.means.add("step_seconds", seconds, 1)
        self.means.add("data_wait", waited, seconds)
        for size in map(self.task.size, batches):
            self.means.add("samples_per_step", size.samples, 1 / len(batches))
            self.means.add("tokens_per_second", size.tokens, seconds / len(batches))
            if size.capacity is not None:
                self.means.add("fill", size.tokens, size.capacity)

    def _measure(self) -> dict[str, float]:
        metrics = self.means.reduce(self.world)
        for rate in ("tokens_per_second", "samples_per_step"):
            metrics[rate] *= self.world.size
        metrics["loss"] = weighted_loss(self.task, metrics)
        for callback in self.callbacks:
            metrics.update(callback.measure(self))
        return metrics


def noise_generator(seed: int, number: int, device: torch.device) -> torch.Generator:
    """Return the generator of all noise in batch ``number`` of a run, whichever rank it falls to."""
    mixed = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=7).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(mixed))
