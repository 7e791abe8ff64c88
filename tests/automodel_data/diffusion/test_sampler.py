import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automodel_data.diffusion.bucket_plan import format_table
from automodel_data.diffusion.image_edit_dataset import ImageEditDataset
from automodel_data.diffusion.sampler import SequentialBucketSampler
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataset
from automodel_data.errors import DataError

SMALL, TALL, LARGE = (4, 4, 4), (4, 8, 4), (4, 8, 8)


@pytest.fixture(scope="module")
def edits(parity_inputs: Path) -> ImageEditDataset:
    return ImageEditDataset(str(parity_inputs / "edit_cache"))


@pytest.fixture
def uneven(make_edit_cache: Callable[..., Path]) -> ImageEditDataset:
    return ImageEditDataset(str(make_edit_cache({SMALL: 11, TALL: 3, LARGE: 6})))


def sampler(dataset: Any, **options: Any) -> SequentialBucketSampler:
    return SequentialBucketSampler(dataset, **{"base_batch_size": 2, "num_replicas": 1, "rank": 0, **options})


@pytest.mark.parametrize("case", range(12))
def test_image_edit_order_is_that_of_the_documented_system(
    golden: dict[str, Any], edits: ImageEditDataset, case: int
) -> None:
    expected = golden["edit_sampler"][case]
    ours = SequentialBucketSampler(edits, **expected["kwargs"])
    ours.set_epoch(expected["epoch"])
    assert list(ours) == expected["batches"]
    assert len(ours) == expected["length"]


@pytest.mark.parametrize("case", range(2))
def test_text_to_image_order_is_that_of_the_documented_system(
    golden: dict[str, Any], parity_inputs: Path, case: int
) -> None:
    expected = golden["t2i_sampler"][case]
    ours = SequentialBucketSampler(TextToImageDataset(str(parity_inputs / "t2i_cache")), **expected["kwargs"])
    assert list(ours) == expected["batches"]
    assert len(ours) == expected["length"]


@pytest.mark.parametrize("order", ["sequential", "interleaved"])
@pytest.mark.parametrize("policy", ["drop", "partial", "pad"])
@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_ranks_see_the_same_bucket_at_every_step_and_the_plan_counts_right(
    uneven: ImageEditDataset, order: str, policy: str, replicas: int
) -> None:
    ranks = [
        sampler(uneven, num_replicas=replicas, rank=rank, bucket_policy=policy, bucket_order=order)
        for rank in range(replicas)
    ]
    steps = list(zip(*ranks, strict=True))
    bucket_of = {i: key for key, group in uneven.bucket_groups.items() for i in group["indices"]}
    for batches in steps:
        assert len({bucket_of[i] for batch in batches for i in batch}) == 1
        assert len({len(batch) for batch in batches}) == 1
    used = Counter(i for batches in steps for batch in batches for i in batch)
    assert len(ranks[0]) == len(steps)
    assert len(uneven) - len(used) == sum(plan.lost for plan in ranks[0].plans)
    assert used.total() - len(used) == sum(plan.repeated for plan in ranks[0].plans)
    if policy != "drop":
        assert len(used) == len(uneven)
    if policy == "pad":
        assert {len(batch) for batches in steps for batch in batches} == {2}


@pytest.mark.parametrize("order", ["sequential", "interleaved"])
def test_an_epoch_is_drawn_anew_and_again_the_same(uneven: ImageEditDataset, order: str) -> None:
    ours = sampler(uneven, bucket_order=order)
    epochs = []
    for epoch in (0, 1, 2, 0):
        ours.set_epoch(epoch)
        epochs.append(list(ours))
    assert epochs[0] == epochs[3]
    assert epochs[0] != epochs[1] != epochs[2]
    assert list(sampler(uneven, bucket_order=order, seed=43)) != epochs[0]


def test_without_shuffling_buckets_and_samples_come_in_order(uneven: ImageEditDataset) -> None:
    ours = sampler(uneven, shuffle_buckets=False, shuffle_within_bucket=False, drop_last=False)
    assert [i for batch in ours for i in batch] == list(range(20))


def test_interleaving_draws_in_proportion_to_what_is_left(make_edit_cache: Callable[..., Path]) -> None:
    dataset = ImageEditDataset(str(make_edit_cache({SMALL: 30, LARGE: 10})))
    ours = sampler(dataset, base_batch_size=1, bucket_order="interleaved")
    small_first = small_after_small = firsts = 0
    for epoch in range(300):
        ours.set_epoch(epoch)
        first, second = [batch[0] < 30 for batch in ours][:2]
        small_first += first
        if first:
            firsts += 1
            small_after_small += second
    assert small_first / 300 == pytest.approx(30 / 40, abs=0.08)
    assert small_after_small / firsts == pytest.approx(29 / 39, abs=0.08)


