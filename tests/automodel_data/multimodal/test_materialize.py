"""Only images that survive are decoded, each once, and every tensor of a pack is where its layout says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from automodel_data.errors import SkipSample
from automodel_data.images import DecodedImage, ImageBackend, PillowBackend, Pixels
from automodel_data.multimodal.plan import PlannedImage, Sample, SampleIndex, TextItem, VaeItem, VitItem
from automodel_data.multimodal.transforms import ImageTransform
from automodel_data.multimodal.utils import patchify, prepare_attention_mask_per_sample

VAE = ImageTransform(128, 16, 16)
VIT = ImageTransform(112, 14, 14)


@dataclass(eq=False)
class Film:
    """A picture that remembers how often it was developed; it may turn out spoilt."""

    image: Image.Image
    spoilt: bool = False
    decoded: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        return self.image.width

    @property
    def height(self) -> int:
        return self.image.height

    @property
    def group(self) -> object:
        return self

    def decode(self, backend: ImageBackend) -> Pixels:
        self.decoded.append(type(backend).__name__)
        if self.spoilt:
            raise SkipSample("undecodable image", "spoilt")
        return DecodedImage(self.image).decode(backend)


def sample(*items: Any, number: int = 0) -> Sample:
    made = Sample(index=SampleIndex(position=[0, 0, number], worker_id=0, dataset_name="a"))
    for item in items:
        made.add(item)
    return made


def vae(film: Film, loss: bool = False, cfg: bool = False) -> VaeItem:
    return VaeItem(picture=PlannedImage.of(film, VAE), loss=loss, enable_cfg=cfg)


def vit(film: Film, cfg: bool = False) -> VitItem:
    return VitItem(picture=PlannedImage.of(film, VIT), enable_cfg=cfg)


def text(*ids: int, loss: bool = False, cfg: bool = False) -> TextItem:
    return TextItem(ids=list(ids), loss=loss, enable_cfg=cfg)


@pytest.fixture
def dataset(workshop: Any) -> Any:
    workshop.add_lengths("a", [10])
    return workshop.build(max_num_tokens=400, expected_num_tokens=300).dataset


def tensors(dataset: Any, *samples: Sample) -> dict[str, Any]:
    pack = dataset.set_sequence_status()
    for one in samples:
        pack = dataset.pack_sequence(one, pack)
    return dataset.to_tensor(pack)


@pytest.fixture
def film(photo: Callable[..., Image.Image]) -> Callable[..., Film]:
    return lambda width=60, height=40, seed=0, **options: Film(photo(width, height, seed), **options)


# decoding ---------------------------------------------------------------------------------------------------------


def test_an_image_used_by_both_towers_and_twice_is_decoded_once(dataset: Any, film: Any) -> None:
    one = film()
    tensors(dataset, sample(vae(one), vit(one), text(5), vae(one, loss=True)))
    assert one.decoded == ["PillowBackend"]


def test_an_image_dropped_as_a_condition_is_not_decoded(workshop: Any, film: Any) -> None:
    workshop.add_lengths("a", [10])
    dataset = workshop.build(vae_cond_dropout_prob=1.0, vit_cond_dropout_prob=1.0, max_num_tokens=400).dataset
    dropped, kept = film(), film()
    batch = tensors(dataset, sample(vae(dropped, cfg=True), vit(dropped, cfg=True), text(5), vae(kept, loss=True)))
    assert (len(dropped.decoded), len(kept.decoded)) == (0, 1)
    assert len(batch["padded_images"]) == 1


def test_an_image_is_not_decoded_for_its_length(film: Any) -> None:
    one = film()
    assert sample(vae(one), vit(one)).length == 4 * 2 + 4 * 3 + 4 == 24
    assert one.decoded == []


def test_images_go_through_the_backend_of_the_config(workshop: Any, film: Any) -> None:
    workshop.add_lengths("a", [10])
    one = film()
    tensors(workshop.build(image_backend="torchvision", max_num_tokens=400).dataset, sample(vae(one, loss=True)))
    assert one.decoded == ["TorchvisionBackend"]


def test_a_sample_with_a_spoilt_image_leaves_the_pack_whichever_image_it_is(dataset: Any, film: Any) -> None:
    spoilt = sample(vae(film()), vit(film()), text(5), vae(film(spoilt=True), loss=True), number=1)
    others = [sample(text(7, number, loss=True), number=number) for number in (0, 2)]
    batch = tensors(dataset, others[0], spoilt, others[1])
    assert [index["data_indexes"][2] for index in batch["batch_data_indexes"]] == [0, 2]
    assert batch["sequence_length"] == 8
    assert batch["packed_text_indexes"].tolist() == list(range(8))
    assert "padded_images" not in batch
    assert dataset.drops() == {"a": {"undecodable image": 1}}


# tensors ----------------------------------------------------------------------------------------------------------


def resized(film: Film, item: VaeItem | VitItem) -> torch.Tensor:
    """Return an image's tensor by Pillow and the transform alone."""
    picture = item.picture
    assert isinstance(picture, PlannedImage)
    pixels = PillowBackend().resize(film.image, picture.height, picture.width)
    return torch.from_numpy(pixels).permute(2, 0, 1).float().div(255).sub(0.5).div(0.5)


