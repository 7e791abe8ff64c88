"""The moments of a run at which callbacks are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recipes.trainer import StepReport, Trainer


class Callback:
    """Does nothing at every moment; a callback overrides the moments that it needs. Every rank calls all of them."""

    def start(self, trainer: Trainer) -> None:
        """Before the first step; a resumed run has its state back already."""

    def before_update(self, trainer: Trainer, report: StepReport) -> None:
        """Between the backward passes of a step and its optimizer step."""

    def after_step(self, trainer: Trainer) -> None:
        """After each optimizer step; ``trainer.step`` counts it already."""

    def measure(self, trainer: Trainer) -> Mapping[str, float]:
        """Return metrics to log along with the losses; called on every rank, rank 0's are logged."""
        return {}

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Take metrics of ``trainer.step``, equal on all ranks."""

    def finish(self, trainer: Trainer) -> None:
        """After the last step, once the last checkpoint is safe."""
