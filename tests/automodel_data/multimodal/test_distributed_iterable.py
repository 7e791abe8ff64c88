"""The read loop: shuffled and shared out, for ever, from any row, counting what is lost; an error where all is lost."""

import json
import logging
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest

from automodel_data import errors
from automodel_data.errors import DataError, SkipSample
from automodel_data.multimodal.distributed_iterable import DistributedIterableDataset
from automodel_data.multimodal.plan import Sample, TextItem

Position = list[int]


class Shelves(DistributedIterableDataset):
    """Paths are shelves of numbers; a negative number cannot be used, and a parsed one draws once."""

    def __init__(self, shelves: Sequence[tuple[str, list[int]]], **placement: Any) -> None:
        super().__init__("shelves", **({"num_workers": 0} | placement))
        self.data_paths = self.get_data_paths(shelves)
        self.set_epoch()

    def get_data_paths(self, shelves: Any) -> list[tuple[str, list[int]]]:
        return list(shelves)

    def read_path(self, path: Any, after: list[int] | None) -> Iterator[tuple[list[int], int]]:
        for place, number in enumerate(path[1]):
            if after is None or place > after[0]:
                yield [place], number

    def read_row(self, path: Any, place: list[int]) -> int:
        return path[1][place[0]]

    def parse(self, row: int) -> Sample:
        if row < 0:
            raise SkipSample("negative", str(row))
        sample = Sample()
        sample.add(TextItem(ids=[row, self.rng.choose(1000)], loss=True, enable_cfg=False))
        return sample


LIBRARY = [("c", [1, 2, -3]), ("a", [4]), ("b", [5, -6, 7]), ("d", [-8, 9])]


def content(samples: Iterator[Sample], count: int) -> list[tuple[list[int], Any]]:
    return [(sample["text_ids_list"][0], sample["data_indexes"]) for sample in islice(samples, count)]


def numbers(source: DistributedIterableDataset, count: int) -> list[int]:
    return [ids[0] for ids, _ in content(iter(source), count)]


# order and shares -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 42])
def test_paths_are_sorted_then_shuffled_with_the_seed_whatever_their_order_was(seed: int) -> None:
    names = list("abcd")
    random.Random(seed).shuffle(names)
    for library in (LIBRARY, LIBRARY[::-1]):
        source = Shelves(library)
        source.set_epoch(seed)
        assert [name for name, _ in source.data_paths] == names
        source.set_epoch(seed)
        assert [name for name, _ in source.data_paths] == names


def test_ranks_read_equal_shares_and_a_remainder_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shares = [Shelves(LIBRARY, local_rank=rank, world_size=3).data_paths_per_rank for rank in range(3)]
    assert [len(share) for share in shares] == [1, 1, 1]
    assert len({name for share in shares for name, _ in share}) == 3
    assert "shelves: 1 of 4 paths are left out, they do not divide by 3 ranks" in caplog.text


@pytest.mark.parametrize("rank", [0, 4])
def test_fewer_paths_than_ranks_are_refused_on_every_rank(rank: int) -> None:
    with pytest.raises(DataError, match="shelves: 4 paths cannot be shared by 5 ranks; every rank needs at least one"):
        Shelves(LIBRARY, local_rank=rank, world_size=5)


def test_fewer_paths_than_workers_are_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"2 paths cannot be shared by 3 workers on each rank; .*raise num_used_data"):
        Shelves(LIBRARY, world_size=2, num_workers=3)


def test_without_a_worker_process_a_rank_reads_all_of_its_paths_as_worker_0() -> None:
    source = Shelves(LIBRARY, num_workers=2)
    assert source.get_data_paths_per_worker() == (source.data_paths, 0)


