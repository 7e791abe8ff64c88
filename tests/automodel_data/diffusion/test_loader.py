import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig, ImageEditDataset
from automodel_data.diffusion.loader import BatchReader, DiffusionDataloaderBuild, LatentDataloader
from automodel_data.diffusion.sampler import SequentialBucketSampler
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataloaderConfig
from automodel_data.errors import DataError

SMALL, LARGE = (4, 4, 4), (4, 8, 8)


@pytest.fixture
def cache(make_edit_cache: Callable[..., Path]) -> Path:
    return make_edit_cache({SMALL: 7, LARGE: 4})


def build(cache: Path, rank: int = 0, world_size: int = 1, batch_size: int = 2, **options: Any):
    config = ImageEditDataloaderConfig(str(cache), **{"num_workers": 0, "drop_last": False, **options})
    return config.build(rank, world_size, batch_size)


def rows(batch: dict[str, Any]) -> list[int]:
    return [sample["original_ids"]["row"] for sample in batch["metadata"]["samples"]]


def test_it_iterates_over_one_epoch_in_the_samplers_order(cache: Path) -> None:
    built = build(cache)
    assert isinstance(built, DiffusionDataloaderBuild)
    assert [rows(batch) for batch in built.dataloader] == list(built.sampler)
    assert len(built.dataloader) == 6


def test_the_epoch_is_the_samplers(cache: Path) -> None:
    built = build(cache)
    epochs = []
    for epoch in range(2):
        built.sampler.set_epoch(epoch)
        epochs.append([row for batch in built.dataloader for row in rows(batch)])
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(11))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_stopped_anywhere_three_times_it_goes_on_behind_the_last_batch_handed_out(cache: Path, workers: int) -> None:
    options = {"num_workers": workers, "bucket_order": "interleaved"}
    whole = [rows(batch) for batch in build(cache, **options).dataloader]
    for stop in (0, 1, 2):
        seen, state = [], None
        for _ in range(4):
            loader = build(cache, **options).dataloader
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            seen += [rows(batch) for batch in islice(loader, stop)]
            state = loader.state_dict()
        assert state["sampler"]["batches_yielded"] == len(seen) == min(4 * stop, 6)
        loader = build(cache, **options).dataloader
        loader.load_state_dict(state)
        assert seen + [rows(batch) for batch in loader] == whole


def test_a_state_may_be_taken_up_by_another_number_of_workers(cache: Path) -> None:
    reference = build(cache)
    whole = [rows(batch) for batch in reference.dataloader]
    loader = build(cache, num_workers=2).dataloader
    batches = iter(loader)
    next(batches)
    resumed = build(cache).dataloader
    resumed.load_state_dict(loader.state_dict())
    assert [rows(batch) for batch in resumed] == whole[1:]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_may_be_left_and_iterated_again(cache: Path, workers: int) -> None:
    loader = build(cache, num_workers=workers).dataloader
    whole = [rows(batch) for batch in loader]
    left = [rows(batch) for batch in islice(loader, 2)]
    assert left == whole[:2]
    assert [rows(batch) for batch in loader] == whole


def test_the_state_is_small_plain_values_and_names_its_place(cache: Path) -> None:
    loader = build(cache, rank=1, world_size=2).dataloader
    next(iter(loader))
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert (state["rank"], state["world_size"], state["num_workers"]) == (1, 2, 0)
    assert len(json.dumps(state)) < 1000


def test_a_state_of_another_rank_world_or_batch_size_is_refused(cache: Path) -> None:
    state = build(cache, rank=1, world_size=2).dataloader.state_dict()
    with pytest.raises(DataError, match="state of rank 1, and this is rank 0"):
        build(cache, rank=0, world_size=2).dataloader.load_state_dict(state)
    with pytest.raises(DataError, match=r"num_replicas \(2 then, 4 now\)"):
        build(cache, rank=1, world_size=4).dataloader.load_state_dict(state)
    with pytest.raises(DataError, match=r"batch_size \(2 then, 1 now\)"):
        build(cache, rank=1, world_size=2, batch_size=1).dataloader.load_state_dict(state)


