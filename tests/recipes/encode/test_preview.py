from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recipes.encode.cache import CacheWriter
from recipes.encode.preview import draw_sheet


@pytest.mark.parametrize("layout", ["image_edit", "t2i"])
def test_a_sheet_shows_contexts_target_and_text(
    pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter], layout: str
) -> None:
    writer = make_writer(pairs, tmp_path / "cache", layout=layout)
    writer.run()
    dataset = writer.layout.open(str(tmp_path / "cache"))
    sheet = draw_sheet(dataset, writer.layout, writer.encoder, samples=3, width=100)
    pictures = 3 if layout == "image_edit" else 1  # the third pair has two contexts
    assert sheet.width == pictures * 112 + 12
    pixels = np.asarray(sheet).reshape(-1, 3)
    red = (pixels[:, 0] > 200) & (pixels[:, 1:].max(1) < 80)
    assert red.any() == (layout == "image_edit"), "red is the first pair's context"
    ink = (np.abs(pixels.astype(int) - (29, 31, 36)).max(1) < 3).sum()
    assert ink > 50, "the texts are there"


def test_a_small_cache_is_shown_whole(pairs: Path, tmp_path: Path, make_writer: Callable[..., CacheWriter]) -> None:
    writer = make_writer(pairs, tmp_path / "cache", layout="t2i")
    writer.run()
    dataset = writer.layout.open(str(tmp_path / "cache"))
    few = draw_sheet(dataset, writer.layout, writer.encoder, samples=6, width=64)
    many = draw_sheet(dataset, writer.layout, writer.encoder, samples=60, width=64)
    assert few.size == many.size
