"""The progress bar: where the run is, how fast, how well, and what it waits for."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from recipes.bars import Pace
from recipes.callbacks.base import Callback
from recipes.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Progress(Callback):
    """A bar on rank 0's terminal; where there is no terminal, a log line every ``line_every_seconds``.

    Args:
        line_every_seconds: Least seconds between two log lines.
    """

    line_every_seconds: float = 10.0
    _bar: Any = field(default=None, init=False)
    _last_line: float = field(default=0.0, init=False)
    _pace: Pace = field(default_factory=Pace, init=False)

    def start(self, trainer: Trainer) -> None:
        """Show the bar where the run starts, 0 or what was resumed."""
        if trainer.world.leads:
            self._bar = tqdm(total=trainer.config.max_steps, initial=trainer.step, unit="step", disable=None)

    def after_step(self, trainer: Trainer) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update()

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Show the metrics beside the bar, or in a line."""
        if self._bar is None or "loss" not in metrics:
            return
        self._pace.add(trainer.step, time.monotonic())
        shown = _shown(trainer.task.terms, metrics)
        if not self._bar.disable:
            self._bar.set_postfix_str(shown)
        elif self._is_time(last=trainer.step == trainer.config.max_steps):
            steps = trainer.config.max_steps - trainer.step
            left = self._pace.seconds_left(steps)
            left = steps * metrics["step_seconds"] if left is None else left
            log.info("step %d/%d, %.0f s left, %s", trainer.step, trainer.config.max_steps, left, shown)

    def finish(self, trainer: Trainer) -> None:
        """Leave the bar on the screen."""
        if self._bar is not None:
            self._bar.close()

    def _is_time(self, last: bool) -> bool:
        now = time.monotonic()
        if not last and self._last_line and now - self._last_line < self.line_every_seconds:
            return False
        self._last_line = now
        return True


def _shown(terms: tuple[str, ...], metrics: Mapping[str, float]) -> str:
    parts = [f"{term} {metrics[term]:.4f}" for term in terms if term in metrics]
    parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
    if "fill" in metrics:
        parts.append(f"fill {metrics['fill']:.0%}")
    parts.append(f"waiting for data {metrics['data_wait']:.0%}")
    return ", ".join(parts)
