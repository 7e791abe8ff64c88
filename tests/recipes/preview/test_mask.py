import numpy as np
import pytest

from automodel_data.multimodal.utils import prepare_attention_mask_per_sample
from recipes.pictures.unpack import PackedSample, Split
from recipes.preview.mask import UNSEEN, draw_mask, mask_cells

LENGTHS, MODES = (3, 5, 4, 2), ("causal", "full", "noise", "causal")


def sample(lengths=LENGTHS, modes=MODES) -> PackedSample:
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    splits = [
        Split(start=start, length=length, mode=mode, texts=[], images=[])
        for start, length, mode in zip(starts, lengths, modes, strict=True)
    ]
    return PackedSample(dataset="any", splits=splits)


def test_cells_are_seen_where_the_dense_mask_is_zero():
    seen = mask_cells([sample()], most=100) != UNSEEN
    assert (seen == (prepare_attention_mask_per_sample(LENGTHS, MODES).numpy() == 0)).all()


def test_samples_do_not_see_each_other():
    cells = mask_cells([sample(), sample()], most=100)
    assert cells.shape == (28, 28)
    assert (cells[:14, 14:] == UNSEEN).all()
    assert (cells[14:, :14] == UNSEEN).all()
    assert (cells[:14, :14] == cells[14:, 14:]).all()


@pytest.mark.parametrize("most", [1, 7, 14])
def test_a_large_pack_is_drawn_small(most):
    assert draw_mask([sample()], most).size == (most, most)


def test_a_small_picture_keeps_the_proportions():
    fine, coarse = (mask_cells([sample((300, 500), ("causal", "full"))], most) for most in (800, 80))
    assert (fine[5::10, 5::10] == coarse).all()
