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
    """Append ``{"step": ..., name: value, ...}`` to ``metrics.jsonl`` in the run directory, on rank 0."""

    def start(self, trainer: Trainer) -> None:
        """Drop the lines behind the step that is resumed: those steps are taken again."""
        path = _path(trainer)
        if trainer.world.leads and path.exists():
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if _step(line) <= trainer.step))

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Append a line."""
        if trainer.world.leads:
            with _path(trainer).open("a") as file:
                file.write(json.dumps({"step": trainer.step, **metrics}) + "\n")


def _path(trainer: Trainer) -> Path:
    return trainer.directory / FILE_NAME


def _step(line: str) -> int:
    return json.loads(line)["step"] if line.endswith("\n") else 2**63  # a killed run's last line may be cut short
