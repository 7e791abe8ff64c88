"""Global generators."""

import json
import random

import numpy as np
import torch

from recipes.generators import generator_state, restore_generators, seed_all


def draw() -> tuple[float, float, float]:
    return random.gauss(0, 1), float(np.random.randn()), float(torch.randn(()))


def test_generators_go_on_where_their_state_was_saved_as_json() -> None:
    seed_all(3)
    draw()
    state = json.loads(json.dumps(generator_state()))
    expected = [draw() for _ in range(3)]
    restore_generators(state)
    assert [draw() for _ in range(3)] == expected


def test_the_same_seed_draws_the_same() -> None:
    seed_all(5)
    first = draw()
    seed_all(5)
    assert draw() == first
