"""The command that people type, on one process and on two."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.recipes.parity_sources import write_sources

ROOT = Path(__file__).parents[2]
SHORT = ["recipe=bagel", "train.max_steps=3", "lr_schedule.warmup_steps=1", "callbacks.validation.batches=1"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(folder: Path, *overrides: str, launcher: list[str] | None = None) -> subprocess.Popen[str]:
    own = write_sources(folder / "own_conf")
    command = [sys.executable, *(launcher or []), ROOT / "scripts/train.py", "--config-dir", own, "sources=parity"]
    return subprocess.Popen(
        [*command, f"output_dir={folder / 'outputs'}", *overrides],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *overrides: str, launcher: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    program = start(folder, *overrides, launcher=launcher)
    out, err = program.communicate(timeout=240)
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("two")
    done = run(folder, *SHORT, launcher=TORCHRUN)
    assert done.returncode == 0, done.stderr
    (directory,) = (folder / "outputs/bagel").iterdir()  # one for both ranks
    return done, directory


def test_two_ranks_share_a_run_directory(of_two_ranks) -> None:
    _, directory = of_two_ranks
    names = {path.name for path in directory.iterdir()}
    assert names == {
        "rank0.log",
        "rank1.log",
        ".lock",
        ".hydra",
        "checkpoints",
        "metrics.jsonl",
        "loss_curve.png",
        "pack.png",
        "lost.json",
        "lost.txt",
        "result.json",
    }


def test_two_ranks_log_exact_losses_of_every_step(of_two_ranks) -> None:
    lines = [json.loads(line) for line in (of_two_ranks[1] / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if "val/loss" in line] == [0, 3]
    assert all(line["loss"] == pytest.approx(line["ce"] + line["mse"]) for line in lines if "loss" in line)


def test_the_console_shows_rank_0_alone(of_two_ranks) -> None:
    done, directory = of_two_ranks
    assert done.stderr.count("everything goes to") == 1
    assert "on 2 rank(s)" in (directory / "rank1.log").read_text()


def test_the_end_is_a_complete_checkpoint(of_two_ranks) -> None:
    (checkpoint,) = (of_two_ranks[1] / "checkpoints").iterdir()
    assert checkpoint.name == "step-00000003"
    files = json.loads((checkpoint / "complete.json").read_text())
    assert {"rank-00000.json", "rank-00001.json", "run.json", ".metadata"} <= files.keys()


def test_one_process_needs_no_launcher(tmp_path) -> None:
    done = run(tmp_path, *SHORT, "data.num_workers=0")
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "outputs/bagel").iterdir()
    assert (directory / "checkpoints/step-00000003/complete.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_of_a_run_saves_it(tmp_path, number: signal.Signals) -> None:
    program = start(tmp_path, "recipe=bagel", "callbacks=none", "data.num_workers=2", "train.max_steps=100000")
    until = time.monotonic() + 120
    while not (metrics := list(tmp_path.glob("outputs/bagel/*/metrics.jsonl"))) or not metrics[0].read_text():
        assert time.monotonic() < until
        time.sleep(0.1)
    os.killpg(program.pid, number)  # as a terminal, timeout and schedulers do
    _, err = program.communicate(timeout=60)
    assert (program.returncode, "Traceback" in err) == (128 + number, False), err
    assert re.search(rf"stopped by {number.name} at step \d+ of 100000; go on with resume=auto", err)
    assert len(list(tmp_path.glob("outputs/bagel/*/checkpoints/step-*/complete.json"))) == 1


@pytest.mark.parametrize("override", ["+typo.key=1", "train.max_steps=0", "sources.tokenizer=/nowhere"])
def test_a_mistake_is_one_line_and_an_exit_code(tmp_path, override: str) -> None:
    done = run(tmp_path, "recipe=bagel", override)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert override.split("=")[0].removeprefix("+").split(".")[-1].removesuffix("key") in line
    assert not list(tmp_path.glob("outputs/bagel/*"))


def test_of_a_mistake_of_all_ranks_only_one_speaks(tmp_path) -> None:
    done = run(tmp_path, "recipe=bagel", "train.max_step=5", launcher=TORCHRUN)
    assert done.returncode != 0
    assert done.stderr.count("error: train.max_step: no such key. Did you mean 'train.max_steps'?") == 1
    assert "rank 1" not in done.stderr.partition("torch/distributed/elastic")[0]
