import math

import pytest
import torch

from recipes.models.bagel.embeddings import TimestepEmbedder, sincos_2d


def test_a_position_is_waves_of_its_column_then_of_its_row():
    dim, side, row, column = 16, 10, 7, 3
    waves = [10000 ** (-k / 4) for k in range(4)]
    expected = [
        function(coordinate * wave)
        for coordinate in (column, row)
        for function in (math.sin, math.cos)
        for wave in waves
    ]
    embedded = sincos_2d(torch.tensor([row * side + column]), side, dim)
    assert embedded.dtype == torch.float32
    assert embedded[0].tolist() == pytest.approx(expected, abs=1e-7)


def test_a_position_past_the_table_is_an_error():
    with pytest.raises(IndexError):
        sincos_2d(torch.tensor([16]), 4, 8)


def test_a_time_is_embedded_unscaled_cosines_first():
    embedder = TimestepEmbedder(8)
    seen = []
    embedder.mlp[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))

    embedder(torch.tensor([0.0, 0.5]))

    waves = torch.tensor([10000 ** (-k / 128) for k in range(128)])
    torch.testing.assert_close(seen[0][0], torch.cat([torch.ones(128), torch.zeros(128)]))
    torch.testing.assert_close(seen[0][1], torch.cat([(0.5 * waves).cos(), (0.5 * waves).sin()]))
