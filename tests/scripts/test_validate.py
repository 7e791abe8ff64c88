"""The exit code, the tables and the JSON of ``scripts/validate.py``."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.demo_data import DemoDataConfig, ensure_demo_data

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    few = DemoDataConfig(
        t2i_rows=8, edit_rows=8, vlm_rows=8, pairs=0, heldout_rows=8, min_edge=64, max_edge=96, oddities=False
    )
    return ensure_demo_data(tmp_path_factory.mktemp("data") / "demo", few)


def validate(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/validate.py", f"output_dir={folder}", "sources.prepare=null", *overrides]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_sound_data_gives_tables_and_exit_code_zero(rows: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    counts = ["sources.num_used_data.train.vlm_sft=[8]", "sources.num_used_data.heldout.vlm_sft=[8]"]
    run = validate(tmp_path, "recipe=bagel", f"sources.root={rows}", *counts, f"validate.report={report}")
    assert run.returncode == 0, run.stderr
    assert "no problems, 0 warning(s)" in run.stdout
    assert "steps per pass" in run.stdout
    assert json.loads(report.read_text())["ok"] is True


def test_a_fault_gives_exit_code_one_and_its_line(rows: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(rows, tmp_path / "demo")
    (broken / "train/t2i/part-2.parquet").write_bytes(b"PAR1")
    run = validate(tmp_path, "recipe=t2i", f"sources.root={broken}")
    assert run.returncode == 1, run.stderr
    assert "part-2.parquet" in run.stdout
    assert "no problems" not in run.stdout
    assert "Traceback" not in run.stderr
    (written,) = tmp_path.glob("validate/*/validate.json")
    assert json.loads(written.read_text())["findings"][0]["check"] == "files"


def test_a_mistake_gives_exit_code_two_and_one_line(tmp_path: Path) -> None:
    run = validate(tmp_path, "recipe=bagel", "validate.row=3")
    assert run.returncode == 2
    assert "validate.row: no such key. Did you mean 'validate.rows'?" in run.stderr
    assert "Traceback" not in run.stderr
