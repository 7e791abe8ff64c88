"""What a sweep found, read from the directories of its jobs."""

import csv
import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from automodel_data.errors import DataError
from recipes import result, sweep
from recipes.result import Result

OVERRIDES = {
    "packing": ("tiny", "8k", "16k"),
    "recipe": ("bagel",) * 3,
    "resume": ("auto",) * 3,
    "resume.path": ("null", "a/step-1", "b/step-2"),
}


def write_job(folder: Path, number: int, finished: bool = True) -> None:
    """Write what a job leaves: 20 steps, the first of which is slow."""
    job = folder / str(number)
    (job / ".hydra").mkdir(parents=True)
    overrides = [f"{key}={values[number % 3]}" for key, values in OVERRIDES.items()]
    (job / ".hydra/overrides.yaml").write_text(yaml.safe_dump(overrides))
    lines = [{"step": 0, "val/ce": 9.0}]
    for step in range(1, 21):
        seconds = 8.0 if step == 1 else 0.5
        lines.append({"step": step, "fill": 0.9, "step_seconds": seconds, "tokens_per_second": 100 / seconds})
        lines[-1] |= {"ce": 5 - step / 10, "mse": 1.0, "loss": 6 - step / 10}
    lines.append({"step": 20, "val/ce": 3.5})
    (job / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        lost = {"t2i": {"too long": 3, "broken image": 1}, "vlm": {"too long": number}}
        (job / "lost.json").write_text(json.dumps(lost))
        result.write(Result(step=20, objective="val/ce", value=3.5, settings="x"), job)


@pytest.fixture
def folder(tmp_path) -> Path:
    for number in (2, 0, 1):
        write_job(tmp_path, number, finished=number != 2)
    return tmp_path


def test_a_row_holds_means_medians_and_last_values(folder) -> None:
    row = sweep.read_rows(folder, {})[1]
    assert row.status == "finished"
    assert row.measured == {
        "objective": 3.5,
        "fill": pytest.approx(0.9),
        "tokens_per_second": 200.0,  # the slow first step does not count
        "step_seconds": 0.5,
        "loss": pytest.approx((4.1 + 4.0) / 2),  # the last tenth of 20 steps
        "ce": pytest.approx((3.1 + 3.0) / 2),
        "mse": 1.0,
        "val/ce": 3.5,
        "lost": 5,
        "lost/too long": 4,
        "lost/broken image": 1,
    }


def test_how_jobs_ended_is_what_the_sweep_saw_or_what_they_left(folder) -> None:
    rows = sweep.read_rows(folder, {"0": "failed: a reason"})
    assert [(row.job, row.status) for row in rows] == [
        ("0", "failed: a reason"),
        ("1", "finished"),
        ("2", "unfinished"),
    ]


def test_jobs_are_in_the_order_of_their_numbers(tmp_path) -> None:
    for number in (10, 9, 2):
        write_job(tmp_path, number)
    assert [row.job for row in sweep.read_rows(tmp_path, {})] == ["2", "9", "10"]


def test_the_keys_that_differ_are_the_swept_ones(folder) -> None:
    assert sweep.swept_keys(sweep.read_rows(folder, {})) == ["packing"]


def test_the_report_is_a_file_a_picture_and_a_table(folder, capsys) -> None:
    sweep.report(folder, {})
    with (folder / "sweep.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:4] == ["job", "packing", "status", "objective"]
    assert [row[:3] for row in rows] == [
        ["0", "tiny", "finished"],
        ["1", "8k", "finished"],
        ["2", "16k", "unfinished"],
    ]
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "90.0%" in capsys.readouterr().out


def test_the_table_leaves_out_what_no_job_measured(folder) -> None:
    rows = sweep.read_rows(folder, {})
    console = Console(width=140)
    with console.capture() as printed:
        console.print(sweep.table(rows, ["packing"]))
    assert "val/ce" in printed.get()
    assert "val/mse" not in printed.get()


def test_a_folder_without_jobs_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match="is not the directory of a sweep"):
        sweep.report(tmp_path, {})
