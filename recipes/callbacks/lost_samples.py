"""What the data lost on the way: by dataset and reason, over all ranks, in the log and in files."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from automodel_data.errors import merge_counts
from recipes.callbacks.base import Callback
from recipes.trainer import Trainer

log = logging.getLogger(__name__)

FILE_NAME = "lost.json"
TABLE_NAME = "lost.txt"


@dataclass(kw_only=True, slots=True)
class LostSamples(Callback):
    """Write ``lost.json`` and ``lost.txt`` to the run directory at the end; measure ``data/lost`` on the way."""

    def measure(self, trainer: Trainer) -> dict[str, float]:
        """Return how many samples all ranks have lost so far."""
        return {"data/lost": float(sum(sum(reasons.values()) for reasons in _lost(trainer).values()))}

    def finish(self, trainer: Trainer) -> None:
        """Write the counts, and log them as a table."""
        lost = _lost(trainer)
        if trainer.world.leads:
            (trainer.directory / FILE_NAME).write_text(json.dumps(lost, indent=2, sort_keys=True) + "\n")
            (trainer.directory / TABLE_NAME).write_text(table(lost))
            log.info("samples lost:\n%s", table(lost))


def table(lost: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts as text, a line per dataset and reason, the most frequent first."""
    rows = [(dataset, reason, count) for dataset, reasons in lost.items() for reason, count in reasons.items()]
    if not rows:
        return "none\n"
    rows.sort(key=lambda row: (-row[2], row))
    widths = [max(len("dataset"), *(len(row[0]) for row in rows)), max(len("reason"), *(len(row[1]) for row in rows))]
    lines = [("dataset", "reason", "samples"), *rows]
    return "".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>7}\n" for a, b, c in lines)


def _lost(trainer: Trainer) -> dict[str, dict[str, int]]:
    return merge_counts(*trainer.world.gather(trainer.loader.drops()))