def test_rows_come_path_by_path_for_ever_with_their_positions(caplog: pytest.LogCaptureFixture) -> None:
    source = Shelves(LIBRARY)
    source.set_epoch(0)
    assert [name for name, _ in source.data_paths] == ["c", "a", "b", "d"]
    with caplog.at_level(logging.INFO):
        read = content(iter(source), 8)
    assert [ids[0] for ids, _ in read] == [1, 2, 4, 5, 7, 9, 1, 2]
    assert [index["data_indexes"] for _, index in read[:6]] == [[0, 0], [0, 1], [1, 0], [2, 0], [2, 2], [3, 1]]
    assert read[0][1] == {"data_indexes": [0, 0], "worker_id": 0, "dataset_name": "shelves"}
    assert "shelves: worker 0 of rank 0 has read its paths 1 times" in caplog.text


# resume -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", range(9))
def test_stopped_behind_any_row_and_resumed_twice_the_rows_go_on(stop: int) -> None:
    whole = content(iter(Shelves(LIBRARY)), 14)
    source = Shelves(LIBRARY)
    read = content(iter(source), stop)
    for step in (1, 14 - stop - 1):
        resumed = Shelves(LIBRARY)
        resumed.load_state_dict(json.loads(json.dumps(source.state_dict())))
        assert resumed.state_dict() == source.state_dict()
        resumed.rng.load_state_dict(source.rng.state_dict())
        read += content(iter(resumed), step)
        source = resumed
    assert read == whole


def test_losses_are_counted_on_where_the_reader_was_stopped() -> None:
    source = Shelves(LIBRARY)
    numbers(source, 6)
    resumed = Shelves(LIBRARY)
    resumed.load_state_dict(source.state_dict())
    numbers(resumed, 6)
    whole = Shelves(LIBRARY)
    numbers(whole, 12)
    assert resumed.ledger.counts == whole.ledger.counts


def test_a_resume_position_holds_for_the_first_pass_only() -> None:
    source = Shelves(LIBRARY)
    source.set_epoch(0)
    source.set_data_status([[2, 0]])
    assert numbers(source, 8) == [7, 9, 1, 2, 4, 5, 7, 9]


def test_a_reader_that_was_saved_before_its_first_row_keeps_its_resume_position() -> None:
    source = Shelves(LIBRARY)
    source.set_epoch(0)
    source.set_data_status([[2, 0]])
    source.load_state_dict(source.state_dict())
    assert numbers(source, 3) == [7, 9, 1]


def test_a_position_can_be_set_for_one_worker() -> None:
    source = Shelves(LIBRARY)
    source.set_epoch(0)
    source._set_worker_resume_data_status(0, [2, 2])
    assert numbers(source, 2) == [9, 1]


def test_a_state_from_other_files_is_refused_with_both_counts() -> None:
    state = Shelves(LIBRARY).state_dict()
    with pytest.raises(DataError, match="saved with 4 paths, there are 3 now"):
        Shelves(LIBRARY[:3]).load_state_dict(state)


def test_a_state_from_as_many_other_files_or_from_another_order_is_refused() -> None:
    source = Shelves(LIBRARY)
    wrong = "shelves: the data state was saved with 4 paths, the same number are there, but not these in this order: "
    with pytest.raises(DataError, match=wrong):
        Shelves([*LIBRARY[:3], ("e", [-8, 9])]).load_state_dict(source.state_dict())
    state = source.state_dict()
    source.set_epoch(7)
    with pytest.raises(DataError, match=wrong):
        source.load_state_dict(state)


def test_a_state_from_the_same_files_elsewhere_is_taken() -> None:
    here, there = (Shelves([(f"{folder}/{name}", rows) for name, rows in LIBRARY]) for folder in ("/a", "/b/c"))
    there.load_state_dict(here.state_dict())
    assert there.state_dict() == here.state_dict()


def test_a_restored_sample_has_the_decisions_that_were_drawn_and_draws_nothing() -> None:
    source = Shelves(LIBRARY)
    samples = list(islice(iter(source), 5))
    before = source.rng.state_dict()
    for sample in samples:
        again = source.restore(sample.index, sample.draws)
        assert dict(again) == dict(sample)
    assert source.rng.state_dict() == before


