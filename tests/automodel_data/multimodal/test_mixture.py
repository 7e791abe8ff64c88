"""Groups are drawn in proportion to their weights, in the order of the config."""

import random
from collections import Counter
from typing import Any

import pytest

from automodel_data.multimodal.mixture import Group, Mixture
from automodel_data.randomness import Randomness


def mixture(*weights: float, mandatory: str = "") -> Mixture:
    """Return groups a, b, ... of these weights; to draw one, no source is needed."""
    source: Any = None
    names = "abcdefgh"[: len(weights)]
    return Mixture(
        [Group(name, source, weight, name in mandatory) for name, weight in zip(names, weights, strict=True)]
    )


@pytest.mark.parametrize("weights", [(1,), (1, 1), (0.2, 3, 1.7), (1, 1, 1, 1, 1, 1, 1)])
def test_the_first_group_whose_cumulative_share_exceeds_the_draw_is_taken(weights: tuple[float, ...]) -> None:
    mixed, rng, python = mixture(*weights), Randomness(5), random.Random(5)
    for _ in range(200):
        u = python.random()
        shares = [sum(weights[: number + 1]) / sum(weights) for number in range(len(weights))]
        wanted = next(number for number, share in enumerate(shares) if u < share)
        assert mixed.draw(rng).name == "abcdefgh"[wanted]


def test_groups_come_in_proportion_to_their_weights() -> None:
    mixed, rng = mixture(1, 3), Randomness(0)
    drawn = Counter(mixed.draw(rng).name for _ in range(4000))
    assert drawn["b"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_draw_above_the_last_rounded_share_takes_the_last_group() -> None:
    rng = Randomness(0)
    with rng.replaying([1 - 2**-53]):
        assert mixture(*[0.1] * 7).draw(rng).name == "g"


def test_mandatory_groups_keep_their_order() -> None:
    assert [group.name for group in mixture(1, 1, 1, mandatory="ca").mandatory] == ["a", "c"]
