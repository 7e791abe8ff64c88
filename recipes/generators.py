"""The process's global generators, seeded once and saved with the run: user code and layers may draw from them.

Neither the data nor the training noise does: those own their generators.
"""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generator_state() -> dict[str, Any]:
    """Return the state of every global generator as plain values that JSON can hold."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *rest],
        "torch": _pack(torch.get_rng_state()),
        "cuda": [_pack(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
    }


def restore_generators(state: Mapping[str, Any]) -> None:
    """Continue from a saved state; GPUs that were not there then keep theirs."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(_unpack(state["torch"]))
    for device, packed in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
        torch.cuda.set_rng_state(_unpack(packed), device)


def _pack(state: torch.Tensor) -> str:
    return state.numpy().tobytes().hex()


def _unpack(packed: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(packed), dtype=torch.uint8).clone()
