"""Patches, position ids, loss weights, masks and special tokens, by their numbers."""

import itertools
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from automodel_data.multimodal.utils import (
    add_special_tokens,
    get_flattened_position_ids_extrapolate,
    get_flattened_position_ids_interpolate,
    len2weight,
    patchify,
    prepare_attention_mask_per_sample,
)


def test_patches_go_row_by_row_with_rows_columns_and_channels_inside() -> None:
    image = torch.arange(3 * 4 * 6.0).reshape(3, 4, 6)
    patches = patchify(image, 2)
    assert patches.shape == (6, 12)
    assert patches[0].tolist() == [0, 24, 48, 1, 25, 49, 6, 30, 54, 7, 31, 55]
    assert patches[4].tolist() == [14, 38, 62, 15, 39, 63, 20, 44, 68, 21, 45, 69]


def test_an_image_that_does_not_divide_into_patches_is_refused_with_its_size() -> None:
    with pytest.raises(ValueError, match="30x28 pixels does not divide into patches of 14"):
        patchify(torch.zeros(3, 30, 28), 14)


@pytest.mark.parametrize(
    ("height", "width", "table", "ids"),
    [
        (28, 42, 70, [0, 1, 2, 70, 71, 72]),
        (14, 14, 3, [0]),
        (70, 28, 10, [0, 1, 10, 11, 20, 21, 30, 31, 40, 41]),
    ],
)
def test_counted_positions_start_in_the_corner_of_the_table(
    height: int, width: int, table: int, ids: list[int]
) -> None:
    positions = get_flattened_position_ids_extrapolate(height, width, 14, table)
    assert (positions.dtype, positions.tolist()) == (torch.int64, ids)


@pytest.mark.parametrize(
    ("height", "width", "table", "ids"),
    [
        (28, 42, 70, [0, 23, 46, 2450, 2473, 2496]),
        (56, 56, 4, list(range(16))),
        (14, 14, 3, [0]),
        (70, 28, 10, [0, 5, 20, 25, 40, 45, 60, 65, 80, 85]),
        (84, 28, 4, [0, 2, 0, 2, 4, 6, 8, 10, 8, 10, 12, 14]),
    ],
)
def test_spread_positions_cover_the_whole_table(height: int, width: int, table: int, ids: list[int]) -> None:
    positions = get_flattened_position_ids_interpolate(height, width, 14, table)
    assert (positions.dtype, positions.tolist()) == (torch.int64, ids)


def test_spread_positions_of_a_large_image_are_the_published_ones() -> None:
    positions = get_flattened_position_ids_interpolate(224, 98, 14, 70)
    assert positions[:8].tolist() == [0, 10, 20, 30, 40, 50, 60, 280]
    assert positions.sum() == 257180


@pytest.mark.parametrize(
    ("reduction", "weights"),
    [
        ("token", [0.0, 1.0, 1.0, 1.0]),
        ("sample", [0.0, 1.0, 1 / 2, 1 / 9]),
        ("square", [0.0, 1.0, 2**-0.5, 1 / 3]),
    ],
)
def test_the_weight_of_a_loss_token_depends_on_the_length_of_its_text(reduction: str, weights: list[float]) -> None:
    assert [len2weight(length, reduction) for length in (0, 1, 2, 9)] == pytest.approx(weights)


def test_an_unknown_reduction_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="loss_reduction is 'mean'; it must be 'token', 'sample' or 'square'"):
        len2weight(3, "mean")


def sees(row: int, column: int, splits: list[tuple[int, str]]) -> bool:
    """Say by the rule's own words whether ``row`` may see ``column``."""
    owner = [number for number, (length, _) in enumerate(splits) for _ in range(length)]
    mine, theirs = owner[row], owner[column]
    mode = splits[theirs][1]
    if mine == theirs:
        return mode in ("full", "noise") or column <= row
    return theirs < mine and mode != "noise"


@pytest.mark.parametrize("modes", list(itertools.product(["causal", "full", "noise"], repeat=3)))
def test_a_mask_lets_a_row_see_what_the_rule_says(modes: tuple[str, ...]) -> None:
    splits = list(zip((2, 3, 1), modes, strict=True))
    mask = prepare_attention_mask_per_sample([length for length, _ in splits], list(modes))
    wanted = [[0.0 if sees(row, column, splits) else -torch.inf for column in range(6)] for row in range(6)]
    assert (mask.dtype, mask.tolist()) == (torch.float32, wanted)


def test_every_row_of_a_mask_sees_something() -> None:
    mask = prepare_attention_mask_per_sample([1, 4, 2], ["noise", "causal", "noise"])
    assert bool((mask == 0).any(dim=1).all())


def test_special_tokens_are_added_once(parity: Path) -> None:
    tokenizer, tokens, added = add_special_tokens(AutoTokenizer.from_pretrained(parity / "inputs" / "tokenizer"))
    assert added == 4
    assert list(tokens) == ["bos_token_id", "eos_token_id", "start_of_image", "end_of_image"]
    assert tokenizer.convert_ids_to_tokens(list(tokens.values())) == [
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
    ]
    assert add_special_tokens(tokenizer)[1:] == (tokens, 0)
