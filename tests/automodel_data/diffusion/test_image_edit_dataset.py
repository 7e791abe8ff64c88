import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataset, ImageEditDatasetConfig, _collate_image_edit
from automodel_data.diffusion.payload import PayloadError
from automodel_data.errors import DataError

SHAPE = (4, 4, 6)


def plain(shapes: list[torch.Tensor]) -> list[list[int]]:
    return [list(tensor.shape) for tensor in shapes]


def test_buckets_are_those_of_the_documented_system(golden: dict[str, Any], parity_inputs: Path) -> None:
    dataset = ImageEditDatasetConfig(str(parity_inputs / "edit_cache")).build()
    assert dataset.get_bucket_info() == golden["edit_bucket_info"]
    assert len(dataset) == 43


def test_buckets_sort_by_latent_pixels_then_signature(make_edit_cache: Callable[..., Path]) -> None:
    dataset = ImageEditDataset(str(make_edit_cache({(4, 8, 8): 1, (4, 8, 2): 1, (4, 4, 4): 1, (4, 2, 8): 1})))
    assert [key.target for key in dataset.sorted_bucket_keys] == [(4, 2, 8), (4, 4, 4), (4, 8, 2), (4, 8, 8)]
    assert [dataset.bucket_groups[key]["aspect_name"] for key in dataset.sorted_bucket_keys] == [
        "wide",
        "square",
        "tall",
        "square",
    ]


def test_a_collated_batch_is_that_of_the_documented_system(golden: dict[str, Any], parity_inputs: Path) -> None:
    expected = golden["edit_collate"]
    dataset = ImageEditDataset(str(parity_inputs / "edit_cache"))
    batch = _collate_image_edit([dataset[i] for i in expected["indices"]])
    assert list(batch["image_latents"].shape) == expected["image_latents_shape"]
    assert str(batch["image_latents"].dtype) == expected["image_latents_dtype"]
    assert batch["image_latents"].double().sum().item() == pytest.approx(expected["image_latents_sum"])
    assert plain(batch["context_latents"]) == expected["context_shapes"]
    assert list(batch["text_embeddings"].shape) == expected["text_embeddings_shape"]
    assert batch["text_embeddings"].double().sum().item() == pytest.approx(expected["text_embeddings_sum"])
    assert batch["text_attention_mask"].tolist() == expected["text_attention_mask"]
    assert {name: list(t.shape) for name, t in batch["conditioning_tensors"].items()} == expected["conditioning"]
    assert batch["data_type"] == expected["data_type"]
    assert batch["metadata"] == expected["metadata"]


def test_a_masks_dtype_is_kept(make_edit_cache: Callable[..., Path]) -> None:
    def to_bool(payload: dict[str, Any], row: int) -> None:
        payload["prompt_attention_mask"] = payload["prompt_attention_mask"].bool()

    dataset = ImageEditDataset(str(make_edit_cache({SHAPE: 2}, to_bool)))
    mask = _collate_image_edit([dataset[0], dataset[1]])["text_attention_mask"]
    assert mask.tolist() == [[True, True, True, False], [True] * 4]


def test_a_payload_without_conditioning_is_complete(make_edit_cache: Callable[..., Path]) -> None:
    def strip(payload: dict[str, Any], row: int) -> None:
        del payload["conditioning_tensors"], payload["metadata"]["conditioning_shapes"]

    dataset = ImageEditDataset(str(make_edit_cache({SHAPE: 1}, strip)))
    assert _collate_image_edit([dataset[0]])["conditioning_tensors"] == {}


def set_in(*keys: Any) -> Callable[[dict[str, Any], int], None]:
    """Return a change that sets the last of ``keys`` at the path the others name."""
    *path, last, value = keys

    def change(payload: dict[str, Any], row: int) -> None:
        for key in path:
            payload = payload[key]
        payload[last] = value

    return change


def drop(*path: str) -> Callable[[dict[str, Any], int], None]:
    *outer, last = path

    def change(payload: dict[str, Any], row: int) -> None:
        for key in outer:
            payload = payload[key]
        del payload[last]

    return change


