"""The learning rate."""

from dataclasses import dataclass

from recipes.callbacks.base import Callback
from recipes.trainer import Trainer


@dataclass(kw_only=True, slots=True)
class LearningRate(Callback):
    """Measure ``learning_rate`` of the next step."""

    def measure(self, trainer: Trainer) -> dict[str, float]:
        """Return the rate of the first parameter group."""
        return {"learning_rate": trainer.schedule.get_last_lr()[0]}
