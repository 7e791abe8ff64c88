"""Metrics as JSON lines, for people's own tools and for the loss curve."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recipes.callbacks.base import Callback
from recipes.trainer import Trainer

FILE_NAME = "metrics.jsonl"


@dataclass(kw_only=True, slots=True)
class JsonLines(Callback):
    """Append ``{"step": ..., name: value, ...}`` to ``metrics.jsonl`` in the run directory, on rank 0.

    A run that goes on in another directory brings the lines before it along.
    """

    def start(self, trainer: Trainer) -> None:
        """Take over the lines of the run that is gone on from, up to the step that is resumed."""
        path = _path(trainer)
        origin = path if trainer.resumed_from is None else trainer.resumed_from.parents[1] / FILE_NAME
        known = path if path.exists() else origin
        if trainer.world.leads and known.exists():
            lines = known.read_text().splitlines(keepends=True)
            path.write_text(
                "".join(line for line in lines if _step(line) <= trainer.step)
            )  # later ones are taken again

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Append a line."""
        if trainer.world.leads:
            with _path(trainer).open("a") as file:
                file.write(json.dumps({"step": trainer.step, **metrics}) + "\n")


def _path(trainer: Trainer) -> Path:
    return trainer.directory / FILE_NAME


def _step(line: str) -> int:
    return json.loads(line)["step"] if line.endswith("\n") else 2**63  # a killed run's last line may be cut short