SPOILT: list[tuple[Callable[[dict[str, Any], int], None], str]] = [
    (drop("target_latent"), "target_latent must be a tensor, got NoneType"),
    (
        set_in("target_latent", torch.ones(4, 4, 6).long()),
        r"target_latent must be a non-empty float tensor \[C, H, W\]",
    ),
    (set_in("target_latent", torch.ones(1, 4, 4, 6)), r"target_latent must be a non-empty float tensor \[C, H, W\]"),
    (set_in("target_latent", torch.ones(4, 6, 4)), r"target_latent has shape \[4, 6, 4\], its item's .* \[4, 4, 6\]"),
    (set_in("target_latent", torch.full(SHAPE, torch.nan)), "target_latent must be finite"),
    (set_in("target_latent", torch.full(SHAPE, -torch.inf)), "target_latent must be finite"),
    (set_in("context_latents", []), "context_latents must be a list of at least one tensor"),
    (set_in("context_latents", torch.ones(SHAPE)), "context_latents must be a list"),
    (set_in("context_latents", [torch.ones(SHAPE)] * 2), "context_latents holds 2 latents, its item 1"),
    (set_in("context_latents", ["x"]), r"context_latents\[0\] must be a tensor, got str"),
    (set_in("context_latents", [torch.ones(4, 4, 4)]), r"context_latents\[0\] has shape"),
    (set_in("context_latents", [torch.full(SHAPE, torch.nan)]), r"context_latents\[0\] must be finite"),
    (set_in("target_latent", torch.ones(SHAPE).to_sparse()), "target_latent must be a dense tensor .* got sparse_coo"),
    (set_in("context_latents", [torch.ones(SHAPE).to_sparse()]), r"context_latents\[0\] must be a dense tensor"),
    (set_in("target_latent", torch.ones(SHAPE, device="meta")), "target_latent must be a dense tensor .* got meta"),
    (
        set_in("target_latent", torch.ones(SHAPE).to(torch.float8_e4m3fn)),
        "target_latent must be .* got strided",
    ),
    (set_in("target_latent", torch.ones(SHAPE).int()), "target_latent must be a non-empty float"),
    (set_in("prompt_embeddings", torch.ones(3, 6).to(torch.float8_e4m3fn)), "prompt_embeddings must be .*float8"),
    (set_in("conditioning_tensors", "pooled", torch.ones(5).cfloat()), "conditioning_tensors.pooled must be .*complex"),
    (set_in("prompt_embeddings", torch.ones(3)), r"prompt_embeddings must be a non-empty float tensor \[S, D\]"),
    (set_in("prompt_embeddings", torch.ones(3, 6).int()), "prompt_embeddings must be a non-empty float"),
    (set_in("prompt_embeddings", torch.ones(0, 6)), "prompt_embeddings must be a non-empty float"),
    (set_in("prompt_embeddings", torch.full((3, 6), torch.nan)), "prompt_embeddings must be finite"),
    (set_in("prompt_attention_mask", torch.ones(3)), r"prompt_attention_mask must be a bool or int tensor \[3\]"),
    (set_in("prompt_attention_mask", torch.ones(4).long()), r"prompt_attention_mask must be .* as long as the prompt"),
    (set_in("prompt_attention_mask", torch.tensor([1, 2, 0])), "prompt_attention_mask must hold only 0 and 1"),
    (set_in("conditioning_tensors", [torch.ones(5)]), "conditioning_tensors must be a mapping"),
    (set_in("conditioning_tensors", "pooled", 3.0), "conditioning_tensors.pooled must be a tensor"),
    (set_in("conditioning_tensors", "pooled", torch.full((5,), torch.inf)), "conditioning_tensors.pooled must be fin"),
    (drop("metadata"), "metadata must be a mapping"),
    (drop("metadata", "original_ids"), "metadata.original_ids must be a non-empty mapping"),
    (set_in("metadata", "original_ids", {}), "metadata.original_ids must be a non-empty mapping"),
    (set_in("metadata", "target_spatial_shape", [6, 4]), r"target_spatial_shape is \[6, 4\], the latent has \[4, 6\]"),
    (drop("metadata", "target_spatial_shape"), "metadata.target_spatial_shape must be a list of 2 ints"),
    (set_in("metadata", "context_spatial_shapes", []), "metadata.context_spatial_shapes must hold one"),
    (set_in("metadata", "context_spatial_shapes", [[4, 4]]), r"metadata.context_spatial_shapes\[0\] is"),
    (drop("metadata", "compound_bucket_signature"), "metadata.compound_bucket_signature must be a mapping"),
    (
        set_in("metadata", "compound_bucket_signature", {"target": [4, 8, 8], "contexts": [[4, 4, 6]]}),
        "metadata.compound_bucket_signature is target=4x8x8.* its item says target=4x4x6",
    ),
    (drop("metadata", "conditioning_shapes"), r"metadata.conditioning_shapes must name the shapes of \['pooled'\]"),
    (
        set_in("metadata", "conditioning_shapes", {"pooled": [4]}),
        r"conditioning_shapes.pooled is \[4\], the tensor has",
    ),
    (set_in("metadata", "text_token_length", 4), r"text_token_length \(4\) must not exceed the prompt's 3 tokens"),
    (set_in("metadata", "text_token_length", -1), "metadata.text_token_length must be an int of at least 0"),
    (set_in("metadata", "target_token_length", None), "metadata.target_token_length must be an int of at least 0, got"),
    (set_in("metadata", "context_token_lengths", [None]), r"metadata.context_token_lengths\[0\] must be an int of"),
    (set_in("metadata", "context_token_lengths", None), "metadata.context_token_lengths must hold one length per c"),
    (set_in("metadata", "target_token_length", 1.5), "metadata.target_token_length must be an int"),
    (set_in("metadata", "target_token_length", 25), r"target_token_length \(25\) must lie between 1 and 24"),
    (set_in("metadata", "target_token_length", 0), r"target_token_length \(0\) must lie between 1 and 24, the lat"),
    (set_in("metadata", "context_token_lengths", [0]), r"context_token_lengths\[0\] \(0\) must lie between 1 and 24"),
    (set_in("metadata", "context_token_lengths", [25]), r"context_token_lengths\[0\] \(25\) must lie between 1"),
    (set_in("metadata", "context_token_lengths", [1, 2]), "metadata.context_token_lengths must hold one length"),
    (set_in("metadata", "context_token_lengths", ["1"]), r"metadata.context_token_lengths\[0\] must be an int"),
]


