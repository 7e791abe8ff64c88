"""Metrics in Weights & Biases, offline unless told otherwise."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recipes.callbacks.base import Callback
from recipes.callbacks.lost_samples import FILE_NAME as LOST
from recipes.mistakes import ConfigError
from recipes.trainer import Trainer

_ID_FILE = "wandb_id.txt"


@dataclass(kw_only=True, slots=True)
class Wandb(Callback):
    """Log to W&B from rank 0; a run resumed in its directory goes on under its id.

    Args:
        project: The project in W&B.
        name: The run's name there; null: W&B makes one up.
        mode: ``offline`` needs no network (``wandb sync`` uploads later), ``online``, or ``disabled``.
    """

    project: str = "automodel-data"
    name: str | None = None
    mode: str = "offline"
    _run: Any = field(default=None, init=False)

    def start(self, trainer: Trainer) -> None:
        """Open the run."""
        if not trainer.world.leads:
            return
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("logger.wandb needs: pip install 'automodel-data[wandb]'") from error
        id_file = trainer.directory / _ID_FILE
        run_id = id_file.read_text() if id_file.exists() else secrets.token_hex(4)
        id_file.write_text(run_id)
        self._run = wandb.init(
            project=self.project,
            name=self.name,
            mode=self.mode,
            dir=trainer.directory,
            id=run_id,
            resume="allow",
            config=dict(trainer.checkpoints.resolved),
        )

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step."""
        if self._run is not None:
            self._run.log(dict(metrics), step=trainer.step)

    def finish(self, trainer: Trainer) -> None:
        """Log the pictures and the table of lost samples that the other callbacks left, and close the run."""
        if self._run is None:
            return
        import wandb

        pictures = {path.stem: wandb.Image(str(path)) for path in trainer.directory.glob("*.png")}
        lost = json.loads((trainer.directory / LOST).read_text()) if (trainer.directory / LOST).exists() else {}
        rows = [[dataset, reason, count] for dataset, reasons in lost.items() for reason, count in reasons.items()]
        table = wandb.Table(columns=["dataset", "reason", "samples"], data=rows)
        self._run.log(pictures | {"lost": table}, step=trainer.step)
        self._run.finish()
