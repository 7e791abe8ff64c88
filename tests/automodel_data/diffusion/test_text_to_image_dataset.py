from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from automodel_data.diffusion.collate import collate_text_to_image
from automodel_data.diffusion.payload import PayloadError
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset, TextToImageDatasetConfig
from automodel_data.errors import DataError


def test_buckets_are_those_of_the_documented_system(golden: dict[str, Any], parity_inputs: Path) -> None:
    dataset = TextToImageDatasetConfig(str(parity_inputs / "t2i_cache")).build()
    assert dataset.get_bucket_info() == golden["t2i_bucket_info"]


def test_every_payload_of_the_parity_cache_is_taken(parity_inputs: Path) -> None:
    dataset = TextToImageDataset(str(parity_inputs / "t2i_cache"))
    for i in range(len(dataset)):
        assert dataset[i]["prompt"] == f"p{i}"


@pytest.mark.parametrize(
    ("ratio", "name"), [(0.8499, "tall"), (0.85, "square"), (1.0, "square"), (1.18, "square"), (1.1801, "wide")]
)
def test_the_aspect_name_has_documented_limits(make_t2i_cache: Callable[..., Path], ratio: float, name: str) -> None:
    cache = make_t2i_cache({(64, 64): 1}, change_item=lambda item, row: item.update(aspect_ratio=ratio))
    assert TextToImageDataset(str(cache)).get_bucket_info()["buckets"] == {f"{name}/64x64": 1}


def test_without_an_aspect_ratio_the_resolution_gives_it(make_t2i_cache: Callable[..., Path]) -> None:
    dataset = TextToImageDataset(str(make_t2i_cache({(128, 64): 1, (64, 128): 2})))
    assert dataset.get_bucket_info()["buckets"] == {"wide/128x64": 1, "tall/64x128": 2}


def test_a_crop_resolution_stands_for_a_missing_bucket_resolution(make_t2i_cache: Callable[..., Path]) -> None:
    def rename(item: dict[str, Any], row: int) -> None:
        item["crop_resolution"] = item.pop("bucket_resolution")

    dataset = TextToImageDataset(str(make_t2i_cache({(128, 64): 1}, change_item=rename)))
    assert dataset[0]["crop_resolution"].tolist() == [128, 64]


def test_a_batch_pads_prompts_and_masks_the_padding(make_t2i_cache: Callable[..., Path]) -> None:
    dataset = TextToImageDataset(str(make_t2i_cache({(64, 32): 2})))
    batch = collate_text_to_image([dataset[0], dataset[1]])
    assert batch["image_latents"].shape == (2, 4, 4, 8)
    assert batch["text_embeddings"].shape == (2, 5, 6)
    assert batch["text_attention_mask"].tolist() == [[True] * 4 + [False], [True] * 5]
    assert batch["text_embeddings"][0, 4].abs().sum() == 0
    assert batch["conditioning_tensors"] == {}
    assert batch["metadata"]["prompts"] == ["prompt 0", "prompt 1"]
    assert batch["metadata"]["crop_resolution"].tolist() == [[64, 32]] * 2


def test_pooled_text_comes_as_conditioning(make_t2i_cache: Callable[..., Path]) -> None:
    def add(payload: dict[str, Any], row: int) -> None:
        payload["pooled_prompt_embeds"] = torch.full((1, 3), float(row))

    dataset = TextToImageDataset(str(make_t2i_cache({(64, 64): 2}, add)))
    pooled = collate_text_to_image([dataset[0], dataset[1]])["conditioning_tensors"]["pooled_prompt_embeds"]
    assert pooled.tolist() == [[0.0] * 3, [1.0] * 3]


def test_to_train_text_encoders_a_batch_has_tokens_instead(make_t2i_cache: Callable[..., Path]) -> None:
    dataset = TextToImageDataset(str(make_t2i_cache({(64, 64): 2})), train_text_encoder=True)
    batch = collate_text_to_image([dataset[0], dataset[1]])
    assert batch["clip_tokens"].shape == (2, 7)
    assert batch["t5_tokens"].shape == (2, 9)
    assert "text_embeddings" not in batch


def spoil(field: str, value: Any) -> Callable[[dict[str, Any], int], None]:
    return lambda payload, row: payload.update({field: value}) if row == 1 else None


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("latent", None, "latent must be a tensor, got NoneType"),
        ("latent", torch.ones(4, 8), r"latent must be a non-empty float tensor \[C, H, W\]"),
        ("latent", torch.ones(4, 8, 9), r"latent has 8 x 9 rows and columns, its item's resolution is \(64, 64\)"),
        ("latent", torch.full((4, 8, 8), torch.nan), "latent must be finite"),
        ("crop_offset", [0], "crop_offset must be a list of 2 ints"),
        ("crop_offset", None, "crop_offset must be a list of 2 ints"),
        ("prompt", None, "prompt must be a text, got NoneType"),
        ("image_path", b"x", "image_path must be a text, got bytes"),
        ("prompt_embeds", None, "prompt_embeds must be a tensor"),
        ("prompt_embeds", torch.ones(2, 4, 6), r"prompt_embeds must be a non-empty float tensor \[S, D\]"),
        ("prompt_attention_mask", torch.ones(1, 4).long(), r"prompt_attention_mask must be a bool or int tensor \[5\]"),
        ("pooled_prompt_embeds", torch.full((3,), torch.inf), "pooled_prompt_embeds must be finite"),
        ("pooled_prompt_embeds", torch.ones(2, 3), r"pooled_prompt_embeds must be a non-empty float tensor \[P\]"),
        ("pooled_prompt_embeds", torch.ones(3).long(), r"pooled_prompt_embeds must be a non-empty float tensor \[P\]"),
        ("clip_hidden", torch.ones(3), r"clip_hidden must be a non-empty float tensor \[S, D\]"),
        ("clip_hidden", torch.ones(2, 3, 4), r"clip_hidden must be a non-empty float tensor \[S, D\]"),
        ("clip_hidden", torch.ones(3, 4).int(), r"clip_hidden must be a non-empty float tensor \[S, D\]"),
    ],
)
def test_a_payload_that_is_wrong_in_one_field_is_refused(
    make_t2i_cache: Callable[..., Path], field: str, value: Any, says: str
) -> None:
    dataset = TextToImageDataset(str(make_t2i_cache({(64, 64): 2}, spoil(field, value))))
    with pytest.raises(PayloadError, match=f"0001.pt: .*{says}"):
        dataset[1]


def test_tokens_of_another_kind_are_refused(make_t2i_cache: Callable[..., Path]) -> None:
    cache = make_t2i_cache({(64, 64): 2}, spoil("clip_tokens", torch.ones(1, 7)))
    with pytest.raises(PayloadError, match=r"clip_tokens must be an int tensor \[S\]"):
        TextToImageDataset(str(cache), train_text_encoder=True)[1]


def test_a_field_that_only_some_of_a_batch_have_is_refused(make_t2i_cache: Callable[..., Path]) -> None:
    dataset = TextToImageDataset(str(make_t2i_cache({(64, 64): 2}, spoil("pooled_prompt_embeds", torch.ones(3)))))
    with pytest.raises(DataError, match=r"pooled_prompt_embeds must be in every .*'images/0.jpg' lacks it"):
        collate_text_to_image([dataset[0], dataset[1]])
