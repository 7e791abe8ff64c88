import json
from pathlib import Path

import pytest
from PIL import Image, ImageOps


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("split", "count"), [("train", 200), ("heldout", 32)])
def test_pairs_have_one_or_two_contexts_and_few_resolutions(demo_root, split, count):
    folder = demo_root / split / "pairs"
    pairs = lines(folder / "pairs.jsonl")
    assert len(pairs) == count
    assert {len(pair["contexts"]) for pair in pairs} == {1, 2}
    sizes = {ImageOps.exif_transpose(Image.open(folder / pair["target"])).size for pair in pairs}
    assert sizes == {(160, 160), (192, 128), (128, 192)}


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_pair_with_one_context_does_what_its_instruction_says(demo_root, split, look, follow):
    folder = demo_root / split / "pairs"
    for pair in lines(folder / "pairs.jsonl"):
        contexts = [look((folder / name).read_bytes()) for name in pair["contexts"]]
        target = look((folder / pair["target"]).read_bytes())
        if len(contexts) == 1:
            assert follow(contexts[0], pair["instruction"]) == target
        else:
            assert pair["instruction"] == "add the shape of the second picture to the first"
            assert target.ground == contexts[0].ground
            assert target.shapes == contexts[0].shapes | contexts[1].shapes
            assert len(contexts[1].shapes) == 1


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_captions_are_true_of_their_images(demo_root, split, look, judge_caption):
    folder = demo_root / split / "pairs"
    captions = lines(folder / "captions.jsonl")
    assert len(captions) == len(lines(folder / "pairs.jsonl"))
    assert all(judge_caption(look((folder / row["image"]).read_bytes()), row["caption"]) for row in captions)
