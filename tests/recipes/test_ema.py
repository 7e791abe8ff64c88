"""The moving average of the weights."""

import pytest
import torch
from torch import nn

from recipes.ema import Ema


def test_the_shadow_moves_by_one_minus_decay_towards_the_weights() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    ema = Ema(model, decay=0.9)
    expected = 1.0
    for weight in (2.0, -1.0, 5.0):
        nn.init.constant_(model.weight, weight)
        ema.update()
        expected = 0.9 * expected + 0.1 * weight
    assert ema.state_dict()["weight"].item() == pytest.approx(expected)


def test_a_slow_average_of_bfloat16_weights_still_moves() -> None:
    model = nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    nn.init.constant_(model.weight, 1.0)
    ema = Ema(model, decay=0.9999)
    nn.init.constant_(model.weight, 2.0)
    for _ in range(10):
        ema.update()
    assert ema.state_dict()["weight"].item() == pytest.approx(2 - 0.9999**10, abs=1e-6)


def test_frozen_weights_have_no_shadow() -> None:
    model = nn.Linear(1, 1)
    model.bias.requires_grad_(False)
    assert list(Ema(model, decay=0.5).state_dict()) == ["weight"]


def test_a_saved_shadow_is_taken_over() -> None:
    model = nn.Linear(2, 2)
    ema = Ema(model, decay=0.5)
    ema.load_state_dict({name: torch.full_like(one, 7.0) for name, one in ema.state_dict().items()})
    assert all((one == 7.0).all() for one in ema.state_dict().values())
