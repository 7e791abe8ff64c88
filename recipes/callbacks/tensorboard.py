"""Metrics in TensorBoard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recipes.callbacks.base import Callback
from recipes.mistakes import ConfigError
from recipes.trainer import Trainer


@dataclass(kw_only=True, slots=True)
class TensorBoard(Callback):
    """Write event files to ``tensorboard/`` in the run directory, on rank 0."""

    _writer: Any = field(default=None, init=False)

    def start(self, trainer: Trainer) -> None:
        """Open the writer; events behind a resumed step are hidden."""
        if trainer.world.leads:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ConfigError("logger.tensorboard needs: pip install 'automodel-data[tensorboard]'") from error
            self._writer = SummaryWriter(trainer.directory / "tensorboard", purge_step=trainer.step + 1)

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Add one scalar per metric."""
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, trainer.step)

    def finish(self, trainer: Trainer) -> None:
        """Flush what is left."""
        if self._writer is not None:
            self._writer.close()
