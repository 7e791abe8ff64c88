from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.recipes.ranks import finished, spawn


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Run ``function(folder)`` of a test file on several real ranks; return every rank's result."""

    def run(function: Callable[[Path], Any], ranks: int = 2) -> list[Any]:
        folder = tmp_path_factory.mktemp(function.__name__)
        driver, file = Path(__file__).with_name("on_ranks.py"), function.__code__.co_filename
        finished(spawn(driver, file, function.__name__, folder, ranks=ranks))
        return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]

    return run
