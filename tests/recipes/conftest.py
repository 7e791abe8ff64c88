import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Run ``function(folder)`` of a test file on several real ranks; return every rank's result."""

    def run(function: Callable[[Path], Any], ranks: int = 2) -> list[Any]:
        folder = tmp_path_factory.mktemp(function.__name__)
        driver, file = Path(__file__).with_name("on_ranks.py"), function.__code__.co_filename
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        done = subprocess.run(
            [sys.executable, *command, driver, file, function.__name__, folder],
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]

    return run
