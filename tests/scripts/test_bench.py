import json
import os
import subprocess
import sys
from pathlib import Path

from tests.recipes.parity_sources import write_sources

ROOT = Path(__file__).parents[2]
OURS = "automodel_data.multimodal.datasets.BagelDatasetConfig"


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    own = write_sources(folder / "conf")
    small = ["sources=parity", "packing=tiny", "images=tiny", "packs=2", "rounds=1", f"output_dir={folder / 'out'}"]
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/bench.py"), "--config-dir", str(own), *small, *overrides],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_one_command_measures_ours_and_a_peer_on_the_same_rows(tmp_path: Path) -> None:
    done = run(tmp_path, "data=edit", "~contestants.torchvision", f"peer._target_={OURS}")
    assert done.returncode == 0, done.stderr
    assert "times the peer's, on the same rows" in done.stdout
    (path,) = (tmp_path / "out").rglob("bench.json")
    assert f"everything: {path}" in done.stdout
    content = json.loads(path.read_text())
    assert content["same_rows"]
    assert set(content["medians"]) == {"pillow", "peer"}
    assert content["medians"]["pillow"]["state_bytes"] < 64 * 1024
    assert content["config"]["data"]["dataset_config"]["max_num_tokens"] == 1728
