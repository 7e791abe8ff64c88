"""The interface between a task and the trainer."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from recipes.distributed import World
from recipes.mistakes import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class LossTerms:
    """What one micro-batch adds to the losses, term by term in the order of ``Task.terms``.

    Args:
        sums: Float32 ``[terms]``, not divided by anything; carries gradients to every trained parameter.
        groups: For every dataset group seen, ``[terms, 2]``: detached sum and count.
    """

    sums: torch.Tensor
    groups: Mapping[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSize:
    """How much a batch holds; ``capacity`` is what it could hold, in tokens, None where nothing limits it."""

    samples: int
    tokens: int
    capacity: int | None


class Loader(Protocol):
    """An endless stream of batches on one rank; its state is that of the last batch handed out, as plain values.

    ``origins`` names the file and row of each of a batch's samples, ``drops`` counts those lost by dataset and reason.
    """

    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def load_elastic(self, states: Sequence[Mapping[str, Any]]) -> None: ...
    def drops(self) -> dict[str, dict[str, int]]: ...
    def origins(self, batch: Any) -> list[str]: ...


class Task(Protocol):
    """Names its loss terms and their weights, and computes them."""

    terms: tuple[str, ...]
    weights: tuple[float, ...]

    def loader(self, data: Any, world: World, seed: int) -> Loader:
        """Return the batches of ``data`` for this rank."""

    def counts(self, batch: Any) -> torch.Tensor:
        """Return float64 ``[terms]`` on the CPU: what each term's sum is to be divided by; needs no model."""

    def size(self, batch: Any) -> BatchSize:
        """Return how much ``batch`` holds."""

    def to(self, batch: Any, device: torch.device) -> Any:
        """Return ``batch`` on ``device``; from pinned memory the copy does not wait."""

    def losses(self, model: nn.Module, batch: Any, generator: torch.Generator) -> LossTerms:
        """Call ``model`` and sum its losses; all noise comes from ``generator``."""


def refuse_models(model: Any, task: str, others: tuple[type, ...]) -> None:
    """Refuse a model that is known to belong to another task; any class of one's own is taken at its word.

    Raises:
        ConfigError: Naming both.
    """
    if isinstance(model, others):
        raise ConfigError(f"model ({type(model).__name__}) does not learn task={task}; choose a recipe that has both")


def require_build_arguments(data: Any, task: str, names: Sequence[str]) -> None:
    """Refuse ``data`` that is not built from what a task has to give.

    Raises:
        ConfigError: Naming the data, the task, and what ``build`` takes.
    """
    takes = list(inspect.signature(data.build).parameters)
    if not set(names) <= set(takes):
        raise ConfigError(
            f"data ({type(data).__name__}) does not feed task={task}: its build() takes {', '.join(takes)}, "
            f"not {', '.join(names)}; choose the recipe that goes with the data"
        )
