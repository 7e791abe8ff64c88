"""The exit code, the tables and the JSON of ``scripts/validate.py``."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.recipes.composing import rows_in

ROOT = Path(__file__).parents[2]


def validate(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/validate.py", f"output_dir={folder}", *overrides]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_sound_data_gives_tables_and_exit_code_zero(few_rows: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = validate(tmp_path, "recipe=bagel", *rows_in(few_rows), f"validate.report={report}")
    assert run.returncode == 0, run.stderr
    assert "no problems, 0 warning(s)" in run.stdout
    assert "steps per pass" in run.stdout
    assert json.loads(report.read_text())["ok"] is True


def test_a_fault_gives_exit_code_one_and_its_line(few_rows: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(few_rows, tmp_path / "demo")
    (broken / "train/t2i/part-2.parquet").write_bytes(b"PAR1")
    run = validate(tmp_path, "recipe=t2i", *rows_in(broken))
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
