"""Peak memory of the process and of its GPU."""

import resource
from dataclasses import dataclass

import torch

from recipes.callbacks.base import Callback
from recipes.trainer import Trainer


@dataclass(kw_only=True, slots=True)
class Memory(Callback):
    """Measure the peaks so far, in MiB: ``memory/process_mib`` and, on a GPU, ``memory/gpu_mib``."""

    def measure(self, trainer: Trainer) -> dict[str, float]:
        """Return rank 0's peaks."""
        peaks = {"memory/process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        if trainer.world.device.type == "cuda":
            peaks["memory/gpu_mib"] = torch.cuda.max_memory_allocated(trainer.world.device) / 2**20
        return peaks
