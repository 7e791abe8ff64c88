"""What a sweep found: a row for each job, read from its directory, as a file, a table and a picture.

JOB/.hydra/overrides.yaml, metrics.jsonl, lost.json, result.json  --read-->  rows  -->  sweep.csv  -->  sweep.png
"""

import csv
import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from automodel_data.errors import DataError
from recipes import result
from recipes.callbacks.json_lines import FILE_NAME as METRICS
from recipes.callbacks.lost_samples import FILE_NAME as LOST
from recipes.pictures import draw_sweep
from recipes.pictures.loss_curve import Curve, read_curves

CSV, PICTURE = "sweep.csv", "sweep.png"
LOST_PREFIX = "lost/"
_NEVER_SWEPT = ("resume", "output_dir")
_LOSSES = ("loss", "ce", "mse")
_SPEEDS = ("tokens_per_second", "step_seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One job: its overrides, how it ended, and what it measured, by the names of the file's columns."""

    job: str
    overrides: Mapping[str, str]
    status: str
    measured: Mapping[str, float]


def report(directory: Path, ended: Mapping[str, str]) -> None:
    """Write ``sweep.csv`` and ``sweep.png`` to a sweep's ``directory`` and print its table.

    Args:
        ended: How jobs ended, by the names of their directories; of others the directory tells.
    """
    rows = read_rows(directory, ended)
    swept = swept_keys(rows)
    write_csv(rows, swept, directory / CSV)
    draw_sweep(directory / CSV, directory / PICTURE)
    console = Console()
    console.width = max(console.width, 140)
    console.print(table(rows, swept))
    console.print(f"{directory / CSV}, {directory / PICTURE}", soft_wrap=True)


def read_rows(directory: Path, ended: Mapping[str, str]) -> list[Row]:
    """Return a row for each job that was started in a sweep's ``directory``, in their order.

    Raises:
        DataError: There is none.
    """
    jobs = sorted((path.parent.parent for path in directory.glob("*/.hydra/overrides.yaml")), key=_by_number)
    if not jobs:
        raise DataError(f"{directory} is not the directory of a sweep: no folder in it has a .hydra/overrides.yaml")
    return [_read_row(job, ended.get(job.name)) for job in jobs]


def swept_keys(rows: Sequence[Row]) -> list[str]:
    """Return the keys whose values differ between jobs, in the order of the command line."""
    keys = dict.fromkeys(key for row in rows for key in row.overrides if key.partition(".")[0] not in _NEVER_SWEPT)
    return [key for key in keys if len({row.overrides.get(key) for row in rows}) > 1]


def write_csv(rows: Sequence[Row], swept: Sequence[str], path: Path) -> None:
    """Write the columns ``job``, the swept keys, ``status``, then everything that any job measured."""
    measured = list(dict.fromkeys(name for row in rows for name in row.measured))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["job", *swept, "status", *measured])
        for row in rows:
            values = (row.overrides.get(key, "") for key in swept)
            writer.writerow([row.job, *values, row.status, *(row.measured.get(name, "") for name in measured)])


def table(rows: Sequence[Row], swept: Sequence[str]) -> Table:
    """Return the rows for the console: what the picture shows, in numbers."""
    shown = Table(*swept, header_style="bold")
    columns = {name: text for name, text in _COLUMNS.items() if any(name in row.measured for row in rows)}
    for name in columns:
        shown.add_column(_TITLES.get(name, name), justify="right")
    shown.add_column("status")
    for row in rows:
        numbers = (text.format(row.measured[name]) if name in row.measured else "" for name, text in columns.items())
        shown.add_row(*(row.overrides.get(key, "") for key in swept), *numbers, row.status)
    return shown


_COLUMNS = {
    "fill": "{:.1%}",
    "tokens_per_second": "{:,.0f}",
    "step_seconds": "{:.3f}",
    "lost": "{:,.0f}",
    **dict.fromkeys(("ce", "mse", "val/ce", "val/mse", "objective"), "{:.4f}"),
}
_TITLES = {"tokens_per_second": "tokens/s", "step_seconds": "s/step"}


def _read_row(job: Path, status: str | None) -> Row:
    pairs = (override.partition("=") for override in yaml.safe_load((job / ".hydra/overrides.yaml").read_text()))
    done = result.read(job)
    measured = {} if done is None or done.value is None else {"objective": done.value}
    metrics, lost = job / METRICS, job / LOST
    if metrics.exists():
        measured |= summary(read_curves(metrics))
    if lost.exists():
        measured |= _losses_of_samples(json.loads(lost.read_text()))
    return Row(
        job=job.name,
        overrides={key.lstrip("+~"): value for key, _, value in pairs},
        status=status or ("unfinished" if done is None else "finished"),
        measured=measured,
    )


def summary(curves: Mapping[str, Curve]) -> dict[str, float]:
    """Return one number for each metric of a run.

    Fill is the mean over the steps, speeds are the median (the first steps are slow), losses the mean of the last
    tenth of the steps, losses on held-out rows the last that was measured.
    """
    found = {name: curves[name].values for name in curves}
    numbers = {"fill": statistics.fmean(found["fill"])} if "fill" in found else {}
    numbers |= {name: statistics.median(found[name]) for name in _SPEEDS if name in found}
    numbers |= {name: statistics.fmean(found[name][-_tenth(found[name]) :]) for name in _LOSSES if name in found}
    return numbers | {f"val/{name}": found[f"val/{name}"][-1] for name in _LOSSES if f"val/{name}" in found}


def _losses_of_samples(lost: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    by_reason: Counter[str] = Counter()
    for reasons in lost.values():
        by_reason.update(reasons)
    return {"lost": by_reason.total()} | {f"{LOST_PREFIX}{reason}": count for reason, count in by_reason.items()}


def _tenth(values: Sequence[float]) -> int:
    return max(1, len(values) // 10)


def _by_number(job: Path) -> tuple[float, str]:
    number = re.match(r"\d+", job.name)
    return (float(number[0]) if number else float("inf"), job.name)
