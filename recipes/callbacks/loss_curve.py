"""The loss curve of the run, as a picture."""

import logging
from dataclasses import dataclass

from recipes.callbacks.base import Callback
from recipes.callbacks.json_lines import FILE_NAME as METRICS
from recipes.pictures import draw_loss_curve
from recipes.trainer import Trainer

log = logging.getLogger(__name__)

FILE_NAME = "loss_curve.png"


@dataclass(kw_only=True, slots=True)
class LossCurve(Callback):
    """Draw ``loss_curve.png`` in the run directory from ``metrics.jsonl`` at the end."""

    def finish(self, trainer: Trainer) -> None:
        """Draw what was logged; without ``logger.json_lines`` there is nothing to draw."""
        metrics, picture = trainer.directory / METRICS, trainer.directory / FILE_NAME
        if trainer.world.leads and metrics.exists():
            draw_loss_curve(metrics, picture)
            log.info("loss curve: %s", picture)
