import random

import pytest
import torch

from automodel_data.multimodal.utils import prepare_attention_mask_per_sample
from recipes.models.bagel.masks import SampleMasks, Splits

CPU = torch.device("cpu")
EDIT = Splits(  # a condition for both towers, an instruction, a target, a clean copy, text; then a second sample
    sample_lens=[4 + 3 + 3 + 4 + 4 + 2, 3 + 4, 5],
    split_lens=[4, 3, 3, 4, 4, 2, 3, 4, 5],
    modes=["full", "full", "causal", "noise", "full", "causal", "causal", "noise", "causal"],
)


def row_table(splits: Splits) -> list[tuple[int, int, str]]:
    """Return sample, split and mode of every row, spelled out."""
    rows, sample, left = [], 0, splits.sample_lens[0]
    for number, (length, mode) in enumerate(zip(splits.split_lens, splits.modes, strict=True)):
        if left == 0:
            sample += 1
            left = splits.sample_lens[sample]
        rows += [(sample, number, mode)] * length
        left -= length
    return rows


def brute_force(splits: Splits) -> torch.Tensor:
    """Follow the wording of the contract, row by row."""
    rows = row_table(splits)
    dense = torch.zeros(len(rows), len(rows), dtype=torch.bool)
    for i, (sample, split, mode) in enumerate(rows):
        for j, (other_sample, other_split, other_mode) in enumerate(rows):
            if sample != other_sample:
                continue
            if split == other_split:
                dense[i, j] = j <= i or mode in ("full", "noise")
            else:
                dense[i, j] = j < i and other_mode != "noise"
    return dense


def dense_rule(splits: Splits) -> torch.Tensor:
    rows = torch.arange(splits.padded_length)
    return splits.rule(CPU)(rows[:, None], rows[None, :])


def random_splits(seed: int) -> Splits:
    rng = random.Random(seed)
    samples = [[rng.randint(1, 6) for _ in range(rng.randint(1, 5))] for _ in range(3)]
    return Splits(
        sample_lens=[*map(sum, samples), 4],
        split_lens=[*(length for sample in samples for length in sample), 4],
        modes=[*(rng.choice(["causal", "full", "noise"]) for sample in samples for _ in sample), "causal"],
    )


@pytest.mark.parametrize("splits", [EDIT, *map(random_splits, range(8))])
def test_the_rule_is_the_contract_spelled_out(splits):
    assert torch.equal(dense_rule(splits), brute_force(splits))


@pytest.mark.parametrize("splits", [EDIT, *map(random_splits, range(8))])
def test_every_row_sees_itself_so_no_softmax_is_empty(splits):
    assert dense_rule(splits).diagonal().all()


def test_nobody_outside_sees_a_noised_image_and_everybody_later_sees_a_condition():
    seen = dense_rule(EDIT)
    target, copy, text = slice(10, 14), slice(14, 18), slice(18, 20)
    assert seen[target, target].all()
    assert not seen[copy, target].any()
    assert not seen[text, target].any()
    assert seen[text, copy].all()
    assert seen[target, :10].all()


def test_a_causal_split_is_a_triangle_and_samples_are_apart():
    seen = dense_rule(EDIT)
    assert torch.equal(seen[7:10, 7:10], torch.ones(3, 3).tril().bool())
    assert not seen[:20, 20:].any()
    assert not seen[20:, :20].any()


def test_sample_masks_leave_the_padding_out_also_when_it_is_empty():
    full = Splits(sample_lens=[3, 0], split_lens=[3, 0], modes=["full", "causal"])
    assert [len(mask) for mask in EDIT.sample_masks(CPU)] == [20, 7]
    assert [len(mask) for mask in full.sample_masks(CPU)] == [3]


@pytest.mark.parametrize("splits", [EDIT, *map(random_splits, range(4))])
def test_splits_and_nested_masks_say_the_same(splits, lens_by_sample):
    nested = [prepare_attention_mask_per_sample(lens, modes) for lens, modes in lens_by_sample(splits)]

    from_nested = SampleMasks(additive=nested).sample_masks(CPU)

    for ours, theirs in zip(splits.sample_masks(CPU), from_nested, strict=True):
        assert torch.equal(ours, theirs)
