"""Medians and ratios of a contest, for people and as JSON."""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from rich.table import Table

from recipes.bench.measure import Measurement

M = TypeVar("M")  # a measurement
Results = Mapping[str, Sequence[Measurement]]
Figure = Callable[[M], float]

FIGURES: dict[str, Figure[Measurement]] = {
    "tokens_per_second": lambda one: one.tokens_per_second,
    "tokens_per_cpu_second": lambda one: one.tokens_per_cpu_second,
    "floor_share": lambda one: one.floor.seconds.wall / one.seconds.wall,
    "images_decoded": lambda one: one.images_decoded,
    "images_used": lambda one: one.floor.images,
    "images_placed": lambda one: one.images_placed,
    "peak_mib": lambda one: one.peak_mib,
    "peak_mib_over_idle": lambda one: one.peak_mib - one.idle_mib,
    "state_bytes": lambda one: one.state_bytes,
    "first_batch_seconds": lambda one: one.first_batch_seconds,
}
COMPARED = ("tokens_per_second", "tokens_per_cpu_second", "peak_mib_over_idle", "state_bytes", "first_batch_seconds")


def medians(results: Mapping[str, Sequence[M]], figures: Mapping[str, Figure[M]]) -> dict[str, dict[str, float]]:
    """Return every figure's median over the rounds, by contestant."""
    return {
        name: {title: median(map(figure, rounds)) for title, figure in figures.items()}
        for name, rounds in results.items()
    }


def ratios(results: Results, peer: str) -> dict[str, dict[str, list[float]]]:
    """Return each compared figure divided by the peer's of the same round, by contestant, round for round."""
    return {
        name: {
            title: [
                FIGURES[title](one) / FIGURES[title](other) for one, other in zip(rounds, results[peer], strict=True)
            ]
            for title in COMPARED
        }
        for name, rounds in results.items()
        if name != peer
    }


def same_rows(results: Results) -> bool:
    """Tell whether all contestants packed the same rows in the same order in every round."""
    return len({one.rows for rounds in results.values() for one in rounds}) == 1


def figures_table(results: Results) -> Table:
    """Return the medians as a table, a contestant a row."""
    rounds = len(next(iter(results.values())))
    table = titled(
        f"median of {rounds} rounds",
        (
            "tokens/s",
            "per CPU s",
            "floor share",
            "decoded / used",
            "peak MiB (over idle)",
            "state",
            "first batch",
        ),
    )
    for name, one in medians(results, FIGURES).items():
        table.add_row(
            name,
            f"{one['tokens_per_second']:,.0f}",
            f"{one['tokens_per_cpu_second']:,.0f}",
            f"{one['floor_share']:.0%}",
            f"{one['images_decoded']:.0f} / {one['images_used']:.0f}",
            f"{one['peak_mib']:,.0f} ({one['peak_mib_over_idle']:,.0f})",
            spell_bytes(one["state_bytes"]),
            f"{one['first_batch_seconds']:.2f} s",
        )
    return table


def ratios_table(results: Results, peer: str) -> Table:
    """Return the ratios to the peer as a table: the median round, and the range over all rounds."""
    rows = "on the same rows" if same_rows(results) else "ON OTHER ROWS: they packed differently, nothing compares"
    table = titled(f"times the {peer}'s, {rows}", ("tokens/s", "per CPU s", "peak over idle", "state", "first batch"))
    for name, by_figure in ratios(results, peer).items():
        table.add_row(name, *(_spell_range(by_figure[title]) for title in COMPARED))
    return table


def write_json(path: Path, results: Results, config: Mapping[str, Any], peer: str | None) -> None:
    """Write the settings, the machine, the medians, the ratios and every single measurement."""
    content = {
        "machine": machine(),
        "config": config,
        "same_rows": same_rows(results),
        "medians": medians(results, FIGURES),
        "ratios": None if peer is None else ratios(results, peer),
        "rounds": {name: [asdict(one) for one in rounds] for name, rounds in results.items()},
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Return what a measurement depends on besides its settings."""
    return {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}


def spell_bytes(count: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def titled(title: str, columns: Sequence[str]) -> Table:
    """Return an empty table: a column of names, then numbers."""
    table = Table(title=title, title_justify="left", min_width=len(title))
    table.add_column(no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _spell_range(values: Sequence[float]) -> str:
    return f"{median(values):.2g} ({min(values):.2g}-{max(values):.2g})"