def test_a_sample_whose_row_has_changed_cannot_be_restored_and_the_row_is_named() -> None:
    library = [("a", [1, 2])]
    source = Shelves(library)
    (sample,) = islice(iter(source), 1)
    library[0][1][0] = -1
    with pytest.raises(DataError, match=r"shelves: a buffered sample cannot be restored, the data changed: .*negative"):
        source.restore(sample.index, sample.draws)


@pytest.mark.parametrize("draws", [[], [1, 2]], ids=["too few", "too many"])
def test_a_sample_whose_row_now_asks_for_other_decisions_cannot_be_restored(draws: list[int]) -> None:
    source = Shelves([("a", [1, 2])])
    (sample,) = islice(iter(source), 1)
    with pytest.raises(DataError, match=r"cannot be restored, the data changed: .*decisions"):
        source.restore(sample.index, draws)


# losses -----------------------------------------------------------------------------------------------------------


def test_lost_rows_are_counted_and_the_first_ones_named(caplog: pytest.LogCaptureFixture) -> None:
    source = Shelves([("a", [1, -2, -3])])
    numbers(source, 3)
    assert source.ledger.counts == {"shelves": {"negative": 4}}
    assert "shelves: lost a sample, negative [1 so far] ('a', [1, -2, -3]), row [1] -2" in caplog.text


def test_a_pass_that_gives_nothing_is_an_error_with_reasons_and_first_offenders() -> None:
    with pytest.raises(DataError, match=r"a whole pass over shelves gave no usable sample; lost: 2 x negative \(first"):
        numbers(Shelves([("a", [-1, -2])]), 1)


def test_a_pass_without_rows_is_an_error() -> None:
    with pytest.raises(DataError, match="gave no usable sample; no row was lost, there were none"):
        numbers(Shelves([("a", []), ("b", [])]), 1)


def test_the_rest_of_a_pass_is_not_judged() -> None:
    source = Shelves([("a", [1, -2, -3])])
    source.set_data_status([[0, 0]])
    assert numbers(source, 2) == [1, 1]


def test_a_pass_is_judged_by_the_samples_that_the_packer_did_not_reject() -> None:
    source = Shelves([("a", [1, -2, 3])])
    first, second, third = islice(iter(source), 3)
    source.reject(first, "too long")
    source.reject(third, "too long")  # of the second pass
    with pytest.raises(DataError, match=r"a whole pass over shelves .*lost: 3 x too long"):
        source.reject(second, "too long")


def test_samples_given_up_for_want_of_room_end_a_run_only_when_they_are_very_many() -> None:
    source = Shelves([("a", [1])])
    with pytest.raises(DataError, match="100 x pack and buffer full"):
        for sample in iter(source):
            source.give_up(sample, "pack and buffer full")


@pytest.mark.parametrize("good", [0, 1])
def test_many_rows_without_a_sample_end_a_long_pass_early(good: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MOST_BARREN_ROWS", 10)
    source = Shelves([("a", [1] * good + [-1] * 1000)])
    with pytest.raises(DataError, match="10 rows of shelves gave no usable sample"):
        numbers(source, 2)
    assert source.ledger.total() == 10 + 9 * good


def test_the_short_tail_of_a_long_pass_may_be_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MOST_BARREN_ROWS", 10)
    assert numbers(Shelves([("a", [1] * 10 + [-1] * 3)]), 25) == [1] * 25


def test_an_error_of_the_program_passes_through() -> None:
    class Wrong(Shelves):
        def parse(self, row: int) -> Sample:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        numbers(Wrong(LIBRARY), 1)


def test_a_parser_may_count_a_loss_in_its_own_words() -> None:
    source = Shelves(LIBRARY)
    source._log_drop("odd", "number %d", 3)
    assert source.ledger.counts == {"shelves": {"odd": 1}}