def test_images_are_padded_with_zeros_to_the_largest(dataset: Any, film: Any) -> None:
    films = [film(60, 40), film(33, 100, 1)]
    items = [vae(one, loss=True) for one in films]
    batch = tensors(dataset, *(sample(item) for item in items))
    assert batch["padded_images"].shape == (2, 3, 96, 64)
    assert batch["patchified_vae_latent_shapes"] == [(2, 4), (6, 2)]
    for padded, one, item in zip(batch["padded_images"], films, items, strict=True):
        wanted = resized(one, item)
        height, width = wanted.shape[1:]
        assert torch.equal(padded[:, :height, :width], wanted)
        assert padded.count_nonzero() == wanted.count_nonzero()


def test_patches_of_all_images_stand_one_below_the_other(dataset: Any, film: Any) -> None:
    films = [film(60, 40), film(33, 100, 1)]
    items = [vit(one) for one in films]
    batch = tensors(dataset, sample(*items, text(5, loss=True)))
    wanted = [patchify(resized(one, item), 14) for one, item in zip(films, items, strict=True)]
    assert torch.equal(batch["packed_vit_tokens"], torch.cat(wanted))
    assert batch["vit_token_seqlens"].tolist() == [len(part) for part in wanted] == [12, 14]
    assert batch["packed_vit_position_ids"].tolist()[:5] == [0, 1, 2, 3, 70]


def test_rows_of_a_pack_follow_each_other(dataset: Any, film: Any) -> None:
    one = film(16, 16)
    edit = sample(vae(one), text(5, 6), vae(one, loss=True))
    batch = tensors(dataset, edit, edit, sample(text(7, loss=True)))
    assert batch["sequence_length"] == 10 + 10 + 3
    assert batch["sample_lens"] == [10, 10, 3, 377]
    assert batch["split_lens"] == [3, 4, 3, 3, 4, 3, 3, 377]
    assert batch["attn_modes"] == ["full", "causal", "noise"] * 2 + ["causal", "causal"]
    assert batch["packed_vae_token_indexes"].tolist() == [1, 8, 11, 18]
    assert batch["mse_loss_indexes"].tolist() == [8, 18]
    assert batch["packed_text_indexes"].tolist() == [row for row in range(23) if row not in (1, 8, 11, 18)]
    assert batch["packed_position_ids"].tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 5, 5] * 2 + [0, 1, 2]
    assert batch["ce_loss_indexes"].tolist() == [20, 21]
    assert batch["packed_label_ids"].tolist() == [7, 1002]
    clean, noisy, again, other = batch["packed_timesteps"].tolist()
    assert clean == again == -np.inf
    assert np.isfinite([noisy, other]).all()
    assert noisy != other


def test_every_part_has_its_documented_type(dataset: Any, film: Any) -> None:
    batch = tensors(dataset, sample(vae(film()), vit(film()), text(5, loss=True), vae(film(), loss=True)))
    integers = {key for key, value in batch.items() if getattr(value, "dtype", None) == torch.int64}
    floats = {key for key, value in batch.items() if getattr(value, "dtype", None) == torch.float32}
    assert floats == {"padded_images", "packed_timesteps", "packed_vit_tokens", "ce_loss_weights"}
    assert integers == {
        "packed_text_ids",
        "packed_text_indexes",
        "packed_position_ids",
        "packed_latent_position_ids",
        "packed_vae_token_indexes",
        "mse_loss_indexes",
        "packed_vit_position_ids",
        "packed_vit_token_indexes",
        "vit_token_seqlens",
        "packed_label_ids",
        "ce_loss_indexes",
    }


def test_a_pack_of_conditions_has_timesteps_and_no_loss(dataset: Any, film: Any) -> None:
    batch = tensors(dataset, sample(vae(film(16, 16)), text(5, loss=True)))
    assert batch["packed_timesteps"].tolist() == [-np.inf]
    assert (batch["mse_loss_indexes"].tolist(), batch["mse_loss_indexes"].dtype) == ([], torch.int64)


def test_without_flex_each_sample_has_its_mask_and_nothing_is_padded(workshop: Any, film: Any) -> None:
    workshop.add_lengths("a", [10])
    dataset = workshop.build(use_flex=False).dataset
    batch = tensors(dataset, sample(vae(film(16, 16)), text(5), vae(film(16, 16), loss=True)), sample(text(7)))
    assert batch["sample_lens"] == [9, 3]
    wanted = [(["full", "causal", "noise"], [3, 3, 3]), (["causal"], [3])]
    for mask, (modes, lengths) in zip(batch["nested_attention_masks"], wanted, strict=True):
        assert torch.equal(mask, prepare_attention_mask_per_sample(lengths, modes))


def test_positions_can_be_spread_over_the_whole_table(workshop: Any, film: Any) -> None:
    workshop.add_lengths("a", [10])
    dataset = workshop.build(interpolate_pos=True, max_num_tokens=400).dataset
    batch = tensors(dataset, sample(vit(film(42, 28)), vae(film(32, 16), loss=True)))
    assert batch["packed_vit_position_ids"].tolist() == [0, 23, 46, 2450, 2473, 2496]
    assert batch["packed_latent_position_ids"].tolist() == [0, 16]
