"""Ranks, and models tied to them; what two ranks do together is in test_trainer.py."""

import pytest
import torch
from torch import nn

from recipes import distributed
from recipes.distributed import Fsdp2
from recipes.mistakes import ConfigError


@pytest.fixture
def world() -> distributed.World:
    return distributed.start(timeout_minutes=1)


def test_one_process_is_a_world_of_one(world) -> None:
    assert (world.rank, world.size, world.leads) == (0, 1, True)
    assert world.sum(torch.tensor([2.0])).item() == 2.0
    assert world.gather("mine") == ["mine"]
    assert world.share({"a": 1}) == {"a": 1}


def test_starting_twice_joins_the_same_world(world) -> None:
    assert distributed.start(timeout_minutes=1) == world


def test_tasks_are_dealt_out_once_and_each_time_anew(world) -> None:
    one, two = world.deal("abcd"), world.deal("xy")
    assert [next(one), next(two), next(one), *one, *two] == ["a", "x", "b", "c", "d", "y"]
    assert list(world.deal([])) == []


def test_sharding_a_model_without_the_named_layers_is_refused(world) -> None:
    with pytest.raises(ConfigError, match=r"distributed.layers \(\['blocks'\]\): the model has none of these"):
        Fsdp2(layers=["blocks"]).wrap(nn.Linear(2, 2), world, torch.float32)
