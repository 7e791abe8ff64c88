"""The script itself: processes that are stopped and started, ranks, flags, and what a user reads."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "scripts" / "encode_cache.py")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SMALL = ("encoder=demo", "transform.max_pixels=1024", "encoder.text_size=8")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 40 pairs; the third has no instruction, and the seventh's target is missing."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = []
    for i in range(40):
        for place in ("a", "b"):
            size = (40, 40) if i % 2 else (64, 32)
            Image.new("RGB", size, (i * 6, 255 - i * 6, 80 if place == "a" else 180)).save(folder / f"{i}{place}.png")
        rows.append({"contexts": [f"{i}a.png"], "instruction": f"shift colour {i}", "target": f"{i}b.png"})
    rows[2]["instruction"] = ""
    (folder / "6b.png").unlink()
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def command(source: Path, cache: Path, *more: str) -> list[str]:
    logs = f"output_dir={cache.parent / 'logs'}"
    return [SCRIPT, f"source={source}", f"cache_dir={cache}", logs, *SMALL, *more]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def whole(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Encode all pairs in one process."""
    cache = tmp_path_factory.mktemp("whole") / "cache"
    done = run(command(pairs, cache))
    assert done.returncode == 0, done.stderr
    assert f"{cache}: 38 samples in 2 buckets; rows lost: " in done.stderr
    assert "1 x missing instruction" in done.stderr
    assert "1 x missing image" in done.stderr
    assert len(ImageEditDataset(str(cache))) == 38
    return cache


def contents(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not holds() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_killed_run_goes_on_and_ends_as_if_never_stopped(pairs: Path, whole: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, *command(pairs, cache, "threads=1")], env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(list(cache.rglob("*.pt"))) >= 5, process)
    process.kill()
    process.wait(timeout=60)
    assert not (cache / "metadata.json").exists()
    done = run(command(pairs, cache))
    assert done.returncode == 0, done.stderr
    assert contents(cache) == contents(whole)


def test_two_ranks_make_the_same_cache(pairs: Path, whole: Path, tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run([*torchrun, *command(pairs, tmp_path / "cache")])
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "cache") == contents(whole)
    logs = "".join(path.read_text() for path in (tmp_path / "logs").rglob("rank*.log"))
    shares = [int(rows) for rows in re.findall(r"rank \d: (\d+) rows, \d+ encoded now", logs)]
    assert sum(shares) == 40, "every row is taken by one rank"


def test_ctrl_c_ends_it_with_one_line_and_the_same_command_goes_on(pairs: Path, whole: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    arguments = [sys.executable, *command(pairs, cache, "threads=1")]
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(cache.rglob("*.pt"))) >= 3, process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "INFO stopped; the same command goes on where it was"
    assert "Traceback" not in stderr
    assert not (cache / "metadata.json").exists()
    assert run(command(pairs, cache)).returncode == 0
    assert contents(cache) == contents(whole)


def test_help_tells_of_the_flags() -> None:
    done = run([SCRIPT, "--help"])
    assert "With --verify it reads the cache back" in done.stdout
    assert "with --preview it draws a contact sheet" in done.stdout


def test_a_cache_of_another_kind_or_origin_is_not_replaced(pairs: Path, whole: Path, tmp_path: Path) -> None:
    before = contents(whole)
    done = run(command(pairs, whole, "encode=t2i", f"source={tmp_path}"))
    assert done.returncode == 2
    (tmp_path / "captions.jsonl").write_text('{"image": "x.png", "caption": "x"}\n')
    done = run(command(tmp_path, whole, "encode=t2i"))
    assert done.returncode == 2
    assert f"error: cache_dir ({whole}) holds a cache of encode=image_edit, which encode=t2i would rep" in done.stderr
    assert contents(whole) == before
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "metadata.json").write_text('{"shards": ["metadata_shard_0.json"]}')
    done = run(command(pairs, foreign))
    assert done.returncode == 2
    assert f"error: cache_dir ({foreign}) holds a cache that was not made here: name another folder" in done.stderr
    assert [path.name for path in foreign.iterdir()] == ["metadata.json"]


def test_a_folder_of_other_files_takes_no_cache(pairs: Path) -> None:
    before = contents(pairs)
    done = run(command(pairs, pairs))
    assert done.returncode == 2
    assert f"error: cache_dir ({pairs}) holds other files (" in done.stderr
    assert contents(pairs) == before


def test_a_cache_dir_that_cannot_be_written_is_told_in_one_line(pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for cache in (tmp_path / "file", Path("/proc/cache")):
        done = run([*command(pairs, cache), f"output_dir={tmp_path / 'logs'}"])
        assert done.returncode == 2
        assert f"error: cache_dir ({cache}) cannot be written: " in done.stderr
        assert "Traceback" not in done.stderr


def test_verify_reads_the_cache_back_and_tells_by_its_exit_code(pairs: Path, whole: Path) -> None:
    done = run(command(pairs, whole, "--verify"))
    assert done.returncode == 0, done.stderr
    assert "38 samples read back" in done.stderr
    left = whole / "samples" / "ab" / f"{'ab' * 16}.pt"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"")
    done = run(command(pairs, whole, "--verify", "delete_orphans=true", "dtype=float32"))
    assert done.returncode == 1
    assert "stale: 38" in done.stderr
    assert "encoder changed since it was encoded" in done.stderr
    assert "deleted 1 orphaned file\n" in done.stderr
    assert not left.exists()


def test_preview_draws_a_sheet(pairs: Path, whole: Path) -> None:
    done = run(command(pairs, whole, "--preview", "preview.samples=4", "preview.width=64"))
    assert done.returncode == 0, done.stderr
    with Image.open(whole / "preview.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width == 2 * 76 + 12
    (whole / "preview.png").unlink()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("transform.max_pixls=3", "error: transform.max_pixls: no such key. Did you mean 'transform.max_pixels'?"),
        ("transform.quantization=8", "error: transform.quantization (8) must be a multiple of 16"),
    ],
)
def test_a_mistake_is_told_in_one_line(pairs: Path, tmp_path: Path, override: str, says: str) -> None:
    done = run(command(pairs, tmp_path / "cache", override))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
