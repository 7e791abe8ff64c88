"""The loader hands out packs of real worker processes, with the state of the last one handed out."""

import json
import pickle
import random
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from automodel_data.errors import DataError
from automodel_data.multimodal.interleave import InterleavedBaseIterableDataset, ParquetStandardIterableDataset
from automodel_data.multimodal.loader import BagelDataloaderConfig


def names(batch: Any) -> list[tuple[Any, int]]:
    return [(index["data_indexes"], index["worker_id"]) for index in batch.batch_data_indexes]


@pytest.fixture
def talk(workshop: Any) -> Any:
    """Return a workshop with twelve conversations of one letter, packed two by two, every third row broken."""
    rows = [{"conversations": [{"from": "gpt", "value": chr(65 + number)}]} for number in range(12)]
    workshop.add_vlm("talk", [row if number % 3 else "{" for number, row in enumerate(rows)])
    return workshop


SMALL = {"expected_num_tokens": 6, "max_num_tokens_per_sample": 5, "max_num_tokens": 8}


@pytest.mark.parametrize("batch_size", [0, 2])
def test_a_batch_is_one_pack(batch_size: int, talk: Any) -> None:
    config = BagelDataloaderConfig(talk.config(), num_workers=0)
    with pytest.raises(DataError, match=f"batch_size is {batch_size}; a pack is a batch, so it must be 1"):
        config.build(None, {}, 0, 1, batch_size, 0)  # type: ignore[arg-type]


def test_the_documented_defaults_are_one_worker_that_pins_and_prefetches_two(talk: Any) -> None:
    config = BagelDataloaderConfig(talk.config())
    assert (config.num_workers, config.pin_memory, config.prefetch_factor) == (1, True, 2)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_read_their_own_shares_in_turn(workers: int, talk: Any) -> None:
    build = talk.build(workers, **SMALL)
    batches = list(islice(build.dataloader, 6))
    assert [{worker for _, worker in names(batch)} for batch in batches] == [
        {number % max(1, workers)} for number in range(6)
    ]
    read: list[set[int]] = [set() for _ in range(max(1, workers))]
    for number, batch in enumerate(islice(build.dataloader, 12)):
        read[number % len(read)] |= {token for token in batch.packed_text_ids.tolist() if token < 1000}
    assert set().union(*read) == {65 + number for number in range(12) if number % 3}
    assert sum(map(len, read)) == 8


def test_packs_of_one_worker_process_equal_those_of_this_process_but_for_their_order(talk: Any) -> None:
    here = [batch.packed_text_ids.tolist() for batch in islice(talk.build(0, **SMALL).dataloader, 4)]
    there = [batch.packed_text_ids.tolist() for batch in islice(talk.build(1, **SMALL).dataloader, 4)]
    assert sorted(id for ids in here for id in ids) == sorted(id for ids in there for id in ids)
    assert here != there


