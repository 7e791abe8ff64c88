from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from recipes.pictures import draw_sweep
from recipes.pictures.sweep import COLOURS, PANELS, REASON_COLOURS, Jobs, read_jobs

BUDGETS = """job,packing,status,fill,tokens_per_second,step_seconds,ce,mse,val/ce,lost,lost/too long,lost/broken image
0,tiny,finished,0.91,12000,0.12,3.1,1.1,3.2,40,33,7
1,8k,finished,0.95,15000,0.51,2.9,1.0,3.0,13,2,11
2,16k,failed: out of memory,,,,,,,,,
"""
TWO_KEYS = """job,packing,optimizer.lr,status,ce
0,tiny,0.01,finished,3.1
1,tiny,0.001,finished,2.9
2,tiny,1e-4,finished,2.9
3,8k,0.01,finished,3.0
4,8k,0.001,finished,2.8
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def share(png: Path, colour: str) -> float:
    rgb = np.round(np.array(to_rgb(colour)) * 255)
    return float((np.asarray(Image.open(png).convert("RGB")) == rgb).all(axis=2).mean())


def test_points_lines_and_stacked_reasons_are_drawn_in_their_colours(tmp_path) -> None:
    draw_sweep(write(tmp_path / "sweep.csv", BUDGETS), tmp_path / "sweep.png")
    assert share(tmp_path / "sweep.png", COLOURS[0]) > 0.001
    bars = [share(tmp_path / "sweep.png", colour) for colour in REASON_COLOURS[:2]]
    assert bars[0] / bars[1] == pytest.approx((33 + 2) / (7 + 11), rel=0.35)  # the legend adds to both


@pytest.mark.parametrize("panel", PANELS)
def test_what_no_job_measured_has_no_panel(panel: str, tmp_path) -> None:
    text = f"job,packing,status,{panel}\n0,tiny,finished,0.5\n1,8k,finished,0.7\n"
    draw_sweep(write(tmp_path / "one.csv", text), tmp_path / "one.png")
    draw_sweep(write(tmp_path / "all.csv", BUDGETS), tmp_path / "all.png")
    one, whole = (Image.open(tmp_path / name) for name in ("one.png", "all.png"))
    assert (one.width * 3, one.height < whole.height) == (whole.width, True)


def test_a_sweep_of_failures_is_still_a_picture(tmp_path) -> None:
    draw_sweep(write(tmp_path / "sweep.csv", "job,packing,status\n0,tiny,failed: x\n"), tmp_path / "sweep.png")
    assert Image.open(tmp_path / "sweep.png").width > 0


def test_the_key_with_the_most_values_is_the_axis_and_the_others_are_colours(tmp_path) -> None:
    jobs = read_jobs(write(tmp_path / "sweep.csv", TWO_KEYS))
    assert jobs.swept[jobs.axis()] == "optimizer.lr"
    assert jobs.series() == {"packing=tiny": [0, 1, 2], "packing=8k": [3, 4]}
    draw_sweep(tmp_path / "sweep.csv", tmp_path / "sweep.png")
    assert all(share(tmp_path / "sweep.png", colour) > 0 for colour in COLOURS[:2])


def test_numbers_stand_by_size_and_names_in_the_order_of_the_jobs(tmp_path) -> None:
    assert read_jobs(write(tmp_path / "lr.csv", TWO_KEYS)).ticks() == ["1e-4", "0.001", "0.01"]
    assert read_jobs(write(tmp_path / "packing.csv", BUDGETS)).ticks() == ["tiny", "8k", "16k"]


def test_jobs_that_differ_in_nothing_stand_by_their_names(tmp_path) -> None:
    jobs = read_jobs(write(tmp_path / "sweep.csv", "job,status,ce\n0,finished,3.1\n1,finished,3.2\n"))
    assert jobs == Jobs(swept=["job"], settings=[("0",), ("1",)], measured=[{"ce": 3.1}, {"ce": 3.2}])


def test_the_most_frequent_reason_comes_first(tmp_path) -> None:
    assert read_jobs(write(tmp_path / "sweep.csv", BUDGETS)).reasons() == ["lost/too long", "lost/broken image"]
