"""A run of two ranks that is killed at random moments, also while it saves, ends as if nothing had happened."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from recipes import distributed
from recipes.callbacks.base import Callback
from recipes.callbacks.json_lines import JsonLines
from recipes.checkpoint import CheckpointConfig
from recipes.job import stopped_by_signals
from recipes.resume import ResumeConfig, resume
from recipes.trainer import Trainer
from tests.recipes.fakes import Setting, trainer
from tests.recipes.ranks import finished, spawn

STEPS = 40


class Slowly(Callback):
    """Leaves time to be killed in, and writes down every batch that was trained on."""

    def after_step(self, trainer: Trainer) -> None:
        time.sleep(0.02)
        with (trainer.directory / f"batches-rank{trainer.world.rank}.txt").open("a") as file:
            print(trainer.step, trainer.report.batches[0].number, file=file, flush=True)


def train(folder: Path, asynchronous: bool) -> None:
    """What every rank runs, again and again until it is done."""
    folder.mkdir(exist_ok=True)
    one = trainer(
        Setting(
            directory=folder,
            max_steps=STEPS,
            checkpoint=CheckpointConfig(every_steps=1, asynchronous=asynchronous),
            callbacks=[JsonLines(), Slowly()],
        )
    )
    resume(one, ResumeConfig(path="auto"))
    with stopped_by_signals(one):
        one.fit()
    if one.world.leads:
        whole = {name: value.clone() for name, value in one.bare.state_dict().items()} | one.ema.state_dict()
        torch.save(whole, folder / ("stopped.pt" if one.stopping else "weights.pt"))
    distributed.stop()


def start(folder: Path, mode: str = "synchronous") -> list[subprocess.Popen[str]]:
    return spawn(__file__, folder, mode)


def saved(folder: Path) -> int:
    """Return the newest step that was published."""
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("checkpoints/step-*")), default=0)


def wait_until_saved(folder: Path, step: int) -> None:
    end = time.monotonic() + 120
    while saved(folder) < step:
        assert time.monotonic() < end, f"step {step} was never saved"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    finished(start(folder))
    return folder


def assert_same(folder: Path, uninterrupted: Path) -> None:
    ours, theirs = torch.load(folder / "weights.pt"), torch.load(uninterrupted / "weights.pt")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    losses = [
        [json.loads(line)["loss"] for line in (one / "metrics.jsonl").read_text().splitlines()]
        for one in (folder, uninterrupted)
    ]
    assert losses[0] == losses[1]
    for rank in (0, 1):  # a step that was taken twice was taken on the same batch
        seen, expected = (
            dict(line.split() for line in (one / f"batches-rank{rank}.txt").read_text().splitlines())
            for one in (folder, uninterrupted)
        )
        assert seen == expected


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_kills_at_random_moments_change_no_bit(uninterrupted, tmp_path, mode) -> None:
    folder, moment = tmp_path / "run", random.Random(time.time_ns())
    for _ in range(3):
        ranks = start(folder, mode)
        wait_until_saved(folder, saved(folder) + 1)  # so that every kill falls into training or saving
        time.sleep(moment.uniform(0, 0.3))
        for rank in ranks:
            rank.kill()
            rank.communicate()
    finished(start(folder, mode))
    assert_same(folder, uninterrupted)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_when_one_rank_is_told_to_end_all_save_and_go_on_later(uninterrupted, tmp_path, mode) -> None:
    folder = tmp_path / "run"
    ranks = start(folder, mode)
    wait_until_saved(folder, 3)
    ranks[1].terminate()
    finished(ranks)
    assert (folder / "stopped.pt").exists()
    finished(start(folder, mode))
    assert_same(folder, uninterrupted)


if __name__ == "__main__":
    train(Path(sys.argv[1]), asynchronous=sys.argv[2] == "asynchronous")
