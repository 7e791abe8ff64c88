"""The norm of the gradient before clipping."""

from dataclasses import dataclass

from recipes.callbacks.base import Callback
from recipes.trainer import Trainer


@dataclass(kw_only=True, slots=True)
class GradientNorm(Callback):
    """Measure ``gradient_norm`` of the last step."""

    def measure(self, trainer: Trainer) -> dict[str, float]:
        """Return the norm over all parameters and ranks."""
        return {"gradient_norm": trainer.report.gradient_norm.item()}
