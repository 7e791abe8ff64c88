"""Processes that are each other's ranks, started without torchrun: half the time to start."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def spawn(*arguments: str | Path, ranks: int = 2) -> list[subprocess.Popen[str]]:
    """Start ``python ARGUMENTS`` as rank 0, 1, ...; standard error is kept for whoever waits."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
    }
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def finished(processes: list[subprocess.Popen[str]], seconds: float = 400) -> None:
    """Wait until all have ended well."""
    errors = [process.communicate(timeout=seconds)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(errors)
