"""What the hardware does: TFLOP/s on each device, and the share of its peak; for task=packed."""

import time
from dataclasses import dataclass, field

import torch

from recipes.callbacks.base import Callback
from recipes.models.bagel import Bagel, TokenFlops
from recipes.trainer import StepReport, Trainer

PEAK_TFLOPS = {"H100": 989, "H200": 989, "A100": 312, "L40": 181}
"""Dense bfloat16, by a word of the device's name."""


@dataclass(kw_only=True, slots=True)
class Throughput(Callback):
    """Measure ``tflops`` of rank 0 and, where the device's peak is known, its share ``mfu``.

    Counts 6 operations for every trained weight that a token meets (2 for a frozen one) and the attention inside
    samples; what activation checkpointing computes twice counts once.
    """

    _flops: TokenFlops | None = field(default=None, init=False)
    _done: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)

    def start(self, trainer: Trainer) -> None:
        """Count the weights."""
        self._flops = TokenFlops.of(trainer.bare) if isinstance(trainer.bare, Bagel) else None
        self._since = time.perf_counter()

    def measure(self, trainer: Trainer) -> dict[str, float]:
        """Return the rate since the last measurement, other work between the steps included."""
        if self._flops is None:
            return {}
        now = time.perf_counter()
        rate = self._done / (now - self._since) / 1e12
        self._done, self._since = 0, now
        peak = _peak(trainer.world.device)
        return {"tflops": rate} if peak is None else {"tflops": rate, "mfu": rate / peak}

    def before_update(self, trainer: Trainer, report: StepReport) -> None:
        """Count the packs of the step."""
        if self._flops is not None:
            self._done += sum(map(self._flops.of_pack, report.batches))


def _peak(device: torch.device) -> float | None:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return next((peak for word, peak in PEAK_TFLOPS.items() if word in name), None)
