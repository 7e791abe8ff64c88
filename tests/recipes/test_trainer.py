"""The loop: the right gradient whatever ranks and accumulation, exact losses, exact resume."""

from pathlib import Path

import pytest
import torch

from recipes.callbacks.base import Callback
from recipes.checkpoint import CheckpointConfig
from recipes.distributed import Fsdp2
from recipes.resume import ResumeConfig, resume
from recipes.trainer import Trainer, noise_generator
from tests.recipes.fakes import PointsTask, Setting, TwoLayers, points, trainer


class Recorder(Callback):
    """Keeps every metric that was logged."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def log(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        self.logged.append({"step": trainer.step, **metrics})


class Gradients(Callback):
    """Keeps the gradient of every step, whole."""

    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def before_update(self, trainer: Trainer, report: object) -> None:
        grads = {name: p.grad for name, p in trainer.bare.named_parameters()}
        whole = {name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in grads.items()}
        self.seen.append({name: grad.clone() for name, grad in whole.items()})


def first_gradients(folder: Path, **setting: object) -> dict[str, torch.Tensor]:
    gradients = Gradients()
    trainer(Setting(directory=folder, max_steps=3, callbacks=[gradients], clip=None, **setting)).fit()
    return gradients.seen[0]


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-5, atol=1e-6)


def of_two_ranks(folder: Path) -> dict[str, object]:
    return {
        "ddp": first_gradients(folder),
        "fsdp2": first_gradients(folder, strategy=Fsdp2(layers=["layers"])),
        "uninterrupted": uninterrupted(folder),
        "resumed": resumed_twice(folder),
    }


@pytest.fixture(scope="module")
def two_ranks(on_ranks) -> list[dict[str, object]]:
    return on_ranks(of_two_ranks)


@pytest.fixture
def accumulated(tmp_path: Path) -> dict[str, torch.Tensor]:
    return first_gradients(tmp_path, accumulation_steps=2)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_give_the_gradient_of_one_rank_that_accumulates_two(two_ranks, accumulated, strategy) -> None:
    for rank in two_ranks:
        assert_same(rank[strategy], accumulated)


def test_the_gradient_is_that_of_the_mean_over_all_tokens_of_the_step(accumulated) -> None:
    torch.manual_seed(0)
    model, task = TwoLayers(), PointsTask()
    sums, counts = torch.zeros(2), torch.zeros(2)
    for number in range(2):
        errors, split = (
            (model(points(number).x).squeeze(1) - points(number).y - _noise(number)).square(),
            points(number).split,
        )
        sums = sums + torch.stack([errors[:split].sum(), errors[split:].sum()])
        counts = counts + task.counts(points(number)).float()
    (torch.tensor(task.weights) * sums / counts.clamp(min=1)).sum().backward()
    assert_same({name: p.grad for name, p in model.named_parameters()}, accumulated)


def _noise(number: int) -> torch.Tensor:
    return 0.1 * torch.randn(len(points(number).y), generator=_generator(number))


def test_logged_losses_are_means_over_tokens_in_all_and_by_group(tmp_path) -> None:
    recorder = Recorder()
    one = trainer(Setting(directory=tmp_path, max_steps=1, accumulation_steps=2, callbacks=[recorder]))
    expected = [PointsTask().losses(one.bare, points(n), _generator(n)) for n in range(2)]
    one.fit()
    metrics = recorder.logged[0]
    ce, mse = (sum(terms.sums[k] for terms in expected) for k in range(2))
    counts = sum(PointsTask().counts(points(n)) for n in range(2))
    assert metrics["ce"] == pytest.approx(float((ce / counts[0]).detach()))
    assert metrics["mse"] == pytest.approx(float((mse / counts[1]).detach()))
    assert metrics["loss"] == pytest.approx(metrics["ce"] + 0.5 * metrics["mse"])
    assert metrics["mse/even"] == pytest.approx(float(expected[0].sums[1].detach() / PointsTask().counts(points(0))[1]))
    assert metrics["fill"] == pytest.approx((len(points(0).y) + len(points(1).y)) / 40)


def _generator(number: int) -> torch.Generator:
    return noise_generator(42, number, torch.device("cpu"))


def test_a_term_without_tokens_costs_nothing(tmp_path) -> None:
    recorder = Recorder()
    trainer(Setting(directory=tmp_path, max_steps=1, callbacks=[recorder])).fit()  # points(0) has no "ce"
    assert "ce" not in recorder.logged[0]
    assert recorder.logged[0]["loss"] == pytest.approx(0.5 * recorder.logged[0]["mse"])


def test_a_wish_to_stop_is_granted_after_the_step_and_saved(tmp_path) -> None:
    one = trainer(Setting(directory=tmp_path))
    one.stop_requested = True
    one.fit()
    assert one.step == 1
    assert (tmp_path / "checkpoints/step-00000001/complete.json").exists()


def uninterrupted(folder: Path) -> tuple[dict[str, torch.Tensor], list[float]]:
    recorder = Recorder()
    one = trainer(Setting(directory=folder / "whole" / "run", callbacks=[recorder], accumulation_steps=2))
    one.fit()
    return one.bare.state_dict() | one.ema.state_dict(), [line["loss"] for line in recorder.logged]


def resumed_twice(folder: Path) -> tuple[dict[str, torch.Tensor], list[float]]:
    losses = []
    for stop in (2, 3, 6):
        recorder = Recorder()
        one = trainer(
            Setting(
                directory=folder / "parts" / "run",
                callbacks=[recorder],
                accumulation_steps=2,
                checkpoint=CheckpointConfig(every_steps=stop if stop < 6 else None),
            )
        )
        resume(one, ResumeConfig(path="auto"))
        one._batches = iter(one.loader)
        while one.step < stop:
            one.train_step()
            one.log(one._measure())
        one.checkpoints.save(one)
        losses += [line["loss"] for line in recorder.logged]
    return one.bare.state_dict() | one.ema.state_dict(), losses


def test_resuming_twice_changes_no_bit(two_ranks) -> None:
    for rank in two_ranks:
        (weights, losses), (resumed_weights, resumed_losses) = rank["uninterrupted"], rank["resumed"]
        assert losses == resumed_losses
        for name, weight in weights.items():
            assert torch.equal(weight, resumed_weights[name]), name
