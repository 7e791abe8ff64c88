import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_demo_data.py"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=SCRIPT.parents[1], env=ENVIRONMENT, timeout=120)


ENVIRONMENT = {"PYTHONPATH": str(SCRIPT.parents[1]), "PATH": "/usr/bin:/bin"}


def test_rows_pairs_and_image_size_are_what_was_asked_for(tmp_path):
    done = run(tmp_path / "demo", "--rows", 16, "--pairs", 7, "--image-size", 96, "--seed", 3)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'demo'}: " in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "demo/train/vlm/rows.jsonl").read_text().splitlines()]
    assert len(rows) == 16
    assert len((tmp_path / "demo/train/pairs/pairs.jsonl").read_text().splitlines()) == 7
    sizes = [Image.open(path).size for path in (tmp_path / "demo/heldout/vlm/images").glob("*_0.*")]
    assert sizes
    assert all(48 <= edge <= 96 for size in sizes for edge in size)


def test_a_mistake_is_one_line_and_exit_code_two(tmp_path):
    (tmp_path / "mine.txt").write_text("not demo data")
    for arguments in ((tmp_path,), (tmp_path / "demo", "--rows", 2), (tmp_path / "demo", "--preset", "photos")):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "error:" in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
