"""``scripts/train.py`` on points instead of packs: a process that loads nothing slow, for what surrounds training."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recipes.callbacks.base import Callback
from recipes.config import RunConfig
from recipes.distributed import World
from recipes.tasks.base import BatchSize
from recipes.trainer import Trainer, log
from tests.recipes.fakes import Points, PointsLoader, PointsTask, TwoLayers

ROOT = Path(__file__).parents[2]
HERE = "tests.recipes.points_program"
_RECIPE = f"""# @package _global_
defaults:
  - override /data: points
  - override /model: points
  - override /task: points
  - override /optimizer: sgd
  - override /lr_schedule: constant
  - override /callbacks: none
name: points
objective: loss
sources: {{prepare: null}}
train: {{max_steps: 3}}
lr_schedule: {{warmup_steps: 0}}
validation: {{data: null}}
callbacks:
  lost_samples: {{_target_: recipes.callbacks.lost_samples.LostSamples}}
  accident: {{_target_: {HERE}.Accident, step: null, rank: 0}}
  rest: {{_target_: {HERE}.Rest, seconds: 0.0}}
"""
_GROUPS = {
    "data": f"_target_: {HERE}.PointsDataConfig",
    "model": f"_target_: {HERE}.PointsModelConfig",
    "task": f"_target_: {HERE}.PointsTaskConfig\ncapacity: ${{packing.expected_num_tokens}}",
}


@dataclass(kw_only=True, slots=True)
class PointsDataConfig:
    """The loader knows all there is to know."""


@dataclass(kw_only=True, slots=True)
class PointsModelConfig:
    def build(self) -> nn.Module:
        return TwoLayers()


@dataclass(kw_only=True, slots=True)
class PointsTaskConfig(PointsTask):
    capacity: int

    def check(self, config: RunConfig) -> None:
        pass

    def build(self, model: Any, device: torch.device) -> PointsTask:
        return self

    def loader(self, data: PointsDataConfig, world: World, seed: int) -> PointsLoader:
        return PointsLoader(world)

    def size(self, batch: Points) -> BatchSize:
        return BatchSize(samples=1, tokens=len(batch.y), capacity=self.capacity)


@dataclass(kw_only=True, slots=True)
class Accident(Callback):
    """Warns, then raises, on one rank after one step."""

    step: int | None
    rank: int

    def after_step(self, trainer: Trainer) -> None:
        if trainer.step == self.step and trainer.world.rank == self.rank:
            log.warning("something is about to happen")
            raise ArithmeticError("a bug on purpose")


@dataclass(kw_only=True, slots=True)
class Rest(Callback):
    seconds: float

    def after_step(self, trainer: Trainer) -> None:
        time.sleep(self.seconds)


def start(folder: Path, *overrides: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start the program; it writes to ``folder/outputs``."""
    conf = folder / "conf"
    for group, text in (_GROUPS | {"recipe": _RECIPE}).items():
        (conf / group).mkdir(parents=True, exist_ok=True)
        (conf / group / "points.yaml").write_text(text)
    return subprocess.Popen(
        [sys.executable, *launcher, ROOT / "scripts/train.py", "--config-dir", conf, "recipe=points", *overrides],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class Ended:
    """How the program ended, and the folder ``outputs/points``."""

    code: int
    out: str
    err: str
    outputs: Path


def end(program: subprocess.Popen[str], folder: Path) -> Ended:
    out, err = program.communicate(timeout=300)
    return Ended(program.returncode, out, err, folder / "outputs/points")


def train(folder: Path, *overrides: str, launcher: tuple[str, ...] = ()) -> Ended:
    """Run the program to its end."""
    return end(start(folder, *overrides, launcher=launcher), folder)
