"""A batch has its pack's parts as attributes, and nothing else."""

import pickle
from itertools import islice
from typing import Any

import pytest
import torch

from automodel_data.multimodal.attention_masks import AttentionMasks
from automodel_data.multimodal.collate_fns import SimpleCustomBatch, bagel_packed_collate_fn, collate_wrapper


@pytest.fixture
def pack() -> dict[str, Any]:
    return {
        "sequence_length": 3,
        "packed_text_ids": torch.tensor([1, 2, 3]),
        "nested_attention_masks": AttentionMasks([[2], [1]], [["causal"], ["full"]]),
    }


def test_parts_are_attributes_and_absent_parts_are_absent(pack: dict[str, Any]) -> None:
    batch = SimpleCustomBatch([pack])
    assert batch.sequence_length == 3
    assert not hasattr(batch, "padded_images")
    assert not hasattr(batch, "split_lens")


def test_a_batch_is_one_pack(pack: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="too many values"):
        SimpleCustomBatch([pack, pack])


@pytest.mark.parametrize("collate", [bagel_packed_collate_fn, collate_wrapper()])
def test_the_collate_function_wraps_the_pack(collate: Any, pack: dict[str, Any]) -> None:
    assert isinstance(collate([pack]), SimpleCustomBatch)


def test_a_batch_reads_as_a_mapping_with_its_masks_in_a_list(pack: dict[str, Any]) -> None:
    parts = SimpleCustomBatch([pack]).to_dict()
    assert list(parts) == list(pack)
    assert isinstance(parts["nested_attention_masks"], list)
    assert parts["nested_attention_masks"][0].tolist() == [[0, -torch.inf], [0, 0]]


def test_a_batch_moves_its_tensors_and_its_masks(pack: dict[str, Any]) -> None:
    batch = SimpleCustomBatch([pack])
    assert batch.cuda("meta") is batch
    assert batch.packed_text_ids.device.type == "meta"
    assert batch.nested_attention_masks[0].device.type == "meta"
    assert batch.sequence_length == 3


def test_a_real_batch_travels_between_processes(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 12])
    for use_flex in (True, False):
        (batch,) = islice(workshop.build(use_flex=use_flex).dataloader, 1)
        again = pickle.loads(pickle.dumps(batch))
        assert vars(again).keys() == vars(batch).keys()
        assert torch.equal(again.padded_images, batch.padded_images)


PARTS = {
    "always": {
        "sequence_length",
        "sample_lens",
        "packed_text_ids",
        "packed_text_indexes",
        "packed_position_ids",
        "batch_data_indexes",
    },
    "flex": {"split_lens", "attn_modes"},
    "nested": {"nested_attention_masks"},
    "vae": {
        "padded_images",
        "patchified_vae_latent_shapes",
        "packed_latent_position_ids",
        "packed_vae_token_indexes",
        "packed_timesteps",
        "mse_loss_indexes",
    },
    "vit": {"packed_vit_tokens", "packed_vit_position_ids", "packed_vit_token_indexes", "vit_token_seqlens"},
    "labels": {"packed_label_ids", "ce_loss_indexes", "ce_loss_weights"},
}


@pytest.mark.parametrize("use_flex", [True, False])
@pytest.mark.parametrize(
    ("kind", "parts"), [("t2i", ["vae"]), ("edit", ["vae", "vit"]), ("talk", ["labels"]), ("see", ["vit", "labels"])]
)
def test_a_batch_has_the_documented_parts_of_what_it_holds(
    kind: str, parts: list[str], use_flex: bool, workshop: Any
) -> None:
    turns = [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "y"}]
    picture = workshop.image(28, 28)
    match kind:
        case "t2i":
            workshop.add_t2i("t2i", [(picture, {"a": "x"})])
        case "edit":
            workshop.add_edit("edit", [([picture] * 2, [["x"]])])
        case "talk":
            workshop.add_vlm("talk", [{"conversations": turns[1:]}])
        case "see":
            workshop.add_vlm("see", [{"image": "a.png", "conversations": turns}], {"a.png": picture})
    batch = next(iter(workshop.build(use_flex=use_flex, max_num_tokens=80, max_num_tokens_per_sample=60).dataloader))
    kinds = ["always", "flex" if use_flex else "nested", *parts]
    assert vars(batch).keys() == set().union(*(PARTS[one] for one in kinds))
