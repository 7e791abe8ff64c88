"""A whole run with the real model and real rows, in this process."""

import time
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor

from recipes import config, distributed, launch
from recipes.callbacks.throughput import Throughput
from recipes.job import Job, build_trainer
from recipes.models.bagel import PublishedWeights, TokenFlops, published_state_dict
from recipes.resume import ResumeConfig, resume
from recipes.trainer import Trainer
from tests.recipes.parity_sources import write_sources

WEIGHTS = f"{PublishedWeights.__module__}.PublishedWeights"
CONF = Path(__file__).parents[2] / "conf"
SHORT = ["recipe=bagel", "sources=parity", "data.num_workers=0", "callbacks=none", "logger=none", "objective=null"]


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    own = write_sources(tmp_path_factory.mktemp("own_conf") / "conf")
    config.register()
    launch.register_resolvers()

    def make(folder: Path, steps: int, *more: str) -> Trainer:
        overrides = [
            f"hydra.searchpath=[file://{own}]",
            *SHORT,
            f"train.max_steps={steps}",
            "lr_schedule.warmup_steps=2",
            *more,
        ]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            settings, resolved = config.load(compose("train", [*overrides, "lr_schedule=constant"]))
        world = distributed.start(timeout_minutes=1)
        return build_trainer(Job(config=settings, resolved=resolved, directory=folder), world)

    return make


def origins_and_losses(trainer: Trainer) -> list[tuple[object, list[float]]]:
    """Train to the end and save; return the rows and losses of every step."""
    seen = []
    trainer._batches = iter(trainer.loader)
    while trainer.step < trainer.config.max_steps:
        trainer.train_step()
        rows = [trainer.loader.origins(batch) for batch in trainer.report.batches]
        seen.append((rows, trainer.report.sums[0].tolist()))
    trainer.checkpoints.save(trainer)
    return seen


def test_a_run_resumed_twice_is_the_uninterrupted_one_bit_for_bit(make, tmp_path) -> None:
    whole = make(tmp_path / "whole/run", steps=5)
    expected = origins_and_losses(whole)
    seen = []
    for steps in (2, 4, 5):
        part = make(tmp_path / "parts/run", steps=steps)
        resume(part, ResumeConfig(path="auto"))
        seen += origins_and_losses(part)
    assert seen == expected
    for (name, ours), theirs in zip(part.bare.state_dict().items(), whole.bare.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_published_weights_are_sharded_without_ever_being_whole(make, tmp_path) -> None:
    whole = make(tmp_path, 2)
    save_file(published_state_dict(whole.bare), tmp_path / "ema.safetensors")
    weights = f"model.pretrained={{_target_:{WEIGHTS},folder:{tmp_path}}}"
    sharded = make(tmp_path, 2, "distributed=fsdp2", weights)
    for (name, ours), theirs in zip(sharded.bare.named_parameters(), whole.bare.parameters(), strict=True):
        assert isinstance(ours, DTensor)
        assert torch.equal(ours.full_tensor(), theirs), name
    for trainer in (whole, sharded):
        trainer._batches = iter(trainer.loader)
        trainer.train_step()
    torch.testing.assert_close(sharded.report.sums[0], whole.report.sums[0])
    torch.testing.assert_close(sharded.report.gradient_norm, whole.report.gradient_norm, rtol=1e-4, atol=0)


def test_the_models_own_operations_give_its_rate(make, tmp_path) -> None:
    trainer, throughput = make(tmp_path, 2), Throughput()
    trainer.callbacks = [throughput]
    throughput.start(trainer)
    trainer._batches = iter(trainer.loader)
    began = time.perf_counter()
    trainer.train_step()
    rate = throughput.measure(trainer)["tflops"]
    operations = TokenFlops.of(trainer.bare).of_pack(trainer.report.batches[0])
    assert rate == pytest.approx(operations / 1e12 / (time.perf_counter() - began), rel=0.2)
