"""Dense masks are made when they are read, and are few numbers until then."""

import pickle

import pytest
import torch

from automodel_data.multimodal.attention_masks import AttentionMasks
from automodel_data.multimodal.utils import prepare_attention_mask_per_sample

LENGTHS = [[2, 3], [4], [1, 1, 1]]
MODES = [["causal", "noise"], ["full"], ["causal", "full", "causal"]]


@pytest.fixture
def masks() -> AttentionMasks:
    return AttentionMasks(LENGTHS, MODES)


def test_each_sample_has_its_mask(masks: AttentionMasks) -> None:
    assert len(masks) == 3
    for mask, lengths, modes in zip(masks, LENGTHS, MODES, strict=True):
        assert torch.equal(mask, prepare_attention_mask_per_sample(lengths, modes))
    assert torch.equal(masks[-1], masks[2])


def test_a_slice_holds_the_masks_of_its_samples(masks: AttentionMasks) -> None:
    assert [mask.shape for mask in masks[1:]] == [(4, 4), (3, 3)]


def test_a_sample_that_is_not_there_is_an_index_error(masks: AttentionMasks) -> None:
    with pytest.raises(IndexError):
        masks[3]


def test_masks_are_made_on_the_device_they_were_sent_to(masks: AttentionMasks) -> None:
    assert masks.to("meta")[0].device.type == "meta"
    assert masks[0].device.type == "cpu"


def test_masks_travel_to_another_process_as_few_numbers() -> None:
    large = AttentionMasks([[4000, 4000]], [["causal", "full"]])
    content = pickle.dumps(large)
    assert len(content) < 1000
    assert len(pickle.loads(content)) == 1
