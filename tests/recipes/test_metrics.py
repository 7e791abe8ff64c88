"""Means over steps and ranks."""

import json

import pytest
import torch

from recipes import distributed
from recipes.metrics import Means, add_losses, weighted_loss
from tests.recipes.fakes import PointsTask


@pytest.fixture
def world() -> distributed.World:
    return distributed.start(timeout_minutes=1)


def test_sums_are_divided_once_by_all_counts(world) -> None:
    means = Means()
    means.add("ce", torch.tensor(6.0), torch.tensor(3.0))
    means.add("ce", 2.0, 1)
    assert means.reduce(world) == {"ce": 2.0}


def test_what_was_never_counted_has_no_mean(world) -> None:
    means = Means()
    means.add("mse", torch.tensor(0.0), torch.tensor(0.0))
    assert means.reduce(world) == {}


def test_reducing_starts_again_from_nothing(world) -> None:
    means = Means()
    means.add("ce", 4.0, 2)
    means.reduce(world)
    means.add("ce", 1.0, 1)
    assert means.reduce(world) == {"ce": 1.0}


def test_sums_go_on_from_where_they_were_saved(world) -> None:
    before, after = Means(), Means()
    before.add("ce", torch.tensor(4.0), 2)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    after.add("ce", 2.0, 1)
    assert after.reduce(world) == {"ce": 2.0}


def test_losses_are_kept_in_all_and_by_group(world) -> None:
    means = Means()
    groups = {"t2i": torch.tensor([[0.0, 0.0], [8.0, 4.0]]), "vlm": torch.tensor([[3.0, 1.0], [0.0, 0.0]])}
    add_losses(means, ("ce", "mse"), groups, prefix="val/")
    metrics = means.reduce(world)
    assert metrics == {"val/ce": 3.0, "val/ce/vlm": 3.0, "val/mse": 2.0, "val/mse/t2i": 2.0}
    assert weighted_loss(PointsTask(), metrics, prefix="val/") == 3.0 + 0.5 * 2.0
