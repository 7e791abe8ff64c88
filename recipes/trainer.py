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
from recipes.metrics import Means
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
    stop_requested: bool = False
    stopping: bool = False  # every rank has seen the request
    report: StepReport | None = None
    latest: dict[str, float] = field(default_factory=dict)
    _means: Means = field(default_factory=Means)
    _batches: Iterator[Any] = field(init=False)

    def fit(self) -> Mapping[str, float]:
        """Train up to ``max_steps``; return the latest metrics."""
        self._batches = iter(self.loader)
        for callback in self.callbacks:
            callback.start(self)
        while self.step < self.config.max_steps and not self.stopping:
            self.train_step()
            if self.step % self.config.log_every_steps == 0:
                self.log(self._measure())
            for callback in self.callbacks:
                callback.after_step(self)
            self.checkpoints.save_if_due(self)
        self.checkpoints.save_last(self)
        for callback in self.callbacks:
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
        seconds = time.perf_counter() - began
        self._means.add("train/step_seconds", seconds, 1)
        self._means.add("train/data_wait", waited, seconds)
        self._means.add("train/tokens_per_second", sum(self.task.size(batch).tokens for batch in batches), seconds)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Hand ``metrics`` of the present step to every callback."""
        self.latest.update(metrics)
        for callback in self.callbacks:
            callback.log(self, metrics)

    def count(self, means: Means, prefix: str, batch: Any, terms: LossTerms) -> None:
        """Add a micro-batch's losses to ``means``, as a whole and by dataset group."""
        for term, total, count in zip(self.task.terms, terms.sums.detach(), self.task.counts(batch), strict=True):
            means.add(f"{prefix}/{term}", total, count)
        for group, table in terms.groups.items():
            for term, (total, count) in zip(self.task.terms, table, strict=True):
                means.add(f"{prefix}/{term}/{group}", total, count)

    def losses(self, batch: Any, seed: int, number: int) -> LossTerms:
        """Compute a batch's loss terms; the noise depends on ``seed`` and the batch's ``number`` alone."""
        device = self.world.device
        mixed = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=7).digest()
        generator = torch.Generator(device).manual_seed(int.from_bytes(mixed))
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
        self.count(self._means, "train", batch, terms)
        size = self.task.size(batch)
        self._means.add("train/samples_per_batch", size.samples, 1)
        if size.capacity is not None:
            self._means.add("train/fill", size.tokens, size.capacity)
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

    def _measure(self) -> dict[str, float]:
        metrics = self._means.reduce(self.world)
        metrics["train/tokens_per_second"] *= self.world.size
        weighted = zip(self.task.weights, self.task.terms, strict=True)
        metrics["train/loss"] = sum(weight * metrics.get(f"train/{term}", 0.0) for weight, term in weighted)
        for callback in self.callbacks:
            metrics.update(callback.measure(self))
        return metrics
