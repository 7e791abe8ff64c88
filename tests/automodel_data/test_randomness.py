"""Draws come from owned generators, can be saved at any point, and can be given again from a tape."""

import json
import random
from collections.abc import Callable

import numpy as np
import pytest

from automodel_data.randomness import Draw, Randomness


def draw_everything(rng: Randomness) -> list[Draw]:
    return [rng.uniform(), rng.normal(), rng.choose(5), rng.integer(3, 9), rng.subset(10, 4), rng.normal()]


def test_draws_are_those_of_python_and_numpy_with_the_same_seed() -> None:
    python, numpy = random.Random(7), np.random.RandomState(7)
    wanted = [
        python.random(),
        float(numpy.randn()),
        python.choice(range(5)),
        int(numpy.randint(3, 10)),
        sorted(numpy.permutation(10)[:4].tolist()),
        float(numpy.randn()),
    ]
    assert draw_everything(Randomness(7)) == wanted


def test_the_global_generators_stay_where_they_are() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()
    draw_everything(Randomness(0))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


STEPS: list[Callable[[Randomness], Draw]] = [
    lambda rng: rng.uniform(),
    lambda rng: rng.normal(),  # NumPy keeps a second normal draw in hand
    lambda rng: rng.choose(7),
    lambda rng: rng.normal(),
    lambda rng: rng.normal(),
    lambda rng: rng.subset(6, 2),
    lambda rng: rng.integer(0, 99),
]


@pytest.mark.parametrize("stop", range(len(STEPS)))
def test_saved_at_any_draw_and_restored_twice_the_stream_goes_on(stop: int) -> None:
    whole = Randomness(3)
    wanted = [step(whole) for step in STEPS]
    rng = Randomness(3)
    head = [step(rng) for step in STEPS[:stop]]
    for _ in range(2):
        restored = Randomness(99)
        restored.load_state_dict(json.loads(json.dumps(rng.state_dict())))
        assert restored.state_dict() == rng.state_dict()
        rng = restored
    assert head + [step(rng) for step in STEPS[stop:]] == wanted


def test_a_tape_gives_the_recorded_decisions_again_and_draws_nothing() -> None:
    rng = Randomness(1)
    with rng.recording() as tape:
        decisions = draw_everything(rng)
    before = rng.state_dict()
    with rng.replaying(json.loads(json.dumps(tape))):
        assert draw_everything(rng) == decisions
    assert rng.state_dict() == before


@pytest.mark.parametrize("tape", [[0.5], [0.5, 0.5, 0.5]], ids=["shorter", "longer"])
def test_a_tape_of_other_length_than_the_decisions_asked_for_is_refused(tape: list[Draw]) -> None:
    rng = Randomness(1)
    with pytest.raises(LookupError, match="decisions"), rng.replaying(tape):
        _ = rng.uniform(), rng.uniform()
    assert 0 <= rng.uniform() < 1


def test_a_tape_ends_with_its_block_even_when_that_fails() -> None:
    rng = Randomness(1)
    with pytest.raises(KeyError), rng.recording() as tape:
        rng.uniform()
        raise KeyError
    rng.uniform()
    assert len(tape) == 1


def test_the_state_is_below_7_KiB() -> None:
    assert len(json.dumps(Randomness(1).state_dict())) < 7 * 1024
