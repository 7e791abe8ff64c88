"""A small task with two loss terms and uneven batches, for tests of what surrounds a task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recipes import distributed
from recipes.callbacks.base import Callback
from recipes.checkpoint import CheckpointConfig, Checkpoints
from recipes.config import TrainConfig
from recipes.ema import Ema
from recipes.generators import seed_all
from recipes.optim import LrScheduleConfig, build_optimizer
from recipes.tasks.base import BatchSize, LossTerms
from recipes.trainer import Trainer

WIDTH = 4


@dataclass(frozen=True)
class Points:
    """Points [N, 4] with targets [N]; the first ``split`` of them belong to term "ce", the rest to "mse"."""

    number: int
    x: torch.Tensor
    y: torch.Tensor
    split: int


def points(number: int) -> Points:
    generator = torch.Generator().manual_seed(number)
    size, split = 2 + 5 * (number % 4), (number * 7) % 3
    x = torch.randn(size, WIDTH, generator=generator)
    return Points(number, x, x.sum(1) + 0.1 * torch.randn(size, generator=generator), split)


class PointsLoader:
    """Batch i of rank r of W is ``points(i * W + r)``: ranks and accumulation deal out the same batches."""

    def __init__(self, world: distributed.World) -> None:
        self._world = world
        self._next = 0

    def __iter__(self) -> Iterator[Points]:
        while True:
            self._next += 1
            yield points((self._next - 1) * self._world.size + self._world.rank)

    def state_dict(self) -> dict[str, Any]:
        return {"next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._next = state["next"]

    def load_elastic(self, states: Sequence[Mapping[str, Any]]) -> None:
        self._next = sum(state["next"] for state in states)

    def drops(self) -> dict[str, dict[str, int]]:
        return {"odd": {"broken": self._next}}

    def origins(self, batch: Points) -> list[str]:
        return [f"points {batch.number}"]


class PointsTask:
    terms = ("ce", "mse")
    weights = (1.0, 0.5)

    def counts(self, batch: Points) -> torch.Tensor:
        return torch.tensor([batch.split, len(batch.y) - batch.split], dtype=torch.float64)

    def size(self, batch: Points) -> BatchSize:
        return BatchSize(samples=1, tokens=len(batch.y), capacity=20)

    def to(self, batch: Points, device: torch.device) -> Points:
        return batch

    def losses(self, model: nn.Module, batch: Points, generator: torch.Generator) -> LossTerms:
        noise = 0.1 * torch.randn(len(batch.y), generator=generator)
        errors = (model(batch.x).squeeze(1) - batch.y - noise).square()
        sums = torch.stack([errors[: batch.split].sum(), errors[batch.split :].sum()])
        table = torch.stack([sums.detach(), self.counts(batch).float()], dim=1)
        return LossTerms(sums=sums, groups={"even" if batch.number % 2 == 0 else "odd": table})


class TwoLayers(nn.Module):
    """Has a module list, as models that FSDP shards do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x)


@dataclass(kw_only=True)
class Setting:
    """What tests vary about a trainer."""

    directory: Path
    max_steps: int = 6
    accumulation_steps: int = 1
    strategy: Any = field(default_factory=distributed.Ddp)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    callbacks: Sequence[Callback] = ()
    ema_decay: float | None = 0.9
    clip: float | None = 1.0
    heldout: bool = False


def trainer(setting: Setting) -> Trainer:
    """Build a trainer of two layers on points, in the world that this process is in."""
    world = distributed.start(timeout_minutes=1)
    seed_all(0)
    bare = TwoLayers()
    model = setting.strategy.wrap(bare, world, torch.float32)
    optimizer = build_optimizer(lambda groups: torch.optim.AdamW(groups, lr=0.05), bare)
    return Trainer(
        config=TrainConfig(
            max_steps=setting.max_steps,
            accumulation_steps=setting.accumulation_steps,
            clip_gradient_norm=setting.clip,
        ),
        directory=setting.directory,
        world=world,
        task=PointsTask(),
        loader=PointsLoader(world),
        heldout=(lambda: PointsLoader(world)) if setting.heldout else None,
        bare=bare,
        model=model,
        strategy=setting.strategy,
        precision=torch.float32,
        optimizer=optimizer,
        schedule=LrScheduleConfig(warmup_steps=3, shape="cosine").build(optimizer, setting.max_steps),
        ema=None if setting.ema_decay is None else Ema(bare, setting.ema_decay),
        checkpoints=Checkpoints(setting.checkpoint, setting.directory, {"name": "test"}),
        callbacks=setting.callbacks,
    )
