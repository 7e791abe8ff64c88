"""Stop before a broken gradient reaches the weights."""

from dataclasses import dataclass

import torch

from recipes.callbacks.base import Callback
from recipes.trainer import StepReport, Trainer


class NonFiniteError(ArithmeticError):
    """A loss or a gradient is NaN or infinite; the message names the rows it came from."""


@dataclass(kw_only=True, slots=True)
class NanGuard(Callback):
    """Raise ``NonFiniteError`` before the update of a step whose gradient is not finite."""

    def before_update(self, trainer: Trainer, report: StepReport) -> None:
        """Look at the norm, which any bad value on any rank spoils on all of them; then find the culprit's rows."""
        if torch.isfinite(report.gradient_norm):
            return
        mine = [
            origin
            for batch, sums in zip(report.batches, report.sums, strict=True)
            if not torch.isfinite(sums).all()
            for origin in trainer.loader.origins(batch)
        ]
        suspects = [origin for theirs in trainer.world.gather(mine) for origin in theirs]
        where = (
            f"a loss is not finite in a batch of {'; '.join(suspects)}"
            if suspects
            else "every loss is finite, the backward pass is not"
        )
        raise NonFiniteError(
            f"the gradient of step {trainer.step + 1} is {report.gradient_norm.item()}: {where}; "
            "the weights are those of the step before"
        )
