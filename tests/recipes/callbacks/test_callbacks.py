"""What callbacks leave behind, on a run of six steps."""

import itertools
import json
import logging
import multiprocessing
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recipes.callbacks import progress
from recipes.callbacks.base import Callback
from recipes.callbacks.gradient_norm import GradientNorm
from recipes.callbacks.json_lines import JsonLines
from recipes.callbacks.learning_rate import LearningRate
from recipes.callbacks.loss_curve import LossCurve
from recipes.callbacks.lost_samples import LostSamples, table
from recipes.callbacks.memory import Memory
from recipes.callbacks.nan_guard import NanGuard, NonFiniteError
from recipes.callbacks.progress import Progress
from recipes.callbacks.tensorboard import TensorBoard
from recipes.callbacks.validation import Validation
from recipes.callbacks.watchdog import Watchdog
from recipes.resume import ResumeConfig, resume
from tests.recipes.fakes import Setting, trainer


def lines_of(folder, *callbacks: Callback, **setting: object) -> list[dict[str, float]]:
    trainer(Setting(directory=folder, callbacks=[JsonLines(), *callbacks], **setting)).fit()
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_every_step_is_a_json_line(tmp_path) -> None:
    lines = lines_of(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert {"loss", "mse", "fill", "tokens_per_second", "step_seconds", "data_wait"} <= lines[0].keys()


def test_a_run_that_goes_on_in_another_directory_brings_its_lines_along(tmp_path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    lines_of(tmp_path / "one", max_steps=4)
    again = trainer(Setting(directory=tmp_path / "two", callbacks=[JsonLines()]))
    resume(again, ResumeConfig(path=str(tmp_path / "one/checkpoints/step-00000004")))
    again.fit()
    one, two = ((tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("one", "two"))
    assert two[:4] == one
    assert [json.loads(line)["step"] for line in two] == [1, 2, 3, 4, 5, 6]


def test_a_resumed_run_writes_no_step_twice(tmp_path) -> None:
    lines_of(tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 7, "lo')  # killed while writing
    one = trainer(Setting(directory=tmp_path, callbacks=[JsonLines()]))
    one.step = 4
    one.fit()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]


def test_rate_norm_and_memory_are_measured(tmp_path) -> None:
    lines = lines_of(tmp_path, LearningRate(), GradientNorm(), Memory())
    assert lines[0]["learning_rate"] == pytest.approx(0.05 * 2 / 3)  # of the step to come: warm-up over three
    assert all(line["gradient_norm"] > 0 and line["memory/process_mib"] > 10 for line in lines)


def test_validation_comes_before_the_first_step_when_due_and_after_the_last(tmp_path) -> None:
    lines = lines_of(tmp_path, Validation(every_steps=4, batches=3), heldout=True)
    validated = [line for line in lines if "val/loss" in line]
    assert [line["step"] for line in validated] == [0, 4, 6]
    assert validated[0]["val/loss"] > validated[-1]["val/loss"]


def test_validation_of_an_unchanged_model_gives_the_same_value(tmp_path) -> None:
    values = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        values.append(lines_of(tmp_path / name, Validation(batches=2), heldout=True)[0]["val/mse"])
    assert values[0] == values[1]


def test_validation_does_not_touch_the_training(tmp_path) -> None:
    losses = []
    for name, callbacks in (("with", [Validation(every_steps=1, batches=2)]), ("without", [])):
        (tmp_path / name).mkdir()
        lines = lines_of(tmp_path / name, *callbacks, heldout=True)
        losses.append([line["loss"] for line in lines if "loss" in line])
    assert losses[0] == losses[1]


def test_without_held_out_rows_nothing_is_validated(tmp_path) -> None:
    lines = lines_of(tmp_path, Validation(every_steps=2))
    assert not any(name.startswith("val/") for line in lines for name in line)


def test_a_broken_gradient_is_stopped_before_the_weights_with_its_rows(tmp_path) -> None:
    class Spoil(Callback):
        def after_step(self, trainer) -> None:
            if trainer.step == 2:
                torch.nn.init.constant_(trainer.bare.head.bias, float("nan"))

    one = trainer(Setting(directory=tmp_path, callbacks=[Spoil(), NanGuard()]))
    with pytest.raises(NonFiniteError, match="gradient of step 3 is nan: a loss is not finite in a batch of points 2;"):
        one.fit()
    assert torch.isfinite(one.bare.layers[0].weight).all()


def test_lost_samples_are_counted_written_and_shown(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    lines = lines_of(tmp_path, LostSamples())
    assert lines[-1]["data/lost"] == 6
    assert json.loads((tmp_path / "lost.json").read_text()) == {"odd": {"broken": 6}}
    assert (tmp_path / "lost.txt").read_text() == "dataset  reason  samples\nodd      broken        6\n"
    assert "odd      broken        6" in caplog.text


def test_a_table_of_nothing_says_so() -> None:
    assert table({}) == "none\n"


def test_without_a_terminal_progress_is_lines(tmp_path, caplog) -> None:
    caplog.set_level(logging.INFO)
    lines_of(tmp_path, Progress(line_every_seconds=1000))
    told = [record.message for record in caplog.records if record.name == "recipes.callbacks.progress"]
    assert [line.split(",")[0] for line in told] == ["step 1/6", "step 6/6"]
    assert "tokens/s" in told[0]
    assert "fill" in told[0]


def test_the_time_left_is_that_of_the_last_steps_by_the_clock(tmp_path, caplog, monkeypatch) -> None:
    seconds = itertools.count(step=2)  # the clock is looked at twice a step
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    caplog.set_level(logging.INFO)
    lines_of(tmp_path, Progress(line_every_seconds=0))
    told = [record.message for record in caplog.records if record.name == "recipes.callbacks.progress"]
    left = [line.split(", ")[1] for line in told]
    assert left == ["0 s left", "16 s left", "12 s left", "8 s left", "4 s left", "0 s left"]


def test_the_loss_curve_is_drawn(tmp_path) -> None:
    lines_of(tmp_path, LossCurve())
    assert (tmp_path / "loss_curve.png").read_bytes().startswith(b"\x89PNG")


def test_tensorboard_gets_its_events(tmp_path) -> None:
    lines_of(tmp_path, TensorBoard())
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_the_watchdog_writes_where_every_thread_is(tmp_path) -> None:
    class Sleep(Callback):
        def after_step(self, trainer) -> None:
            if trainer.step == 1:
                time.sleep(0.5)

    lines_of(tmp_path, Watchdog(seconds=0.2), Sleep())
    assert "test_callbacks.py" in (tmp_path / "stacks-rank0.txt").read_text()


def read_for_long(path: Path, reading: Any) -> None:
    with path.open():
        reading.set()
        time.sleep(60)


def test_the_watchdog_names_the_file_that_a_data_worker_reads_and_where_it_is(tmp_path, caplog) -> None:
    rows = tmp_path / "rows.parquet"
    rows.touch()
    reading = multiprocessing.get_context("fork").Event()

    class Stuck(Callback):
        def after_step(self, trainer) -> None:
            if trainer.step == 1:
                worker = multiprocessing.get_context("fork").Process(target=read_for_long, args=(rows, reading))
                worker.start()
                reading.wait()
                time.sleep(0.5)
                worker.kill()
                worker.join()

    (tmp_path / "run").mkdir()
    lines_of(tmp_path / "run", Watchdog(seconds=0.2), Stuck())
    told = next(record.getMessage() for record in caplog.records if "no step for 0.2 s" in record.getMessage())
    assert str(rows) in told.split("; ")[1].split("open files: ")[1].split(", ")
    assert "read_for_long" in (tmp_path / "run" / "stacks-rank0.txt").read_text()


def test_the_watchdog_leaves_nothing_where_no_step_took_long(tmp_path) -> None:
    lines_of(tmp_path, Watchdog(seconds=60))
    assert not (tmp_path / "stacks-rank0.txt").exists()