@pytest.mark.parametrize(("spoil", "says"), SPOILT, ids=[says[:40] for _, says in SPOILT])
def test_a_payload_that_is_wrong_in_one_field_is_refused(
    make_edit_cache: Callable[..., Path], spoil: Callable[[dict[str, Any], int], None], says: str
) -> None:
    dataset = ImageEditDataset(str(make_edit_cache({SHAPE: 1}, spoil)))
    with pytest.raises(PayloadError, match=f"0000.pt: .*{says}"):
        dataset[0]


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_payload_is_refused(make_edit_cache: Callable[..., Path], keep: float) -> None:
    cache = make_edit_cache({SHAPE: 1})
    whole = (cache / "samples" / "0000.pt").read_bytes()
    (cache / "samples" / "0000.pt").write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(PayloadError, match=r"0000.pt: ") as caught:
        ImageEditDataset(str(cache))[0]
    assert caught.value.reason == "unreadable payload"
    assert "\n" not in str(caught.value)


def test_a_payload_that_is_gone_is_refused(make_edit_cache: Callable[..., Path]) -> None:
    cache = make_edit_cache({SHAPE: 1})
    (cache / "samples" / "0000.pt").unlink()
    with pytest.raises(PayloadError, match=r"0000.pt: cannot be read: No such file"):
        ImageEditDataset(str(cache))[0]


class RunsCode:
    """Unpickling this would create the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, protocol=2))])
def test_a_pickle_with_code_is_refused_and_the_code_does_not_run(
    make_edit_cache: Callable[..., Path], tmp_path: Path, write: Callable[[Any, Path], Any]
) -> None:
    cache = make_edit_cache({SHAPE: 1})
    write({"target_latent": RunsCode(tmp_path / "it-ran")}, cache / "samples" / "0000.pt")
    with pytest.raises(PayloadError, match=r"0000.pt: refused by .*weights_only=True.*code, which is never run"):
        ImageEditDataset(str(cache))[0]
    assert not (tmp_path / "it-ran").exists()


def test_a_payload_that_is_no_mapping_is_refused(make_edit_cache: Callable[..., Path]) -> None:
    cache = make_edit_cache({SHAPE: 1})
    torch.save([1, 2], cache / "samples" / "0000.pt")
    with pytest.raises(PayloadError, match=r"0000.pt: holds a list, not a mapping of fields"):
        ImageEditDataset(str(cache))[0]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (set_in("prompt_embeddings", torch.ones(4, 7)), "prompt embeddings .* must have one shape and dtype"),
        (set_in("prompt_embeddings", torch.ones(4, 6).half()), "prompt embeddings .* must have one shape and dtype"),
        (set_in("prompt_attention_mask", torch.ones(4).bool()), "prompt mask must have one shape and dtype"),
        (set_in("target_latent", torch.ones(SHAPE)), "target_latent must have one shape and dtype within a batch"),
    ],
)
def test_samples_that_do_not_fit_into_one_batch_are_refused(
    make_edit_cache: Callable[..., Path], spoil: Callable[[dict[str, Any], int], None], says: str
) -> None:
    dataset = ImageEditDataset(str(make_edit_cache({SHAPE: 2}, lambda payload, row: row and spoil(payload, row))))
    with pytest.raises(DataError, match=says):
        _collate_image_edit([dataset[0], dataset[1]])


def test_samples_with_other_conditioning_are_refused(make_edit_cache: Callable[..., Path]) -> None:
    def rename(payload: dict[str, Any], row: int) -> None:
        if row:
            payload["conditioning_tensors"] = {"other": torch.ones(5)}
            payload["metadata"]["conditioning_shapes"] = {"other": [5]}

    dataset = ImageEditDataset(str(make_edit_cache({SHAPE: 2}, rename)))
    with pytest.raises(DataError, match=r"same names within a batch, got \['pooled'\] and \['other'\].*'row': 1"):
        _collate_image_edit([dataset[0], dataset[1]])


def test_a_subclass_may_choose_its_items(make_edit_cache: Callable[..., Path]) -> None:
    class Half(ImageEditDataset):
        def _load_metadata(self) -> list[dict[str, object]]:
            return super()._load_metadata()[::2]

    assert Half(str(make_edit_cache({SHAPE: 6}))).get_bucket_info()["buckets"] == {"target=4x4x6/contexts=[4x4x6]": 3}