def test_interleaving_keeps_each_buckets_own_order(uneven: ImageEditDataset) -> None:
    ours = sampler(uneven, bucket_order="interleaved", shuffle_within_bucket=False, drop_last=False)
    batches = list(ours)
    for group in uneven.bucket_groups.values():
        assert [i for batch in batches for i in batch if i in group["indices"]] == group["indices"]


@pytest.mark.parametrize("order", ["sequential", "interleaved"])
def test_stopped_anywhere_three_times_it_goes_on_where_it_was(uneven: ImageEditDataset, order: str) -> None:
    options = {"bucket_order": order, "bucket_policy": "partial"}
    uninterrupted = sampler(uneven, **options)
    uninterrupted.set_epoch(3)
    whole = list(uninterrupted)
    for stop in range(len(whole) // 3 + 1):
        seen, state = [], None
        for _ in range(4):
            ours = sampler(uneven, **options)
            if state is None:
                ours.set_epoch(3)
            else:
                ours.load_state_dict(json.loads(json.dumps(state)))
                ours.set_epoch(ours.epoch)  # what a trainer does at the head of its loop
            batches = iter(ours)
            seen += [batch for _, batch in zip(range(stop), batches, strict=False)]
            state = ours.state_dict()
        assert state["batches_yielded"] == len(seen)
        last = sampler(uneven, **options)
        last.load_state_dict(state)
        assert seen + list(last) == whole
        assert list(last) == whole, "the position counts once; the next pass is whole"


def test_a_state_saved_at_an_epochs_end_leads_to_the_next_epoch(uneven: ImageEditDataset) -> None:
    ours = sampler(uneven)
    list(ours)
    resumed = sampler(uneven)
    resumed.load_state_dict(ours.state_dict())
    assert list(resumed) == []
    resumed.set_epoch(1)
    ours.set_epoch(1)
    assert resumed.state_dict()["batches_yielded"] == 0
    assert list(resumed) == list(ours)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_replicas": 2}, r"num_replicas \(1 then, 2 now\)"),
        ({"base_batch_size": 3}, r"batch_size \(2 then, 3 now\)"),
        ({"seed": 1}, r"seed \(42 then, 1 now\)"),
        ({"bucket_policy": "pad"}, r"bucket_policy \('drop' then, 'pad' now\)"),
        ({"bucket_order": "interleaved"}, "bucket_order"),
        ({"shuffle_within_bucket": False}, "shuffle"),
    ],
)
def test_a_state_made_with_other_settings_is_refused(
    uneven: ImageEditDataset, change: dict[str, Any], says: str
) -> None:
    state = sampler(uneven).state_dict()
    with pytest.raises(DataError, match=f"belongs to batches in another order: {says}"):
        sampler(uneven, **change).load_state_dict(state)


def test_a_state_of_a_dataset_of_another_length_is_refused(
    uneven: ImageEditDataset, make_edit_cache: Callable[..., Path]
) -> None:
    longer = ImageEditDataset(str(make_edit_cache({SMALL: 12, TALL: 3, LARGE: 6}, name="longer")))
    with pytest.raises(DataError, match=r"samples \(20 then, 21 now\)"):
        sampler(longer).load_state_dict(sampler(uneven).state_dict())


def test_a_state_of_a_dataset_with_other_samples_in_its_buckets_is_refused(
    uneven: ImageEditDataset, make_edit_cache: Callable[..., Path]
) -> None:
    moved = ImageEditDataset(str(make_edit_cache({SMALL: 10, TALL: 4, LARGE: 6}, name="moved")))
    assert len(moved) == len(uneven)
    with pytest.raises(DataError, match="another order: other samples in the buckets; go on with this as before"):
        sampler(moved).load_state_dict(sampler(uneven).state_dict())
    elsewhere = ImageEditDataset(str(make_edit_cache({SMALL: 11, TALL: 3, LARGE: 6}, name="elsewhere")))
    sampler(elsewhere).load_state_dict(sampler(uneven).state_dict())


def test_a_state_made_for_batches_of_another_pixel_count_is_refused(make_t2i_cache: Callable[..., Path]) -> None:
    dataset = TextToImageDataset(str(make_t2i_cache({(64, 64): 9})))
    saved = sampler(dataset, dynamic_batch_size=True, base_resolution=(64, 64)).state_dict()
    for now in ({"dynamic_batch_size": False}, {"dynamic_batch_size": True, "base_resolution": (64, 128)}):
        with pytest.raises(DataError, match=r"dynamic_batch_size \(\[64, 64\] then, "):
            sampler(dataset, **now).load_state_dict(saved)


