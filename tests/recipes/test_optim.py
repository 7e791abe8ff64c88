"""Optimizers and learning rates."""

import functools
import math

import pytest
import torch
from torch import nn

from recipes.mistakes import ConfigError
from recipes.optim import LrScheduleConfig, build_optimizer


def test_matrices_decay_and_vectors_do_not() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    model[0].weight.requires_grad_(False)
    model.append(nn.Linear(2, 2))
    optimizer = build_optimizer(functools.partial(torch.optim.AdamW, weight_decay=0.3), model)
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], [p.ndim for p in decayed["params"]]) == (0.3, [2])
    assert (spared["weight_decay"], {p.ndim for p in spared["params"]}) == (0.0, {1})
    assert len(spared["params"]) == 4


def test_the_warm_up_rises_linearly_to_the_base_rate() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = LrScheduleConfig(warmup_steps=4).build(optimizer, max_steps=10)
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("shape", "half"),
    [("constant", 1.0), ("linear", 0.55), ("cosine", 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 2)))],
)
def test_after_the_warm_up_the_rate_falls_by_its_shape_to_the_final_fraction(shape: str, half: float) -> None:
    schedule = LrScheduleConfig(shape=shape, warmup_steps=2, final_fraction=0.1)
    assert schedule.factor(2, max_steps=12) == pytest.approx(1.0)
    assert schedule.factor(7, max_steps=12) == pytest.approx(half)
    assert schedule.factor(99, max_steps=12) == pytest.approx(1.0 if shape == "constant" else 0.1)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"shape": "cos"}, "lr_schedule.shape (cos) must be one of constant, linear, cosine"),
        ({"warmup_steps": -1}, "lr_schedule.warmup_steps (-1) must not be negative"),
        ({"final_fraction": 2.0}, "lr_schedule.final_fraction (2.0) must lie between 0 and 1"),
    ],
)
def test_what_makes_no_schedule_is_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        LrScheduleConfig(**settings).check()
    assert str(refusal.value) == line
