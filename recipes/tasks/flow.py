"""Flow matching: which times are trained on, how they are weighed, and how a trained flow is followed.

Data is at time 0, noise at time 1: x_s = (1 - s) x_0 + s e, and the model learns the velocity e - x_0.
Methods: rectified flow (Liu et al., 2022); time distributions of Stable Diffusion 3 (Esser et al., 2024).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recipes.mistakes import ConfigError

_MODE_SCALE = 1.29
_BETA = (2.5, 1.5)
_BELL_STEPS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowTimes:
    """Draws times: a distribution, shifted towards noise by k as s = k u / (1 + (k - 1) u), and clamped.

    Args:
        distribution: ``uniform``, ``logit_normal``, ``mode`` or ``beta``.
        mean, std: Of the logit, for ``logit_normal``.
        shift: k; above 1 more training happens near noise, as large images need.
        lowest, highest: What times are clamped to.
    """

    distribution: str = "logit_normal"
    mean: float = 0.0
    std: float = 1.0
    shift: float = 1.0
    lowest: float = 0.0
    highest: float = 1.0

    def __post_init__(self) -> None:
        if self.distribution not in _DRAWS:
            raise ConfigError(f"distribution ({self.distribution}) must be one of {', '.join(_DRAWS)}")
        if self.shift <= 0:
            raise ConfigError(f"shift ({self.shift}) must be above 0; 1 shifts nothing")
        if not 0 <= self.lowest < self.highest <= 1:
            raise ConfigError(f"lowest ({self.lowest}) and highest ({self.highest}) must be 0 <= lowest < highest <= 1")

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return [count] times, float32, on the generator's device."""
        return self.shifted(_DRAWS[self.distribution](self, count, generator)).clamp(self.lowest, self.highest)

    def shifted(self, u: Tensor) -> Tensor:
        """Move times in [0, 1] towards noise."""
        return self.shift * u / (1 + (self.shift - 1) * u)


def _uniform(times: FlowTimes, count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, generator=generator, device=generator.device)


def _logit_normal(times: FlowTimes, count: int, generator: torch.Generator) -> Tensor:
    normal = torch.randn(count, generator=generator, device=generator.device)
    return torch.sigmoid(times.mean + times.std * normal)


def _mode(times: FlowTimes, count: int, generator: torch.Generator) -> Tensor:
    u = _uniform(times, count, generator)
    return (1 - u - _MODE_SCALE * (torch.cos(math.pi * u / 2) ** 2 - 1 + u)).clamp(0, 1)


def _beta(times: FlowTimes, count: int, generator: torch.Generator) -> Tensor:
    a, b = (torch.full((count,), shape, device=generator.device) for shape in _BETA)
    x, y = torch._standard_gamma(a, generator=generator), torch._standard_gamma(b, generator=generator)
    return x / (x + y)


_DRAWS = {"uniform": _uniform, "logit_normal": _logit_normal, "mode": _mode, "beta": _beta}


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowWeights:
    """Weighs errors by their time: ``none``, ``linear`` (1 + slope s) or ``bell`` (a Gaussian around the middle).

    The bell is that of DiffSynth-Studio: exp(-2 (s - 1/2)^2) less its minimum, with mean 1.

    Args:
        kind: ``none``, ``linear`` or ``bell``.
        slope: Of ``linear``.
    """

    kind: str = "none"
    slope: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("none", "linear", "bell"):
            raise ConfigError(f"kind ({self.kind}) must be none, linear or bell")

    def of(self, time_B: Tensor) -> Tensor:
        """Return a weight per time."""
        match self.kind:
            case "linear":
                return 1 + self.slope * time_B
            case "bell":
                table = torch.exp(-2 * (torch.arange(_BELL_STEPS, device=time_B.device) / _BELL_STEPS - 0.5) ** 2)
                table = table - table.min()
                return (table / table.mean())[(time_B * _BELL_STEPS).long().clamp(max=_BELL_STEPS - 1)]
            case _:
                return torch.ones_like(time_B)


def follow(velocity: Callable[[Tensor, Tensor], Tensor], noise_BCHW: Tensor, times: FlowTimes, steps: int) -> Tensor:
    """Go from noise to data along ``velocity(x, time_B)`` in Euler steps, denser near noise as ``times`` shifts."""
    grid = times.shifted(torch.linspace(1, 0, steps + 1, device=noise_BCHW.device))
    x = noise_BCHW
    for now, then in itertools.pairwise(grid):
        x = x + (then - now) * velocity(x, now.expand(len(x)))
    return x
