"""Flow times, weights and sampling, by their formulas."""

import math

import pytest
import torch

from recipes.mistakes import ConfigError
from recipes.tasks.flow import FlowTimes, FlowWeights, follow

MANY = 20_000


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("distribution", "mean"), [("uniform", 0.5), ("logit_normal", 0.5), ("mode", 0.5), ("beta", 2.5 / 4)]
)
def test_times_are_distributed_as_named(distribution: str, mean: float) -> None:
    times = FlowTimes(distribution=distribution).draw(MANY, generator())
    assert times.mean().item() == pytest.approx(mean, abs=0.01)
    assert 0 <= times.min() <= times.max() <= 1
    assert times.dtype == torch.float32


def test_logit_normal_times_have_normal_logits() -> None:
    logits = FlowTimes(mean=0.5, std=0.8).draw(MANY, generator()).logit()
    assert (logits.mean().item(), logits.std().item()) == pytest.approx((0.5, 0.8), abs=0.02)


def test_mode_times_follow_the_formula_of_stable_diffusion_3() -> None:
    u = torch.rand(5, generator=generator())
    expected = [1 - x - 1.29 * (math.cos(math.pi * x / 2) ** 2 - 1 + x) for x in u.tolist()]
    assert FlowTimes(distribution="mode").draw(5, generator()).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_shift_moves_times_towards_noise_and_the_clamp_holds_them() -> None:
    u = torch.rand(5, generator=generator())
    drawn = FlowTimes(distribution="uniform", shift=3.0, lowest=0.1, highest=0.9).draw(5, generator())
    assert drawn.tolist() == pytest.approx((3 * u / (1 + 2 * u)).clamp(0.1, 0.9).tolist())


def test_weights_follow_their_formulas() -> None:
    times = torch.tensor([0.0, 0.25, 0.5, 1.0])
    assert FlowWeights().of(times).tolist() == [1, 1, 1, 1]
    assert FlowWeights(kind="linear", slope=2.0).of(times).tolist() == [1, 1.5, 2, 3]
    bell = FlowWeights(kind="bell")
    assert bell.of(torch.arange(1000) / 1000).mean().item() == pytest.approx(1.0, abs=1e-4)
    values = bell.of(times).tolist()
    assert values[0] == pytest.approx(0, abs=1e-6)
    assert values[2] == pytest.approx(2 * values[1] * (1 - math.exp(-0.5)) / (2 * (math.exp(-0.125) - math.exp(-0.5))))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"distribution": "normal"}, "distribution (normal) must be one of uniform, logit_normal, mode, beta"),
        ({"shift": 0.0}, "shift (0.0) must be above 0; 1 shifts nothing"),
        ({"lowest": 0.5, "highest": 0.5}, "lowest (0.5) and highest (0.5) must be 0 <= lowest < highest <= 1"),
    ],
)
def test_times_that_cannot_be_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        FlowTimes(**settings)
    assert str(refusal.value) == line


def test_following_the_true_velocity_arrives_at_the_data() -> None:
    data, noise = torch.randn(2, 3, 4, 4, generator=generator()), torch.randn(2, 3, 4, 4)
    found = follow(lambda x, time: noise - data, noise, FlowTimes(shift=3.0), steps=7)
    torch.testing.assert_close(found, data, atol=1e-5, rtol=1e-5)
