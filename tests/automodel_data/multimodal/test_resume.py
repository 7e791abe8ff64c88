"""Stopped behind any batch and resumed twice, the stream goes on exactly as if it had never stopped."""

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch

from automodel_data.errors import DataError
from automodel_data.multimodal.collate_fns import SimpleCustomBatch

LENGTH = 6


def same(left: SimpleCustomBatch, right: SimpleCustomBatch) -> bool:
    a, b = left.to_dict(), right.to_dict()
    return a.keys() == b.keys() and all(
        torch.equal(a[key], b[key]) if isinstance(a[key], torch.Tensor) else a[key] == b[key] for key in a
    )


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("case", ["mix_flex", "mix_tight"])
def test_a_stream_resumed_twice_behind_every_batch_equals_the_uninterrupted_one(
    case: str, workers: int, build_golden: Callable[..., Any]
) -> None:
    whole = list(islice(build_golden(case, workers).dataloader, LENGTH))
    for stop in range(LENGTH - 1):
        first = build_golden(case, workers).dataloader
        head = list(islice(first, stop))
        second = build_golden(case, workers).dataloader
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        head += list(islice(second, 1))
        third = build_golden(case, workers).dataloader
        third.load_state_dict(json.loads(json.dumps(second.state_dict())))
        assert third.state_dict() == second.state_dict()
        resumed = head + list(islice(third, LENGTH - stop - 1))
        assert [same(a, b) for a, b in zip(whole, resumed, strict=True)] == [True] * LENGTH


@pytest.mark.parametrize("workers", [0, 2])
def test_one_loader_given_the_same_state_twice_yields_the_same_batches(
    workers: int, build_golden: Callable[..., Any]
) -> None:
    loader = build_golden("mix_flex", workers).dataloader
    list(islice(loader, 2))
    state = loader.state_dict()
    tails = []
    for _ in range(2):
        loader.load_state_dict(state)
        tails.append(list(islice(loader, 2)))
    assert all(same(a, b) for a, b in zip(*tails, strict=True))


def test_losses_are_counted_once_however_often_the_stream_stops(build_golden: Callable[..., Any]) -> None:
    whole = build_golden("mix_tight", 2).dataloader
    list(islice(whole, 8))
    state = build_golden("mix_tight", 2).dataloader.state_dict()
    for _ in range(8):
        loader = build_golden("mix_tight", 2).dataloader
        loader.load_state_dict(state)
        list(islice(loader, 1))
        state = loader.state_dict()
    assert loader.drops() == whole.drops()
    assert sum(sum(reasons.values()) for reasons in whole.drops().values()) > 0


def test_the_state_stays_below_64_KiB_with_a_full_buffer(build_golden: Callable[..., Any]) -> None:
    tight = {"max_num_tokens": 1050, "expected_num_tokens": 1049, "max_buffer_size": 50, "prefer_buffer_before": 0}
    dataset = build_golden("edit_only", 0, **tight).dataset
    state = next(state for _, state in dataset.packs_with_state() if len(state["buffer"]) == 50)
    assert len(json.dumps(state)) < 64 * 1024


@pytest.mark.parametrize(("key", "value"), [("world_size", 4), ("num_workers", 3), ("rank", 1)])
def test_a_state_from_another_placement_is_refused_with_both_numbers(
    key: str, value: int, build_golden: Callable[..., Any]
) -> None:
    loader = build_golden("mix_flex", 0).dataloader
    saved = loader.state_dict()
    with pytest.raises(DataError, match=rf"saved with {key} {value}, this run has {saved[key]}"):
        loader.load_state_dict(saved | {key: value})


def test_a_state_from_other_groups_is_refused_with_their_names(build_golden: Callable[..., Any]) -> None:
    loader = build_golden("t2i_only", 0).dataloader
    list(islice(loader, 1))
    other = build_golden("mix_flex", 0).dataloader
    other.load_state_dict(loader.state_dict())
    with pytest.raises(DataError, match=r"t2i_pretrain.*unified_edit"):
        next(iter(other))
