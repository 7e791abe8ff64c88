"""Signals to every process of a run leave its data workers alive, until the trainer or a second one ends them."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

import pytest
from torch.utils.data import DataLoader, IterableDataset

from automodel_data.workers import leave_signals_to_the_trainer


class Pids(IterableDataset):
    """Yields the number of the process that reads."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield os.getpid()


def pids(workers: int) -> Iterator[int]:
    return iter(
        DataLoader(
            Pids(),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=1,
            worker_init_fn=leave_signals_to_the_trainer,
        )
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_go_on_when_all_processes_are_signalled(number: signal.Signals) -> None:
    batches = pids(2)
    workers = {next(batches) for _ in range(2)}
    assert len(workers) == 2
    for worker in workers:
        os.kill(worker, number)
    assert {next(batches) for _ in range(20)} == workers


def test_a_second_termination_ends_a_worker() -> None:
    batches = pids(1)
    worker = next(batches)
    with pytest.raises(RuntimeError, match="killed by signal: Terminated"):
        for _ in range(10):
            os.kill(worker, signal.SIGTERM)
            time.sleep(0.2)
            next(batches)


def test_a_loader_that_ends_leaves_no_worker_behind_even_after_a_signal() -> None:
    batches = pids(2)
    workers = {next(batches) for _ in range(2)}
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    del batches
    assert not workers & {child.pid for child in multiprocessing.active_children()}
