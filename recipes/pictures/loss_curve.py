"""The loss curves of a run, from its JSON lines: all samples and each dataset, trained on and held out."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from automodel_data.errors import DataError

TITLES = {"loss": "loss, weighted", "ce": "cross-entropy per text token", "mse": "squared error per latent token"}
ALL_COLOUR = "#222222"
GROUP_COLOURS = ("#2a6fdb", "#d1495b", "#2e933c", "#b5179e", "#e07a1f", "#00798c")
HELD_OUT = "val/"
SMOOTHED_FROM = 30  # points


@dataclass(slots=True)
class Curve:
    """Values of one metric by step."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def smoothed(self) -> np.ndarray:
        """Return the mean of about a fifteenth of the points around each point; few points stay as they are."""
        values = np.array(self.values)
        if len(values) < SMOOTHED_FROM:
            return values
        places = np.arange(len(values))
        reach = np.minimum(max(1, len(values) // 30), places)  # shorter at the start, where losses are steep
        first, last = places - reach, np.minimum(places + reach + 1, len(values))
        sums = np.cumsum(np.concatenate([[0.0], values]))
        return (sums[last] - sums[first]) / (last - first)


def draw_loss_curve(metrics_jsonl: Path, png: Path) -> None:
    """Draw a panel for each of ``loss``, ``ce`` and ``mse`` that was logged; none for a loss that is its only term.

    Args:
        metrics_jsonl: Lines ``{"step": 3, "ce": 2.1, "ce/vlm_sft": 2.0, "val/ce": 2.2, ...}``; any may be missing.

    Raises:
        DataError: no loss was logged.
    """
    curves = read_curves(metrics_jsonl)
    terms = _distinct([term for term in TITLES if term in curves or HELD_OUT + term in curves], curves)
    if not terms:
        raise DataError(
            f"{metrics_jsonl} has no losses; lines with a step and one of {', '.join(TITLES)} were looked for"
        )
    groups = _groups(curves, terms)
    figure = Figure(figsize=(5.2 * len(terms), 4.4), layout="constrained", dpi=130)
    for axes, term in zip(figure.subplots(1, len(terms), squeeze=False)[0], terms, strict=True):
        _draw_panel(axes, term, curves, groups)
    figure.legend(handles=_legend(terms, curves, groups), loc="outside lower center", ncols=8, frameon=False)
    figure.savefig(png)


def read_curves(metrics_jsonl: Path) -> dict[str, Curve]:
    """Return the curve of every metric; a last line that was cut short is left out."""
    curves: dict[str, Curve] = defaultdict(Curve)
    for line in metrics_jsonl.read_text(encoding="utf-8").splitlines(keepends=True):
        record = json.loads(line) if line.endswith("\n") else {}
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                curves[name].steps.append(record["step"])
                curves[name].values.append(value)
    return dict(curves)


def _distinct(terms: list[str], curves: Mapping[str, Curve]) -> list[str]:
    """Leave out the weighed sum where it has one term, of weight 1."""
    match terms:
        case ["loss", only] if all(curves.get(one + "loss") == curves.get(one + only) for one in ("", HELD_OUT)):
            return [only]
    return terms


def _groups(curves: Mapping[str, Curve], terms: Sequence[str]) -> dict[str, str]:
    """Return the colour of each dataset that has a curve of its own."""
    parts = (name.removeprefix(HELD_OUT).split("/") for name in curves)
    names = sorted({part[1] for part in parts if len(part) == 2 and part[0] in terms})
    return {name: GROUP_COLOURS[number % len(GROUP_COLOURS)] for number, name in enumerate(names)}


def _coloured(term: str, curves: Mapping[str, Curve], groups: Mapping[str, str]) -> dict[str, str]:
    """Return the curves of a panel and their colours."""
    parts = {name: colour for group, colour in groups.items() if (name := f"{term}/{group}") in curves}
    return parts if len(parts) == 1 else {term: ALL_COLOUR} | parts  # the curve of one part is that of all


def _draw_panel(axes: Axes, term: str, curves: Mapping[str, Curve], groups: Mapping[str, str]) -> None:
    named = _coloured(term, curves, groups)
    for name, colour in named.items():
        width = 3.0 if name == term else 1.5
        if name in curves:
            curve = curves[name]
            axes.plot(curve.steps, curve.values, color=colour, linewidth=0.8, alpha=0.22)
            axes.plot(curve.steps, curve.smoothed(), color=colour, linewidth=width)
        if HELD_OUT + name in curves:
            curve = curves[HELD_OUT + name]
            axes.plot(curve.steps, curve.values, color=colour, linewidth=width, **_HELD_OUT_STYLE)
    axes.set_title(TITLES[term], fontsize=11)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0, _top(curves[name] for name in (*named, *(HELD_OUT + n for n in named)) if name in curves))
    axes.grid(color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


_HELD_OUT_STYLE = {"linestyle": (0, (4, 2)), "marker": "o", "markersize": 4.5, "markerfacecolor": "white"}


def _top(curves: Iterable[Curve]) -> float:
    """Return an upper bound that shows where curves start, and that a few spikes do not stretch."""
    finite = [values[np.isfinite(values)] for values in (np.array(curve.values) for curve in curves)]
    finite = [values for values in finite if values.size]
    if not finite:
        return 1.0
    top = max(np.quantile(np.concatenate(finite), 0.995), *(values[0] for values in finite))
    return 1.08 * float(top) if top > 0 else 1.0


def _legend(terms: Sequence[str], curves: Mapping[str, Curve], groups: Mapping[str, str]) -> list[Line2D]:
    has_all = groups and any(term in _coloured(term, curves, groups) for term in terms)
    handles = [Line2D([], [], color=ALL_COLOUR, linewidth=3.0, label="all")] if has_all else []
    handles += [Line2D([], [], color=colour, linewidth=1.8, label=name) for name, colour in groups.items()]
    handles.append(Line2D([], [], color="#777777", linewidth=1.8, label="trained on"))
    if any(name.startswith(HELD_OUT) for name in curves):
        handles.append(Line2D([], [], color="#777777", linewidth=1.8, label="held out", **_HELD_OUT_STYLE))
    return handles
