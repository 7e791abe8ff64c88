import io
import json
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from automodel_data.errors import DataError
from recipes.demo_data import DEMO, DemoDataConfig, ensure_demo_data
from recipes.demo_data.make import MANIFEST

TINY = DemoDataConfig(t2i_rows=10, edit_rows=10, vlm_rows=24, pairs=4, heldout_rows=8, max_edge=140)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def make_and_report(root: Path, barrier, reports) -> None:
    barrier.wait()
    ensure_demo_data(root, TINY)
    reports.put((root / MANIFEST).stat().st_ino)


def test_the_same_config_makes_the_same_bytes(tmp_path):
    one, two = (ensure_demo_data(tmp_path / name, TINY) for name in ("one", "two"))
    assert contents(one) == contents(two)


def test_another_seed_makes_other_rows(tmp_path):
    one, two = (ensure_demo_data(tmp_path / str(seed), replace(TINY, seed=seed)) for seed in (1, 2))
    assert (one / "train/vlm/rows.jsonl").read_text() != (two / "train/vlm/rows.jsonl").read_text()


def test_complete_data_is_left_alone(tmp_path):
    root = ensure_demo_data(tmp_path / "demo", TINY)
    (root / "train/vlm/rows.jsonl").write_text("touched")
    ensure_demo_data(root, TINY)
    assert (root / "train/vlm/rows.jsonl").read_text() == "touched"


def test_data_of_another_config_is_replaced_as_a_whole(tmp_path):
    root = ensure_demo_data(tmp_path / "demo", TINY)
    ensure_demo_data(root, replace(TINY, seed=5))
    assert contents(root) == contents(ensure_demo_data(tmp_path / "fresh", replace(TINY, seed=5)))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith(".")] == []


def test_what_else_lies_in_the_folder_stays_when_the_data_is_replaced(tmp_path):
    root = ensure_demo_data(tmp_path / "demo", TINY)
    (root / "cache").mkdir()
    (root / "cache" / "payload.pt").write_bytes(b"hours of work")
    ensure_demo_data(root, replace(TINY, seed=5))
    assert (root / "cache" / "payload.pt").read_bytes() == b"hours of work"


def test_a_replacement_that_was_cut_off_is_done_again(tmp_path):
    root = ensure_demo_data(tmp_path / "demo", TINY)
    (root / MANIFEST).write_text('{"version": null}')
    shutil.rmtree(root / "train")
    ensure_demo_data(root, TINY)
    assert contents(root) == contents(ensure_demo_data(tmp_path / "fresh", TINY))


def test_who_asks_for_no_configuration_takes_the_data_that_is_there(tmp_path):
    root = ensure_demo_data(tmp_path / "demo", TINY)
    before = contents(root)
    assert contents(ensure_demo_data(root)) == before


def test_a_folder_that_is_not_demo_data_is_never_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match=r"mine exists and is not demo data"):
        ensure_demo_data(tmp_path / "mine", TINY)
    assert contents(tmp_path / "mine") == {"thesis.txt": b"years of work"}


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    leftover = tmp_path / ".demo.unfinished"
    (leftover / "tokenizer").mkdir(parents=True)
    root = ensure_demo_data(tmp_path / "demo", TINY)
    assert (root / MANIFEST).exists()
    assert not leftover.exists()


def test_processes_that_race_get_one_complete_copy(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, reports = context.Barrier(2), context.Queue()
    racers = [context.Process(target=make_and_report, args=(tmp_path / "demo", barrier, reports)) for _ in range(2)]
    for racer in racers:
        racer.start()
    manifests = {reports.get(timeout=60) for _ in racers}
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert len(manifests) == 1
    assert contents(tmp_path / "demo") == contents(ensure_demo_data(tmp_path / "alone", TINY))


def declared(root: Path, source: str) -> dict[int, str]:
    manifest = json.loads((root / MANIFEST).read_text())
    return {int(row): flaw for row, flaw in manifest["broken_train_rows"][source].items()}


def fault_of(image: bytes) -> str | None:
    """Say what keeps Pillow from decoding an image."""
    if not image:
        return "every image has zero bytes"
    if image.startswith(b"<!DOCTYPE html>"):
        return "every image is an HTML page"
    try:
        Image.open(io.BytesIO(image)).load()
    except OSError:
        return "every image is cut in half"
    return None


def fault_of_t2i(row: dict) -> str | None:
    try:
        json.loads(row["captions"])
    except json.JSONDecodeError:
        return "the captions are not JSON"
    return fault_of(row["image"])


def fault_of_edit(row: dict) -> str | None:
    faults = {fault_of(image) for image in row["image_list"]}
    assert len(faults) == 1
    return faults.pop()


def fault_of_vlm(row: dict, images: Path) -> str | None:
    names = [row["image"]] if isinstance(row.get("image"), str) else row.get("image", [])
    tags = sum(turn["value"].count("<image>") for turn in row["conversations"])
    if tags != len(names):
        return "one more <image> tag than images" if tags > len(names) else "one more image than <image> tags"
    if not all((images / name).exists() for name in names):
        return "the image file is missing"
    return next((fault for name in names if (fault := fault_of((images / name).read_bytes()))), None)


@pytest.mark.parametrize(("source", "fault"), [("t2i", fault_of_t2i), ("edit", fault_of_edit)])
def test_the_broken_parquet_rows_are_exactly_those_declared(demo_root, source, fault):
    paths = sorted((demo_root / "train" / source).glob("*.parquet"))
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert {number: found for number, row in enumerate(rows) if (found := fault(row))} == declared(demo_root, source)


def test_the_broken_conversations_are_exactly_those_declared(demo_root):
    folder = demo_root / "train/vlm"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    faults = {row["id"]: found for row in rows if (found := fault_of_vlm(row, folder / "images"))}
    assert faults == declared(demo_root, "vlm")


def test_nothing_is_broken_in_the_held_out_split_nor_without_oddities(tmp_path):
    root = ensure_demo_data(tmp_path / "demo", replace(TINY, oddities=False))
    assert [declared(root, source) for source in ("t2i", "edit", "vlm")] == [{}, {}, {}]
    for path in [*root.glob("*/t2i/*.parquet"), *root.glob("*/edit/*.parquet")]:
        for row in pq.read_table(path).to_pylist():
            assert not (fault_of_t2i(row) if "image" in row else fault_of_edit(row))


def test_the_default_is_a_few_hundred_rows():
    assert (DEMO.t2i_rows, DEMO.edit_rows, DEMO.vlm_rows, DEMO.heldout_rows) == (240, 120, 240, 32)
