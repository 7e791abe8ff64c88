"""Losses on held-out batches: the same batches with the same noise every time, so that values compare."""

import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

import torch

from recipes.callbacks.base import Callback
from recipes.metrics import Means, add_losses, weighted_loss
from recipes.mistakes import require_at_least
from recipes.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Validation(Callback):
    """Log ``val/...`` before the first step, every ``every_steps`` and after the last one, if there are held-out rows.

    Args:
        every_steps: Optimizer steps between two validations.
        batches: How many held-out batches each rank takes; they stay in memory.
        seed: Decides the noise in them.
    """

    every_steps: int = 100
    batches: int = 8
    seed: int = 0
    _kept: list[Any] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Refuse to validate never; to do without set the callback to null."""
        require_at_least(1, every_steps=self.every_steps, batches=self.batches)

    def start(self, trainer: Trainer) -> None:
        """Measure where the model starts from."""
        if trainer.heldout is None:
            return
        self._kept = list(itertools.islice(trainer.heldout(), self.batches))
        if trainer.step == 0:
            self._validate(trainer)

    def after_step(self, trainer: Trainer) -> None:
        """Measure when it is time."""
        if self._kept and (trainer.step % self.every_steps == 0 or trainer.step == trainer.config.max_steps):
            self._validate(trainer)

    @torch.no_grad()
    def _validate(self, trainer: Trainer) -> None:
        means, world = Means(), trainer.world
        trainer.model.eval()
        for index, batch in enumerate(self._kept):
            terms = trainer.losses(batch, self.seed, index * world.size + world.rank)
            add_losses(means, trainer.task.terms, terms.groups, prefix="val/")
        trainer.model.train()
        metrics = means.reduce(world)
        metrics["val/loss"] = weighted_loss(trainer.task, metrics, prefix="val/")
        losses = ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()) if name.count("/") == 1)
        log.info("step %d: held-out %s", trainer.step, losses)
        trainer.log(metrics)
