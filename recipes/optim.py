"""What changes the weights: parameter groups for any torch optimizer, and the learning rate over the steps."""

import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from recipes.mistakes import ConfigError

log = logging.getLogger(__name__)


def build_optimizer(make: Callable[..., Optimizer], model: nn.Module) -> Optimizer:
    """Call ``make`` with two groups: matrices, and whatever has at most one dimension, which never decays.

    Raises:
        ConfigError: It refuses its options.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim > 1]},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    try:
        return make([group for group in groups if group["params"]])
    except (ValueError, TypeError) as error:  # a TypeError where it compares a word with a number
        raise ConfigError(f"optimizer: {error}") from error


def options(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the options of every group, e.g. ``lr`` and ``betas``."""
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def adopt(
    optimizer: Optimizer, schedule: LambdaLR, fresh: Sequence[Mapping[str, Any]], changed: Collection[str]
) -> None:
    """Set what a resumed run's config ``changed`` to its value in ``fresh`` options, and the learning rate by schedule.

    Args:
        fresh: The options (see ``options``) of the same groups as the config alone would have them.
    """
    for group, wanted in zip(optimizer.param_groups, fresh, strict=True):
        group.update({name: wanted[name] for name in changed if name in wanted})
    if "lr" in changed:
        schedule.base_lrs = [wanted["initial_lr"] for wanted in fresh]
    for group, base, factor in zip(optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["initial_lr"] = base
        group["lr"] = base * factor(schedule.last_epoch)


@dataclass(kw_only=True, slots=True)
class LrScheduleConfig:
    """Warm up linearly, then stay (``constant``) or fall to ``final_fraction`` (``linear``, ``cosine``).

    Args:
        shape: ``constant`` | ``linear`` | ``cosine``, after the warm-up.
        warmup_steps: Optimizer steps in which the learning rate rises linearly to its full value.
        final_fraction: Of the full learning rate, at the last step; ``constant`` passes over it.
    """

    shape: str = "constant"
    warmup_steps: int = 0
    final_fraction: float = 0.0

    def check(self) -> None:
        """Refuse a shape that does not exist and fractions and steps that mean nothing."""
        if self.shape not in _SHAPES:
            raise ConfigError(f"lr_schedule.shape ({self.shape}) must be one of {', '.join(_SHAPES)}")
        if self.warmup_steps < 0:
            raise ConfigError(f"lr_schedule.warmup_steps ({self.warmup_steps}) must not be negative")
        if not 0 <= self.final_fraction <= 1:
            raise ConfigError(f"lr_schedule.final_fraction ({self.final_fraction}) must lie between 0 and 1")

    def factor(self, step: int, max_steps: int) -> float:
        """Return what the base learning rate is multiplied with in ``step``, which counts from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / max(1, max_steps - self.warmup_steps))
        return self.final_fraction + (1 - self.final_fraction) * _SHAPES[self.shape](done)

    def build(self, optimizer: Optimizer, max_steps: int) -> LambdaLR:
        """Return the schedule as torch knows it; step it after every optimizer step."""
        if self.warmup_steps > max_steps:  # a short trial of a long recipe is no mistake
            told = "lr_schedule.warmup_steps (%d) is more than train.max_steps (%d): the run ends while it warms up"
            log.info(told, self.warmup_steps, max_steps)
        return LambdaLR(optimizer, functools.partial(self.factor, max_steps=max_steps))


_SHAPES: dict[str, Any] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
}
