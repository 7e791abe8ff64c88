"""The page of ``scripts/preview.py`` in a real browser: it loads, nothing is broken, and its mask answers."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
import torch

from automodel_data.multimodal.utils import prepare_attention_mask_per_sample
from tests.recipes.composing import rows_in

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip

ANSWER = re.compile(r"Row (?P<row>\d+) \(.*?\) (?P<verb>sees|does not see) column (?P<column>\d+) \(.*\)\.")

PROBE = """
<script>
addEventListener("load", () => {
  const pointed = document.querySelector(".pointed"), picture = document.querySelector(".mask .picture");
  const box = picture.getBoundingClientRect();
  const point = (x, y) => {
    const [clientX, clientY] = [box.left + x * box.width, box.top + y * box.height];
    picture.dispatchEvent(new MouseEvent("mousemove", {clientX, clientY}));
    return pointed.textContent;
  };
  const places = [...Array(24).keys()].map((number) => (number + 0.5) / 24);
  const result = {
    images: document.images.length,
    broken: [...document.images].filter((image) => !image.complete || image.naturalWidth === 0).length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    bar: document.querySelector(".bar rect").getBoundingClientRect().width,
    colour: getComputedStyle(document.querySelector(".split.noise .head b")).color,
    answers: places.flatMap((x) => places.map((y) => point(x, y))),
    splits: document.querySelector(".mask").dataset.splits,
    errors,
  };
  document.body.dataset.probe = JSON.stringify(result);
});
</script>
"""
CATCH = "<script>const errors = []; addEventListener('error', (event) => errors.push(event.message));</script>"


@pytest.fixture(scope="module")
def page(few_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preview")
    path = folder / "page.html"
    command = [sys.executable, "scripts/preview.py", f"output_dir={folder}", f"preview.path={path}", "preview.packs=2"]
    done = subprocess.run(
        [*command, *rows_in(few_rows)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(path)
    return path


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH (apt-get install chromium)")
    return found


def probed(browser: str, page: Path, folder: Path, width: int) -> dict:
    probed_page = folder / "probed.html"
    html = page.read_text(encoding="utf-8")
    probed_page.write_text(html.replace("<head>", f"<head>{CATCH}").replace("</body>", f"{PROBE}</body>"))
    command = [browser, *QUIET, f"--window-size={width},1200", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    done = subprocess.run([*command, f"file://{probed_page}"], capture_output=True, text=True, timeout=90)
    (found,) = re.findall(r'data-probe="([^"]*)"', done.stdout)
    return json.loads(found.replace("&quot;", '"'))


@pytest.mark.parametrize("width", [1400, 600])
def test_the_page_is_whole_in_a_browser(browser: str, page: Path, tmp_path: Path, width: int) -> None:
    seen = probed(browser, page, tmp_path, width)
    assert seen["errors"] == []
    assert seen["images"] > 20
    assert seen["broken"] == 0
    assert seen["wide"] == 0, "the page scrolls sideways"
    assert seen["bar"] > 0
    assert seen["colour"] == "rgb(215, 127, 31)"


def test_pointing_at_the_mask_tells_who_sees_whom(browser: str, page: Path, tmp_path: Path) -> None:
    seen = probed(browser, page, tmp_path, 1400)
    splits = json.loads(seen["splits"])
    samples = groupby(splits, key=itemgetter(3))
    masks = [prepare_attention_mask_per_sample(*zip(*(split[1:3] for split in own), strict=True)) for _, own in samples]
    sees = torch.block_diag(*((mask == 0).int() for mask in masks))
    answers = [ANSWER.fullmatch(line) for line in seen["answers"]]
    assert len(answers) == 24 * 24
    for answer in answers:
        assert answer is not None
        assert (answer["verb"] == "sees") == bool(sees[int(answer["row"]), int(answer["column"])]), answer[0]
    assert {answer["verb"] for answer in answers if answer} == {"sees", "does not see"}
