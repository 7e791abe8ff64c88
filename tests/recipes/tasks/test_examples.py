"""Which samples of a cache are looked at."""

import logging
from pathlib import Path

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset
from recipes.tasks.examples import examples, unlike
from tests.recipes.caches import write_edits

INPUTS = Path(__file__).parents[2] / "data/parity/inputs"


def cache(folder: Path, *shapes: tuple[int, int, int]) -> ImageEditDataset:
    """Write edits of (height, width, contexts) and open them."""
    edits = [(torch.zeros(16, h, w), [torch.zeros(16, 4, 4)] * contexts) for h, w, contexts in shapes]
    return ImageEditDataset(str(write_edits(folder, edits)))


def test_buckets_and_numbers_of_contexts_are_shown_before_anything_again(tmp_path) -> None:
    shapes = [(4, 4, 1)] * 3 + [(4, 6, 1)] + [(8, 8, 2)] * 2
    dataset = cache(tmp_path / "cache", *shapes)
    assert list(unlike(dataset)) == [0, 4, 3, 5, 1, 2]
    shown = examples(dataset, 3)
    assert [len(batch["context_latents"]) for batch in shown] == [1, 2, 1]
    assert [tuple(batch["image_latents"].shape) for batch in shown] == [(1, 16, 4, 4), (1, 16, 8, 8), (1, 16, 4, 6)]


def test_a_payload_that_cannot_be_used_is_told_of_and_another_is_shown(tmp_path, caplog) -> None:
    dataset = cache(tmp_path / "cache", (4, 4, 1), (4, 4, 1))
    (tmp_path / "cache" / "0.pt").write_bytes(b"broken")
    with caplog.at_level(logging.WARNING):
        shown = examples(dataset, 2)
    assert [batch["metadata"]["samples"][0]["original_ids"]["row"] for batch in shown] == [1]
    assert "0.pt" in caplog.text


@pytest.mark.parametrize(("count", "given"), [(1, 1), (3, 3)])
def test_captioned_images_are_shown_of_different_buckets_too(count: int, given: int) -> None:
    dataset = TextToImageDataset(str(INPUTS / "t2i_cache"))
    shown = examples(dataset, count)
    assert len({tuple(batch["image_latents"].shape) for batch in shown}) == given