def test_ranks_share_the_work(cache: Path) -> None:
    loaders = [build(cache, rank, 2, bucket_policy="drop").dataloader for rank in range(2)]
    steps = list(zip(*loaders, strict=True))
    assert all(first["image_latents"].shape == second["image_latents"].shape for first, second in steps)
    used = [row for step in steps for batch in step for row in rows(batch)]
    assert set(used) == set(range(11))
    assert len(used) == 12, "one sample of seven is used twice, so that two ranks have equally many"


def spoil(*bad_rows: int) -> Callable[[dict[str, Any], int], None]:
    def change(payload: dict[str, Any], row: int) -> None:
        if row in bad_rows:
            payload["target_latent"][0, 0, 0] = torch.nan

    return change


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_payload_is_one_clear_error(make_edit_cache: Callable[..., Path], workers: int) -> None:
    cache = make_edit_cache({SMALL: 4}, spoil(2))
    with pytest.raises(DataError, match=r"^/.*/0002.pt: target_latent must be finite, got NaN or infinity; delete"):
        list(build(cache, num_workers=workers).dataloader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_payload_may_be_a_counted_loss_and_batches_keep_shape_and_number(
    make_edit_cache: Callable[..., Path], workers: int
) -> None:
    cache = make_edit_cache({SMALL: 6, LARGE: 4}, spoil(2, 3))
    (cache / "samples" / "0007.pt").write_bytes(b"torn")
    loader = build(cache, num_workers=workers, bad_payload="skip").dataloader
    batches = list(loader)
    assert len(batches) == len(loader) == 5
    assert {len(rows(batch)) for batch in batches} == {2}
    used = [row for batch in batches for row in rows(batch)]
    assert set(used) == {0, 1, 4, 5, 6, 8, 9}
    assert all(len(set(rows(batch))) == 2 for batch in batches), "the substitute is another sample than its neighbour"
    assert loader.drops() == {str(cache): {"payload not finite": 2, "unreadable payload": 1}}


def test_two_bad_payloads_of_a_batch_are_replaced_by_two_samples(make_edit_cache: Callable[..., Path]) -> None:
    cache = make_edit_cache({SMALL: 8}, spoil(1, 2))
    first, _ = build(cache, batch_size=4, shuffle=False, bad_payload="skip").dataloader
    assert rows(first) == [0, 4, 5, 3], "the next ones behind them that the batch does not use"
    alone = build(make_edit_cache({SMALL: 4}, spoil(1, 2), "alone"), batch_size=4, shuffle=False, bad_payload="skip")
    assert [rows(batch) for batch in alone.dataloader] == [[0, 3, 3, 3]], "where there is no other, one is used again"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_saved_gradient_is_no_part_of_a_batch(make_edit_cache: Callable[..., Path], workers: int) -> None:
    def require(payload: dict[str, Any], row: int) -> None:
        payload["target_latent"].requires_grad_()

    (batch,) = build(make_edit_cache({SMALL: 2}, require), num_workers=workers).dataloader
    assert not batch["image_latents"].requires_grad


def test_workers_stay_from_epoch_to_epoch(cache: Path) -> None:
    reader = BatchReader(ImageEditDataset(str(cache)), lambda samples: os.getpid(), "raise")
    loader = LatentDataloader(reader, SequentialBucketSampler(reader.dataset, base_batch_size=2), num_workers=1)
    (first,) = set(loader)
    loader.sampler.set_epoch(1)
    assert set(loader) == {first}
    assert first != os.getpid()


def test_losses_are_counted_on_across_a_resume(make_edit_cache: Callable[..., Path]) -> None:
    cache = make_edit_cache({SMALL: 6}, spoil(0, 1, 2))
    whole = build(cache, bad_payload="skip").dataloader
    expected = [rows(batch) for batch in whole]
    first = build(cache, bad_payload="skip").dataloader
    seen = [rows(batch) for batch in islice(first, 2)]
    second = build(cache, bad_payload="skip").dataloader
    second.load_state_dict(first.state_dict())
    assert seen + [rows(batch) for batch in second] == expected
    assert second.drops() == whole.drops() == {str(cache): {"payload not finite": 3}}


def test_losses_of_batches_that_were_only_read_ahead_are_not_counted(make_edit_cache: Callable[..., Path]) -> None:
    cache = make_edit_cache({SMALL: 12}, spoil(*range(1, 12)))
    loader = build(cache, batch_size=1, num_workers=2, bad_payload="skip", shuffle=False).dataloader
    batches = iter(loader)
    next(batches)
    assert loader.drops() == {}
    next(batches)
    assert loader.drops() == {str(cache): {"payload not finite": 1}}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bucket_without_one_good_payload_is_an_error(make_edit_cache: Callable[..., Path], workers: int) -> None:
    cache = make_edit_cache({SMALL: 3}, spoil(0, 1, 2))
    with pytest.raises(DataError, match="none of 3 payloads in a row can be used"):
        list(build(cache, bad_payload="skip", num_workers=workers).dataloader)


def test_samples_that_do_not_fit_together_are_an_error_that_names_the_files(
    make_edit_cache: Callable[..., Path],
) -> None:
    def widen(payload: dict[str, Any], row: int) -> None:
        if row == 1:
            payload["prompt_embeddings"] = torch.ones(4, 7)

    cache = make_edit_cache({SMALL: 2}, widen)
    with pytest.raises(DataError, match=r"one shape and dtype .*\(the batch was read from .*000[01].pt, .*000[01].pt"):
        list(build(cache, bad_payload="skip").dataloader)


def test_a_payload_is_read_once_per_use(make_edit_cache: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make_edit_cache({SMALL: 5, LARGE: 2})
    reads: list[str] = []
    read_bytes = Path.read_bytes

    def counting_read(path: Path) -> bytes:
        reads.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", counting_read)
    list(build(cache).dataloader)
    assert sorted(name for name in reads if name.endswith(".pt")) == [f"{i:04d}.pt" for i in range(7)]


def test_the_global_generators_are_not_touched(cache: Path) -> None:
    before = torch.get_rng_state()
    list(build(cache).dataloader)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_table_of_buckets_is_logged_at_the_start(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        build(cache, batch_size=4, bucket_policy="drop")
    assert "target=4x4x4/contexts=[4x4x4]        7           4        1     3         0" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dynamic_batch_size": True}, r"dynamic_batch_size \(True\) is not possible with image-edit data"),
        ({"bad_payload": "ignore"}, r"bad_payload \('ignore'\) must be one of raise, skip"),
        ({"bucket_policy": "keep"}, "bucket_policy"),
    ],
)
def test_an_impossible_option_is_refused(cache: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(cache, **options)


def test_text_to_image_batches_scale_with_their_resolution(make_t2i_cache: Callable[..., Path]) -> None:
    cache = make_t2i_cache({(64, 64): 8, (128, 128): 2})
    config = TextToImageDataloaderConfig(
        str(cache), base_resolution=(128, 128), dynamic_batch_size=True, num_workers=0, shuffle=False
    )
    built = config.build(dp_rank=0, dp_world_size=1, batch_size=1)
    assert [batch["image_latents"].shape for batch in built.dataloader] == [(4, 4, 8, 8)] * 2 + [(1, 4, 16, 16)] * 2


@pytest.fixture
def second_of_two() -> Iterator[None]:
    """Be rank 1 of 2 in a process group whose collectives do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield
    dist.destroy_process_group()


def test_ranks_come_from_the_process_group_when_none_are_given(cache: Path, second_of_two: None) -> None:
    sampler = SequentialBucketSampler(ImageEditDataset(str(cache)), base_batch_size=2)
    assert (sampler.num_replicas, sampler.rank) == (2, 1)
    assert list(sampler) == list(build(cache, 1, 2, bucket_policy="drop").sampler)
