"""A sweep at a glance, from its CSV: how well packs are filled, how fast, what was lost and what was learnt."""

import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

COLOURS = ("#2a6fdb", "#d1495b", "#2e933c", "#b5179e", "#e07a1f", "#00798c")
REASON_COLOURS = ("#5c677d", "#e0a458", "#8d99ae", "#a44a3f", "#80a1c1", "#6b705c", "#c9ada7", "#3d405b")
LOST_PREFIX = "lost/"
HELD_OUT = "val/"
PANELS = {  # column: title, how its numbers are written
    "fill": ("fill of the packs", "{:.0%}"),
    "tokens_per_second": ("tokens per second", "{:,.0f}"),
    "step_seconds": ("seconds per step", "{:.3g}"),
    "lost": ("samples lost, by reason", "{:,.0f}"),
    "ce": ("cross-entropy per text token", "{:.3f}"),
    "mse": ("squared error per latent token", "{:.3f}"),
}
ENDS = {"fill": (0.0, 1.08), "tokens_per_second": (0.0, None), "step_seconds": (0.0, None), "lost": (0.0, None)}
COLUMNS = 3
MOST_TICKS, LONGEST_TICK = 12, 16
MOST_LABELS = 8  # points of a line that get their number written beside them
_HELD_OUT_STYLE = {"linestyle": (0, (4, 2)), "marker": "o", "markerfacecolor": "white"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """The rows of a sweep's CSV.

    Args:
        swept: The keys that were swept.
        settings: Of each job, the values of ``swept``.
        measured: Of each job, what it measured, by column.
    """

    swept: Sequence[str]
    settings: Sequence[tuple[str, ...]]
    measured: Sequence[Mapping[str, float]]

    def axis(self) -> int:
        """Return which of ``swept`` has the most values: it becomes the horizontal axis, the others colours."""
        return int(np.argmax([len({setting[key] for setting in self.settings}) for key in range(len(self.swept))]))

    def ticks(self) -> list[str]:
        """Return the values along the axis, numbers by size, names in the order of the jobs."""
        values = list(dict.fromkeys(setting[self.axis()] for setting in self.settings))
        return sorted(values, key=float) if all(map(_is_number, values)) else values

    def place(self, job: int) -> int:
        """Return the number of the tick that a job stands at."""
        return self.ticks().index(self.settings[job][self.axis()])

    def series(self) -> dict[str, list[int]]:
        """Return the jobs of each colour, by the values of the keys that are not on the axis."""
        grouped: dict[str, list[int]] = {}
        for job, setting in enumerate(self.settings):
            others = [f"{key}={value}" for key, value in zip(self.swept, setting, strict=True)]
            del others[self.axis()]
            grouped.setdefault(", ".join(others), []).append(job)
        return grouped

    def reasons(self) -> list[str]:
        """Return why samples were lost, the most frequent first."""
        names = dict.fromkeys(name for row in self.measured for name in row if name.startswith(LOST_PREFIX))
        return sorted(names, key=lambda name: -sum(row.get(name, 0.0) for row in self.measured))


def draw_sweep(sweep_csv: Path, png: Path) -> None:
    """Draw a panel for each of ``PANELS`` that any job measured, over the swept values.

    Args:
        sweep_csv: Columns ``job``, the swept keys, ``status``, and what was measured.
    """
    jobs = read_jobs(sweep_csv)
    names = [name for name in PANELS if any(name in row or HELD_OUT + name in row for row in jobs.measured)]
    rows, columns = max(1, -(-len(names) // COLUMNS)), COLUMNS if len(names) > 1 else 1
    figure = Figure(figsize=(5.2 * columns, 3.9 * rows + 0.7), layout="constrained", dpi=130)
    figure.get_layout_engine().set(wspace=0.05, hspace=0.07)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        _draw_panel(axes, name, jobs)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    figure.legend(handles=_legend(jobs, names), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(png)


def read_jobs(sweep_csv: Path) -> Jobs:
    """Return the rows of ``sweep_csv``; jobs count as swept by their names where no key was."""
    with sweep_csv.open(newline="") as file:
        header, *rows = csv.reader(file)
    end = header.index("status")
    first = 1 if end > 1 else 0
    return Jobs(
        swept=header[first:end],
        settings=[tuple(row[first:end]) for row in rows],
        measured=[
            {name: float(text) for name, text in zip(header[end + 1 :], row[end + 1 :], strict=True) if text}
            for row in rows
        ],
    )


def _draw_panel(axes: Axes, name: str, jobs: Jobs) -> None:
    title, number = PANELS[name]
    if name == "lost":
        _draw_lost(axes, jobs)
    else:
        for colour, members in zip(_colours(jobs), jobs.series().values(), strict=True):
            _draw_line(axes, jobs, members, name, color=colour, marker="o", zorder=3)
            _draw_line(axes, jobs, members, HELD_OUT + name, color=colour, zorder=3, **_HELD_OUT_STYLE)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(jobs.swept[jobs.axis()])
    ticks = jobs.ticks()
    every = -(-len(ticks) // MOST_TICKS)
    axes.set_xticks(range(0, len(ticks), every), [_short(tick) for tick in ticks[::every]])
    axes.set_xlim(-0.5, len(ticks) - 0.5)
    axes.yaxis.set_major_formatter(lambda value, _: number.format(value))
    axes.margins(y=0.15)
    bottom, top = ENDS.get(name, (None, None))
    if bottom == 0 and top is None:
        top = 1.12 * axes.dataLim.y1 if 0 < axes.dataLim.y1 < math.inf else 1.0  # room for the numbers
    axes.set_ylim(bottom, top)
    axes.grid(axis="y", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_line(axes: Axes, jobs: Jobs, members: Sequence[int], name: str, **style: Any) -> None:
    """Draw a point for each job, and a line through the means of those that share a tick."""
    values: dict[int, list[float]] = {}
    for job in sorted(members, key=jobs.place):
        if name in jobs.measured[job]:
            values.setdefault(jobs.place(job), []).append(jobs.measured[job][name])
    for place, several in values.items():
        axes.plot([place] * len(several), several, **style | {"linestyle": "none"})
    means = [float(np.mean(several)) for several in values.values()]
    axes.plot(list(values), means, **style | {"marker": None})
    if name in ENDS:
        _write_numbers(axes, jobs, list(values), means, PANELS[name][1])


def _draw_lost(axes: Axes, jobs: Jobs) -> None:
    """Stack the reasons of each job; jobs of different colours stand side by side, on their colour."""
    series = jobs.series()
    width = 0.7 / len(series)
    for number, (colour, members) in enumerate(zip(_colours(jobs), series.values(), strict=True)):
        measured = [job for job in members if "lost" in jobs.measured[job]]
        places = [jobs.place(job) + (number - (len(series) - 1) / 2) * width for job in measured]
        top = np.zeros(len(measured))
        for reason, shade in zip(jobs.reasons(), itertools.cycle(REASON_COLOURS), strict=False):
            counts = np.array([jobs.measured[job].get(reason, 0.0) for job in measured])
            axes.bar(places, counts, 0.9 * width, bottom=top, color=shade)
            top += counts
        if len(series) > 1:
            axes.plot(places, [0] * len(places), color=colour, marker="o", linestyle="none", clip_on=False, zorder=4)
        _write_numbers(axes, jobs, places, top.tolist(), PANELS["lost"][1])


def _write_numbers(axes: Axes, jobs: Jobs, places: Sequence[float], values: Sequence[float], number: str) -> None:
    """Write the values above their points, where no others are near."""
    if len(jobs.ticks()) <= MOST_LABELS and len(jobs.series()) == 1:
        for place, value in zip(places, values, strict=True):
            text = axes.annotate(number.format(value), (place, value), (0, 8), textcoords="offset points", ha="center")
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])  # a steep line may cross it


def _legend(jobs: Jobs, names: Sequence[str]) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = []
    if len(jobs.series()) > 1:
        pairs = zip(_colours(jobs), jobs.series(), strict=True)
        handles += [Line2D([], [], color=colour, marker="o", label=label) for colour, label in pairs]
    if any(name.startswith(HELD_OUT) for row in jobs.measured for name in row):
        handles.append(Line2D([], [], color="#777777", marker="o", label="trained on"))
        handles.append(Line2D([], [], color="#777777", label="held out", **_HELD_OUT_STYLE))
    if "lost" in names:
        pairs = zip(itertools.cycle(REASON_COLOURS), jobs.reasons(), strict=False)
        handles += [Patch(color=colour, label=f"lost: {name.removeprefix(LOST_PREFIX)}") for colour, name in pairs]
    return handles


def _colours(jobs: Jobs) -> list[str]:
    return [colour for colour, _ in zip(itertools.cycle(COLOURS), jobs.series(), strict=False)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _short(tick: str) -> str:
    """Return a value as it fits under an axis: numbers with four digits, of names their end."""
    if _is_number(tick):
        return f"{float(tick):.4g}"
    return tick if len(tick) <= LONGEST_TICK else f"…{tick[1 - LONGEST_TICK :]}"
