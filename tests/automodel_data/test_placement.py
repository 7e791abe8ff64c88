"""Ranks and workers share a list of paths: equal stretches, each path read by one reader at most."""

import pytest

from automodel_data.placement import Placement, Stretch, cut, left_behind, left_out, walk


def test_the_seed_tells_every_worker_of_every_rank_apart() -> None:
    seeds = [
        Placement(rank=rank, world_size=3, worker=worker, num_workers=2).seed(7)
        for rank in range(3)
        for worker in range(2)
    ]
    assert seeds == [(7 * 3 + rank) * 2 + worker for rank in range(3) for worker in range(2)]


def test_without_workers_the_seed_is_that_of_one_worker() -> None:
    assert Placement(rank=1, world_size=2).seed(4396) == 4396 * 2 + 1


def test_the_seed_has_32_bits() -> None:
    assert Placement(rank=3, world_size=4, worker=1, num_workers=2).seed(2**31) == ((2**31 * 4 + 3) * 2 + 1) % 2**32


@pytest.mark.parametrize(("rank", "share"), [(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6, 7, 8])])
def test_ranks_read_equal_stretches_and_leave_a_remainder(rank: int, share: list[int]) -> None:
    assert list(Placement(rank=rank, world_size=3).rank_share(11)) == share


def test_workers_read_their_stretch_from_its_end() -> None:
    placements = [Placement(rank=1, world_size=2, worker=worker, num_workers=2) for worker in range(2)]
    assert [list(placement.worker_share(10)) for placement in placements] == [[6, 5], [8, 7]]


def test_without_workers_a_rank_reads_its_whole_stretch_in_order() -> None:
    assert list(Placement(rank=1, world_size=2).worker_share(10)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("paths", [1, 7, 24, 25])
@pytest.mark.parametrize(("world_size", "num_workers"), [(1, 0), (2, 0), (3, 2), (2, 5)])
def test_every_path_is_read_once_or_left_out(paths: int, world_size: int, num_workers: int) -> None:
    read = [
        path
        for rank in range(world_size)
        for worker in range(max(1, num_workers))
        for path in Placement(rank=rank, world_size=world_size, worker=worker, num_workers=num_workers).worker_share(
            paths
        )
    ]
    spare = [path for stretch in left_out(paths, world_size, num_workers) for path in stretch.indices]
    assert sorted(read + spare) == list(range(paths))


STRETCHES = [Stretch(start=3, stop=6, after=[4]), Stretch(start=9, stop=6, step=-1)]


def test_a_walk_names_each_path_and_where_to_start_in_it() -> None:
    assert list(walk(STRETCHES)) == [(3, [4]), (4, None), (5, None), (9, None), (8, None), (7, None)]


@pytest.mark.parametrize("number", range(7))
def test_a_cut_divides_the_walk(number: int) -> None:
    before, behind = cut(STRETCHES, number)
    whole = list(walk(STRETCHES))
    assert (list(walk(before)), list(walk(behind))) == (whole[:number], whole[number:])


def test_what_is_left_behind_a_row_starts_in_its_path() -> None:
    assert list(walk(left_behind(STRETCHES, 4, [2, 7]))) == [(8, [2, 7]), (7, None)]


def test_what_is_left_behind_a_path_that_is_a_row_starts_with_the_next_path() -> None:
    assert list(walk(left_behind(STRETCHES, 3, []))) == [(8, None), (7, None)]
