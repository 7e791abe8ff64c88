"""What a dataloader's worker process does before its first batch."""

import signal


def leave_signals_to_the_trainer(worker_id: int) -> None:
    """Let SIGINT and the first SIGTERM pass (a ``worker_init_fn``).

    A terminal, ``timeout`` and cluster schedulers signal all processes of a run at once. The trainer then needs batches
    to end its step and save; it ends its workers itself. A second SIGTERM ends the worker.
    """

    def let_pass(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, let_pass)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
