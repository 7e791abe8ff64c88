import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipes.demo_data.config import DEMO
from recipes.demo_data.flaws import Source, broken_rows


def rows_of(folder):
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize(
    ("split", "source", "rows"),
    [("train", "t2i", 240), ("train", "edit", 120), ("heldout", "t2i", 32), ("heldout", "edit", 32)],
)
def test_rows_lie_in_four_files_of_several_row_groups(demo_root, split, source, rows):
    files = [pq.ParquetFile(path) for path in sorted((demo_root / split / source).iterdir())]
    assert len(files) == 4
    assert sum(file.metadata.num_rows for file in files) == rows
    assert all(file.num_row_groups == 4 for file in files)


def test_columns_are_those_of_the_formats(demo_root):
    t2i = pq.read_schema(demo_root / "train/t2i/part-0.parquet")
    edit = pq.read_schema(demo_root / "train/edit/part-0.parquet")
    assert t2i.types == [pa.binary(), pa.string()]
    assert t2i.names == ["image", "captions"]
    assert edit.names == ["image_list", "instruction_list"]
    assert edit.types == [pa.list_(pa.binary()), pa.list_(pa.list_(pa.string()))]


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_captions_in_the_files_are_true_of_the_images_in_the_files(demo_root, split, look, judge_caption):
    broken = broken_rows(Source.T2I, DEMO.t2i_rows) if split == "train" else {}
    for number, row in enumerate(rows_of(demo_root / split / "t2i")):
        if number not in broken:
            view = look(row["image"])
            assert all(judge_caption(view, caption) for caption in json.loads(row["captions"]).values()), number


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_instructions_in_the_files_are_true_of_the_images_in_the_files(demo_root, split, look, follow):
    broken = broken_rows(Source.EDIT, DEMO.edit_rows) if split == "train" else {}
    rows = {number: row for number, row in enumerate(rows_of(demo_root / split / "edit")) if number not in broken}
    assert {len(row["image_list"]) for row in rows.values()} == {2, 3, 4, 5}
    for number, row in rows.items():
        views = [look(image) for image in row["image_list"]]
        assert len(row["instruction_list"]) == len(views) - 1
        for before, texts, after in zip(views, row["instruction_list"], views[1:], strict=False):
            assert all(follow(before, text) == after for text in texts), (number, texts)


def test_the_two_splits_share_no_picture(demo_root, look):
    broken = broken_rows(Source.T2I, DEMO.t2i_rows)
    train = {look(row["image"]) for n, row in enumerate(rows_of(demo_root / "train/t2i")) if n not in broken}
    heldout = {look(row["image"]) for row in rows_of(demo_root / "heldout/t2i")}
    assert not train & heldout