# state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_is_that_of_the_last_pack_handed_out(workers: int, talk: Any) -> None:
    whole = [names(batch) for batch in islice(talk.build(workers, **SMALL).dataloader, 8)]
    loader = talk.build(workers, **SMALL).dataloader
    for number, batch in enumerate(islice(loader, 4)):
        assert names(batch) == whole[number]
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["rank"], state["world_size"], state["num_workers"]) == (0, 1, workers)
        resumed = talk.build(workers, **SMALL).dataloader
        resumed.load_state_dict(state)
        assert resumed.drops() == loader.drops()
        assert names(next(iter(resumed))) == whole[number + 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_the_beginning_begins_anew(workers: int, talk: Any) -> None:
    loader = talk.build(workers, **SMALL).dataloader
    beginning = loader.state_dict()
    whole = [names(batch) for batch in islice(loader, 5)]
    loader.load_state_dict(loader.state_dict())
    assert names(next(iter(loader))) not in whole[:1]
    loader.load_state_dict(beginning)
    assert [names(batch) for batch in islice(loader, 5)] == whole
    assert loader.state_dict()["batches"] == 5


def test_iterating_again_starts_where_the_loader_was_put(talk: Any) -> None:
    loader = talk.build(0, **SMALL).dataloader
    streams = [[names(batch) for batch in islice(loader, 3)] for _ in range(2)]
    assert streams[0] == streams[1]


def test_losses_are_those_up_to_the_last_pack_handed_out_in_all_workers(talk: Any) -> None:
    loader = talk.build(2, **SMALL).dataloader
    assert loader.drops() == {}
    list(islice(loader, 4))
    assert loader.drops() == {"talk": {"broken JSON": 4}}


def test_the_state_is_a_few_kilobytes_with_a_full_buffer(workshop: Any) -> None:
    workshop.add_lengths("a", list(range(20, 60)))
    budget = {"max_num_tokens": 60, "expected_num_tokens": 60, "max_num_tokens_per_sample": 60, "max_buffer_size": 50}
    loader = workshop.build(0, **budget).dataloader
    largest, buffered = 0, 0
    for _ in islice(loader, 40):
        state = loader.state_dict()
        largest = max(largest, len(json.dumps(state)))
        buffered = max(buffered, len(state["workers"][0]["buffer"]))
    assert buffered == 50
    assert largest < 16 * 1024


# processes --------------------------------------------------------------------------------------------------------


def test_the_global_generators_of_this_process_stay_where_they_are(talk: Any) -> None:
    for workers in (0, 2):
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        list(islice(talk.build(workers, **SMALL).dataloader, 2))
        assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


class Careless(InterleavedBaseIterableDataset, ParquetStandardIterableDataset):
    """Draws from the process's own generators, as a parser written elsewhere may do."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        numbers = [random.randrange(1000), int(np.random.randint(1000)), int(torch.randint(1000, ()))]
        text = "".join(map(chr, numbers))
        return self._add_text(self._init_data(), text, need_loss=True, enable_cfg=False)


class Wrong(Careless):
    """Has a bug."""

    def parse_row(self, row: Mapping[str, Any]) -> Any:
        return row["text"] / 0


def own(workshop: Any, kind: type) -> Any:
    path = workshop.parquet(workshop.root / "own" / "a.parquet", {"text": list("abcdefgh")}, 2)
    sizes = {"max_image_size": 64, "min_image_size": 16}
    workshop.info["own"] = {"rows": {"data_dir": str(path.parent)}}
    workshop.groups["own"] = {
        "dataset_names": ["rows"],
        "dataset_class": f"{__name__}.{kind.__name__}",
        "image_transform_args": {"image_stride": 16} | sizes,
        "vit_image_transform_args": {"image_stride": 14} | sizes,
    }
    return workshop


def test_a_parser_that_draws_from_the_global_generators_is_reproducible_inside_workers(workshop: Any) -> None:
    workshop = own(workshop, Careless)
    streams = []
    for _ in range(2):
        torch.rand(7)
        random.random()
        streams.append([batch.packed_text_ids.tolist() for batch in islice(workshop.build(2).dataloader, 4)])
    assert streams[0] == streams[1]
    assert streams[0][0] != streams[0][1]


def test_a_bug_in_a_parser_is_no_data_error(workshop: Any) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        next(iter(own(workshop, Wrong).build(0).dataloader))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_error_of_a_worker_arrives_as_it_was_raised(workers: int, workshop: Any) -> None:
    workshop.add_vlm("talk", ["{"] * 4)
    with pytest.raises(DataError) as error:
        next(iter(workshop.build(workers).dataloader))
    assert str(error.value).startswith("a whole pass over talk gave no usable sample; lost: ")
    assert "\n" not in str(error.value)


def test_a_dataset_travels_to_a_spawned_worker(workshop: Any) -> None:
    pictures = [workshop.image(32, 16), workshop.image(16, 32)]
    turns = [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "y"}]
    workshop.add_edit("edit", [(pictures, [["do it"]])] * 8, 2)
    workshop.add_vlm("talk", [{"image": "a.png", "conversations": turns}] * 8, {"a.png": pictures[0]})
    budget = {"max_num_tokens": 80, "expected_num_tokens": 60, "max_num_tokens_per_sample": 40, "use_flex": False}
    dataset = workshop.build(1, **budget).dataset
    assert len(pickle.dumps(dataset)) < 64 * 1024
    spawned = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    forked = workshop.build(1, **budget).dataloader
    for pack, batch in islice(zip(spawned, forked, strict=True), 3):
        assert pack["batch_data_indexes"] == batch.batch_data_indexes
        assert torch.equal(pack["packed_vit_tokens"], batch.packed_vit_tokens)
        assert torch.equal(pack["nested_attention_masks"][0], batch.nested_attention_masks[0])
