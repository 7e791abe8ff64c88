import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from automodel_data.errors import DataError
from recipes.pictures import draw_loss_curve
from recipes.pictures.loss_curve import Curve, _draw_panel, _groups, _legend, read_curves


def metrics(path: Path, *records: dict, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


def is_a_picture(png: Path) -> bool:
    return np.ptp(np.asarray(Image.open(png).convert("L"))) > 100


def test_all_series_are_drawn_side_by_side(tmp_path):
    records = [
        {"step": step, "loss": 3 / step, "ce": 2 / step, "mse": 1 / step, "ce/vlm_sft": 2 / step, "val/ce": 2.1 / step}
        for step in range(1, 60)
    ]
    draw_loss_curve(metrics(tmp_path / "all.jsonl", *records), tmp_path / "all.png")
    draw_loss_curve(
        metrics(tmp_path / "ce.jsonl", *({"step": r["step"], "ce": r["ce"]} for r in records)), tmp_path / "ce.png"
    )
    assert is_a_picture(tmp_path / "all.png")
    assert Image.open(tmp_path / "all.png").width == 3 * Image.open(tmp_path / "ce.png").width


def panels(records: list[dict], folder: Path) -> int:
    """Return how many panels are as wide as one."""
    widths = []
    for name, lines in (("one", [{"step": 1, "ce": 1.0}]), ("these", records)):
        draw_loss_curve(metrics(folder / f"{name}.jsonl", *lines), folder / f"{name}.png")
        widths.append(Image.open(folder / f"{name}.png").width)
    return widths[1] // widths[0]


def test_a_loss_that_is_its_only_term_has_no_panel_beside_it(tmp_path):
    records = [{"step": step, "loss": 1 / step, "mse": 1 / step, "val/mse": 2.0, "val/loss": 2.0} for step in (1, 2)]
    assert panels(records, tmp_path) == 1
    assert panels([record | {"loss": 2 * record["mse"]} for record in records], tmp_path) == 2
    assert panels([record | {"val/loss": 3.0} for record in records], tmp_path) == 2
    assert panels([record | {"ce": 0.5} for record in records], tmp_path) == 3


def drawn(values: list[float], folder: Path) -> Axes:
    path = metrics(folder / "m.jsonl", *({"step": step, "ce": value} for step, value in enumerate(values, 1)))
    axes = Figure().subplots()
    _draw_panel(axes, "ce", read_curves(path), {})
    return axes


def test_the_start_of_a_curve_is_seen_and_a_spike_does_not_stretch_it(tmp_path):
    falling = [2.0, 1.0] + [0.5] * 998
    assert 2.0 < drawn(falling, tmp_path).get_ylim()[1] < 2.5
    assert drawn([*falling[:500], 40.0, *falling[500:]], tmp_path).get_ylim()[1] < 2.5


@pytest.mark.parametrize(("groups", "named"), [(["vlm"], ["vlm"]), (["t2i", "vlm"], ["all", "t2i", "vlm"]), ([], [])])
def test_the_legend_names_the_lines_that_are_drawn(groups, named, tmp_path):
    values = {"ce": 2.0} | {f"ce/{group}": 2.0 for group in groups}
    curves = read_curves(metrics(tmp_path / "m.jsonl", {"step": 1} | values))
    labels = [handle.get_label() for handle in _legend(["ce"], curves, _groups(curves, ["ce"]))]
    assert labels == [*named, "trained on"]


def test_steps_are_whole_numbers(tmp_path):
    ticks = drawn([3.0, 2.0, 1.0], tmp_path).get_xticks()
    assert list(ticks) == [round(tick) for tick in ticks]


@pytest.mark.parametrize(("groups", "lines"), [([], 1), (["vlm"], 1), (["vlm", "t2i"], 3)])
def test_all_samples_have_a_line_of_their_own_unless_one_dataset_is_all_there_is(groups, lines, tmp_path):
    values = {"ce": 2.0} | {f"ce/{group}": 2.0 for group in groups}
    path = metrics(tmp_path / "m.jsonl", *({"step": step} | values for step in (1, 2)))
    curves = read_curves(path)
    axes = Figure().subplots()
    _draw_panel(axes, "ce", curves, _groups(curves, ["ce"]))
    assert len({line.get_color() for line in axes.lines}) == lines


@pytest.mark.parametrize(
    "record",
    [{"mse": 1.0}, {"val/ce": 1.0}, {"ce": 0.0}, {"mse": 0.4, "mse/t2i_pretrain": 0.3}, {"loss": float("nan")}],
)
def test_one_point_of_any_series_is_enough(record, tmp_path):
    draw_loss_curve(metrics(tmp_path / "m.jsonl", {"step": 0} | record), tmp_path / "m.png")
    assert is_a_picture(tmp_path / "m.png")


def test_a_series_that_comes_and_goes_keeps_its_own_steps(tmp_path):
    path = metrics(
        tmp_path / "m.jsonl", {"step": 1, "ce": 3.0}, {"step": 2, "mse": 1.0}, {"step": 3, "ce": 2.0, "note": "x"}
    )
    assert read_curves(path) == {"ce": Curve([1, 3], [3.0, 2.0]), "mse": Curve([2], [1.0])}


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path):
    path = metrics(tmp_path / "m.jsonl", {"step": 1, "ce": 3.0}, tail='{"step": 2, "ce')
    assert read_curves(path) == {"ce": Curve([1], [3.0])}


def test_without_losses_the_error_names_the_file_and_what_was_looked_for(tmp_path):
    with pytest.raises(DataError, match=r"m\.jsonl has no losses; .* loss, ce, mse"):
        draw_loss_curve(metrics(tmp_path / "m.jsonl", {"step": 1, "lr": 0.1}), tmp_path / "m.png")


def test_smoothing_keeps_a_constant_and_the_first_value_and_calms_noise():
    noise = np.random.default_rng(0).normal(size=300)
    assert np.allclose(Curve(list(range(300)), [2.0] * 300).smoothed(), 2.0)
    smoothed = Curve(list(range(300)), noise.tolist()).smoothed()
    assert smoothed[0] == pytest.approx(noise[0])
    assert smoothed[50:].std() < 0.5 * noise.std()
