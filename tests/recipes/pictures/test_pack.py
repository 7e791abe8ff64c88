import numpy as np
import pytest
from PIL import Image, ImageColor

from recipes.pictures import draw_pack
from recipes.pictures.pack import MARGIN, PAGE_WIDTH
from recipes.pictures.tiles import LOSS_COLOUR, MODE_COLOURS, PAPER, TILE_HEIGHT, tile_of
from recipes.pictures.unpack import Split, TextToken, unpack


@pytest.fixture(scope="module")
def drawn(packs, tokenizer, tmp_path_factory):
    """Draw every pack; return the batches and their pictures [H, W, 3]."""
    batches, folder = packs(True), tmp_path_factory.mktemp("pictures")
    for number, batch in enumerate(batches):
        samples = range(len(batch.batch_data_indexes))
        origins = [f"/data/{'long' * 20}-{number}.parquet, row group 7, row {number}" for number in samples]
        draw_pack(batch, origins, tokenizer, folder / f"{number}.png")
    return batches, [np.asarray(Image.open(folder / f"{number}.png")) for number in range(len(batches))]


def share(page_HWC: np.ndarray, colour: str) -> float:
    return float((page_HWC == ImageColor.getrgb(colour)).all(axis=2).mean())


def test_every_mode_that_a_pack_has_is_seen_in_its_colour(drawn):
    for batch, page in zip(*drawn, strict=True):
        for mode, colour in MODE_COLOURS.items():
            assert share(page[200:], colour) > 0
            if mode in batch.attn_modes:
                assert share(page[300:], colour) > 0.003  # below the legend


def test_losses_are_marked(drawn):
    assert all(share(page[300:], LOSS_COLOUR) > 0.0005 for page in drawn[1])


def test_nothing_is_painted_into_the_margins(drawn):
    for page in drawn[1]:
        assert page.shape[1] == PAGE_WIDTH
        for edge in (page[:, : MARGIN - 2], page[:, PAGE_WIDTH - MARGIN + 2 :]):
            assert (edge == ImageColor.getrgb(PAPER)).all()


def test_tiles_of_a_split_fit_the_room_they_are_given(packs, tokenizer):
    for batch in packs(False):
        for split in (split for sample in unpack(batch).samples for split in sample.splits):
            tile = tile_of(split, tokenizer, 700)
            assert tile.width <= 700
            assert all(chip.left + chip.width <= tile.width for chip in tile.chips)
            assert sum(thumbnail.width for _, thumbnail in tile.images) < tile.width


def test_a_long_text_gets_a_higher_tile_and_keeps_every_token(tokenizer):
    ids = tokenizer.encode("a red circle " * 200)
    texts = [TextToken(row=row, id=token, label=None) for row, token in enumerate(ids)]
    split = Split(start=0, length=len(ids), mode="causal", texts=texts, images=[])
    tile = tile_of(split, tokenizer, 800)
    assert tile.width <= 800
    assert "".join(chip.text for chip in tile.chips) == "a red circle " * 200
    assert tile.height > 5 * TILE_HEIGHT
