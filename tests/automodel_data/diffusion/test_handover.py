import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from automodel_data.diffusion.handover import Sender
from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig

SMALL, TALL, LARGE = (4, 4, 4), (4, 8, 4), (4, 8, 8)


def batch_of(value: int) -> dict[str, Any]:
    return {
        "latents": torch.full((2, 3, 5), float(value)).bfloat16(),
        "contexts": [torch.full((2, value), value), torch.empty(2, 0)],
        "mask": torch.tensor([[True, False, True]]),
        "metadata": {"rows": [value], "scalar": torch.tensor(value), "names": ["a"]},
    }


def assert_same(batch: Any, expected: Any) -> None:
    assert type(batch) is type(expected)
    match expected:
        case torch.Tensor():
            assert batch.dtype == expected.dtype
            assert torch.equal(batch, expected)
        case dict():
            assert batch.keys() == expected.keys()
            for name in expected:
                assert_same(batch[name], expected[name])
        case list():
            for one, other in zip(batch, expected, strict=True):
                assert_same(one, other)
        case _:
            assert batch == expected


def test_a_batch_comes_out_as_it_went_in() -> None:
    assert_same(Sender(2).pack(batch_of(3)).unpack(), batch_of(3))


def test_an_unpacked_batch_stays_as_it_is_when_its_buffer_is_used_again() -> None:
    sender = Sender(2)
    batches = [sender.pack(batch_of(value)).unpack() for value in (3, 1, 7, 2, 5)]
    for batch, value in zip(batches, (3, 1, 7, 2, 5), strict=True):
        assert_same(batch, batch_of(value))


def test_as_many_batches_as_there_are_buffers_may_be_on_their_way() -> None:
    sender = Sender(3)
    parcels = [sender.pack(batch_of(value)) for value in (1, 2, 3)]
    for parcel, value in zip(parcels, (1, 2, 3), strict=True):
        assert_same(parcel.unpack(), batch_of(value))


def test_buffers_are_used_in_turn_and_grow_only_for_a_larger_batch() -> None:
    sender = Sender(2)
    places = [sender.pack(batch_of(value)).memory.data_ptr() for value in (40, 40, 1, 40)]
    assert places[:2] == places[2:]
    assert places[0] != places[1]
    assert sender.pack(batch_of(400)).memory.data_ptr() not in places


def test_all_tensors_travel_in_one_shared_buffer() -> None:
    parcel = Sender(2).pack(batch_of(3))
    assert parcel.memory.is_shared()
    assert len(pickle.dumps(parcel.batch)) < 1000


@pytest.mark.parametrize(("workers", "prefetch_factor"), [(1, 1), (2, 1), (2, 3)])
def test_batches_of_workers_that_read_ahead_are_those_of_one_process(
    make_edit_cache: Callable[..., Path], workers: int, prefetch_factor: int
) -> None:
    cache = make_edit_cache({SMALL: 23, TALL: 8, LARGE: 14})

    def epochs(num_workers: int) -> list[dict[str, Any]]:
        config = ImageEditDataloaderConfig(
            str(cache),
            bucket_policy="partial",
            bucket_order="interleaved",
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
        )
        loader = config.build(0, 1, 2).dataloader
        return [batch for _ in range(2) for batch in loader]

    for batch, expected in zip(epochs(workers), epochs(0), strict=True):
        assert_same(batch, expected)