@pytest.mark.parametrize("fields", ["all", "two"])
def test_a_position_behind_the_epochs_end_is_refused(uneven: ImageEditDataset, fields: str) -> None:
    ours = sampler(uneven)
    state = ours.state_dict() if fields == "all" else {"epoch": 0}
    ours.load_state_dict({**state, "batches_yielded": len(ours)})
    assert list(ours) == []
    for behind in (len(ours) + 1, -1):
        with pytest.raises(DataError, match=f"behind batch {behind}, and the epoch has {len(ours)}"):
            ours.load_state_dict({**state, "batches_yielded": behind})


def test_a_state_of_another_version_is_refused_in_one_line(uneven: ImageEditDataset) -> None:
    state = sampler(uneven).state_dict()
    del state["made_with"]["buckets"]
    with pytest.raises(DataError, match=r"saved by another version of this package \(buckets\)"):
        sampler(uneven).load_state_dict(state)


def test_what_two_fields_leave_cannot_be_dealt_out_anew(uneven: ImageEditDataset) -> None:
    with pytest.raises(DataError, match="does not say how many ranks read in which batch size"):
        sampler(uneven).load_elastic([{"epoch": 0, "batches_yielded": 2}])


def test_a_state_of_the_documented_two_fields_is_taken_at_its_word(uneven: ImageEditDataset) -> None:
    ours = sampler(uneven)
    whole = list(ours)
    ours.load_state_dict({"epoch": 0, "batches_yielded": 4})
    assert list(ours) == whole[4:]


def test_the_batch_info_is_that_of_the_epochs_batch(uneven: ImageEditDataset) -> None:
    ours = sampler(uneven, bucket_policy="partial")
    for i, batch in enumerate(ours):
        info = ours.get_batch_info(i)
        assert batch[0] in uneven.bucket_groups[info["bucket_key"]]["indices"]
        assert info["batch_size"] == len(batch)
        _, height, width = info["bucket_key"].target
        assert info["resolution"] == (width, height)
        assert info["aspect_name"] == ("tall" if height > width else "square")
    with pytest.raises(IndexError, match=f"of an epoch of {len(ours)}"):
        ours.get_batch_info(len(ours))


def test_the_table_shows_samples_batches_and_losses_of_each_bucket(uneven: ImageEditDataset) -> None:
    lines = format_table(sampler(uneven, base_batch_size=4, num_replicas=2).plans).splitlines()
    assert lines[0].split() == ["bucket", "samples", "batch", "size", "batches", "lost", "repeated"]
    assert lines[1].split() == ["target=4x4x4/contexts=[4x4x4]", "11", "4", "1", "3", "0"]
    assert lines[2].split() == ["target=4x8x4/contexts=[4x8x4]", "3", "4", "0", "3", "0"]
    assert lines[4].split() == ["all", "20", "1", "12", "0"]


def test_no_usable_batch_is_an_error_that_says_what_is_missing(make_edit_cache: Callable[..., Path]) -> None:
    dataset = ImageEditDataset(str(make_edit_cache({SMALL: 5, LARGE: 1})))
    with pytest.raises(DataError, match=r"no bucket fills a batch on 2 ranks .*5 samples, 2 too few.*1 samples, 6 too"):
        sampler(dataset, base_batch_size=4, num_replicas=2)
    enough = ImageEditDataset(str(make_edit_cache({SMALL: 7}, name="enough")))
    assert len(sampler(enough, base_batch_size=4, num_replicas=2)) == 1


@pytest.mark.parametrize("policy", ["partial", "pad"])
def test_small_buckets_can_be_used(make_edit_cache: Callable[..., Path], policy: str) -> None:
    dataset = ImageEditDataset(str(make_edit_cache({SMALL: 1})))
    ours = sampler(dataset, base_batch_size=4, num_replicas=2, rank=1, bucket_policy=policy)
    assert list(ours) == ([[0]] if policy == "partial" else [[0, 0, 0, 0]])


def test_ranks_are_one_without_a_process_group(uneven: ImageEditDataset) -> None:
    ours = SequentialBucketSampler(uneven, base_batch_size=2)
    assert (ours.num_replicas, ours.rank) == (1, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"base_batch_size": 0}, r"batch size \(0\)"),
        ({"bucket_policy": "keep"}, r"bucket_policy \('keep'\) must be one of drop, partial, pad"),
        ({"bucket_order": "random"}, r"bucket_order \('random'\) must be one of sequential, interleaved"),
        ({"bucket_order": "interleaved", "shuffle_buckets": False}, "needs shuffle_buckets"),
        ({"dynamic_batch_size": True}, r"dynamic_batch_size \(True\) is not possible with image-edit"),
        ({"rank": 2, "num_replicas": 2}, r"rank \(2\)"),
    ],
)
def test_an_impossible_option_is_refused(uneven: ImageEditDataset, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sampler(uneven, **options)
