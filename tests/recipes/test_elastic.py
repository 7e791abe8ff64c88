"""Ranks from plain python: one directory, one log file each, one traceback, one way to stop them."""

import json
import signal
import time
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from recipes.elastic import override
from tests.recipes.points_program import Ended, end, start, train


@pytest.fixture(scope="module")
def crashed(tmp_path_factory) -> tuple[Ended, Path]:
    """Rank 1 of two fails; rank 0 then loses its connection."""
    accident = ["callbacks.accident.step=2", "callbacks.accident.rank=1"]
    ended = train(tmp_path_factory.mktemp("crash"), "launch.nproc_per_node=2", *accident)
    (directory,) = ended.outputs.iterdir()  # one for both ranks
    return ended, directory


def test_a_crash_shows_the_traceback_of_the_rank_that_failed_and_once(crashed) -> None:
    ended, _ = crashed
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1
    assert "rank 1 failed: Traceback" in ended.err
    assert ended.err.count("ArithmeticError: a bug on purpose") == 1


def test_the_console_shows_rank_0_and_the_warnings_of_the_others(crashed) -> None:
    ended, _ = crashed
    assert ended.err.count("everything goes to") == 1
    assert ended.err.count("WARNING something is about to happen") == 1


def test_each_rank_has_its_own_log_file_with_its_own_traceback(crashed) -> None:
    logs = [(crashed[1] / f"rank{rank}.log").read_text() for rank in range(2)]
    assert all("steps on 2 rank(s)" in log for log in logs)
    assert ["ArithmeticError" in log for log in logs] == [False, True]


def test_the_run_until_then_is_kept(crashed) -> None:
    lines = [json.loads(line) for line in (crashed[1] / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert not (crashed[1] / "result.json").exists()


def wait_for_a_step(folder: Path) -> None:
    until = time.monotonic() + 120
    while not list(folder.glob("outputs/points/*/metrics.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_signal_to_python_makes_the_ranks_save_and_leave(tmp_path) -> None:
    program = start(tmp_path, "launch.nproc_per_node=1", "train.max_steps=10000", "callbacks.rest.seconds=0.05")
    wait_for_a_step(tmp_path)
    program.send_signal(signal.SIGTERM)
    ended = end(program, tmp_path)
    assert ended.code == 128 + signal.SIGTERM
    assert "Traceback" not in ended.err
    assert list(ended.outputs.glob("*/checkpoints/step-*/complete.json"))


def test_a_second_interrupt_ends_a_run_at_once(tmp_path) -> None:
    program = start(tmp_path, "train.max_steps=10000", "callbacks.rest.seconds=100")
    wait_for_a_step(tmp_path)
    program.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert program.poll() is None  # it is resting in a step, which it would end
    program.send_signal(signal.SIGINT)
    assert program.wait(timeout=20) == -signal.SIGINT


@pytest.mark.parametrize("value", ["a,b=c", "it's", "/with space/0", None])
def test_overrides_keep_any_value(value: str | None) -> None:
    (parsed,) = OverridesParser.create().parse_overrides([override("key", value)])
    assert parsed.value() == value
