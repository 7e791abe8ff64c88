"""A whole run with the real model and real rows, in this process."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from recipes import config, distributed, launch
from recipes.job import Job, build_trainer
from recipes.trainer import Trainer
from tests.recipes.parity_sources import write_sources

CONF = Path(__file__).parents[2] / "conf"
SHORT = ["recipe=bagel", "sources=parity", "data.num_workers=0", "callbacks=none", "logger=none", "objective=null"]


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    own = write_sources(tmp_path_factory.mktemp("own_conf") / "conf")
    config.register()
    launch.register_resolvers()

    def make(folder: Path, steps: int) -> Trainer:
        overrides = [
            f"hydra.searchpath=[file://{own}]",
            *SHORT,
            f"train.max_steps={steps}",
            "lr_schedule.warmup_steps=2",
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
        rows = [trainer.task.samples(batch) for batch in trainer.report.batches]
        seen.append((rows, trainer.report.sums[0].tolist()))
    trainer.checkpoints.save(trainer)
    return seen


def test_a_run_resumed_twice_is_the_uninterrupted_one_bit_for_bit(make, tmp_path) -> None:
    whole = make(tmp_path / "whole/run", steps=5)
    expected = origins_and_losses(whole)
    seen = []
    for steps in (2, 4, 5):
        part = make(tmp_path / "parts/run", steps=steps)
        part.checkpoints.restore(part, "auto")
        seen += origins_and_losses(part)
    assert seen == expected
    for (name, ours), theirs in zip(part.bare.state_dict().items(), whole.bare.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
