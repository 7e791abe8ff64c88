"""The worker processes of a dataloader: how many there may be, and what one does before its first batch."""

import signal

from automodel_data.errors import DataError


def check_workers(num_workers: int, prefetch_factor: int) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        DataError: naming the key, its value and the rule.
    """
    if num_workers < 0:
        raise DataError(f"num_workers ({num_workers}) must not be negative; 0 loads in the process itself")
    if prefetch_factor < 1:
        raise DataError(f"prefetch_factor ({prefetch_factor}) must be at least 1: batches read ahead by each worker")


def leave_signals_to_the_trainer(worker_id: int) -> None:
    """Let SIGINT and the first SIGTERM pass (a ``worker_init_fn``).

    A terminal, ``timeout`` and cluster schedulers signal all processes of a run at once. The trainer then needs batches
    to end its step and save; it ends its workers itself. A second SIGTERM ends the worker.
    """

    def let_pass(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, let_pass)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
