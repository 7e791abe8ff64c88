"""A sample is typed inside and the documented mapping outside, both ways."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image

from automodel_data.images import DecodedImage
from automodel_data.multimodal.plan import (
    ClipPosition,
    PlannedImage,
    Sample,
    SampleIndex,
    TensorImage,
    TextItem,
    VaeItem,
    VitItem,
    join_position,
    sample_from_mapping,
    split_position,
)
from automodel_data.multimodal.transforms import ImageTransform

TRANSFORM = ImageTransform(64, 16, 16)


@pytest.fixture
def sample(photo: Callable[..., Image.Image]) -> Sample:
    made = Sample(index=SampleIndex(position=[2, 0, 5], worker_id=1, dataset_name="t2i", path=8))
    made.add(TextItem(ids=[7, 8, 9], loss=True, enable_cfg=False, special_token_loss=True, special_token_label=4))
    made.add(VitItem(picture=PlannedImage.of(DecodedImage(photo(32, 48)), TRANSFORM), enable_cfg=True))
    for number, delta in enumerate([3, None]):
        clip = ClipPosition(starts=number == 0, ends=number == 1, frame_delta=delta)
        picture = PlannedImage.of(DecodedImage(photo(30, 20, number)), TRANSFORM)
        made.add(VaeItem(picture=picture, loss=True, enable_cfg=False, clip=clip))
    return made


def test_tokens_are_ids_and_patches_and_the_length_adds_two_for_each_item(sample: Sample) -> None:
    assert sample.num_tokens == 3 + 2 * 3 + 2 * (2 * 1)
    assert sample.length == sample.num_tokens + 2 * 4


def test_a_sample_reads_as_the_documented_mapping(sample: Sample) -> None:
    mapping = dict(sample)
    assert sorted(mapping) == ["data_indexes", "image_tensor_list", "num_tokens", "sequence_plan", "text_ids_list"]
    assert mapping["data_indexes"] == {"data_indexes": [2, 0, 5], "worker_id": 1, "dataset_name": "t2i"}
    assert mapping["text_ids_list"] == [[7, 8, 9]]
    assert [tuple(image.shape) for image in mapping["image_tensor_list"]] == [(3, 48, 32), (3, 16, 32), (3, 16, 32)]
    plain = {"special_token_loss": 0, "special_token_label": None}
    assert mapping["sequence_plan"] == [
        {"type": "text", "enable_cfg": 0, "loss": 1, "special_token_loss": 1, "special_token_label": 4},
        {"type": "vit_image", "enable_cfg": 1, "loss": 0} | plain,
        {"type": "vae_image", "enable_cfg": 0, "loss": 1, "split_start": True, "split_end": False, "frame_delta": 3}
        | plain,
        {"type": "vae_image", "enable_cfg": 0, "loss": 1, "split_start": False, "split_end": True} | plain,
    ]


def test_a_mapping_becomes_the_sample_that_it_describes(sample: Sample) -> None:
    taken = sample_from_mapping(dict(sample))
    assert taken["sequence_plan"] == sample["sequence_plan"]
    assert taken["text_ids_list"] == sample["text_ids_list"]
    assert taken["data_indexes"] == sample["data_indexes"]
    assert taken.length == sample.length
    images = zip(taken["image_tensor_list"], sample["image_tensor_list"], strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in images)


def test_a_mapping_from_a_parser_has_no_index_yet(sample: Sample) -> None:
    mapping = {key: value for key, value in dict(sample).items() if key != "data_indexes"}
    assert sample_from_mapping(mapping).index is None


def test_a_typed_sample_is_taken_as_it_is(sample: Sample) -> None:
    assert sample_from_mapping(sample) is sample


def test_a_tensor_knows_its_size() -> None:
    picture = TensorImage(torch.zeros(3, 20, 30))
    assert (picture.height, picture.width) == (20, 30)


@pytest.mark.parametrize(("position", "parts"), [(4, (4, [])), ([4, 2], (4, [2])), ([4, 2, 9], (4, [2, 9]))])
def test_a_position_is_a_path_and_a_place_in_it(position: Any, parts: tuple[int, list[int]]) -> None:
    assert split_position(position) == parts
    assert join_position(*parts) == position
