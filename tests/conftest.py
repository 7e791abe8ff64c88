from pathlib import Path

import pytest

from recipes.demo_data import DemoDataConfig, ensure_demo_data


@pytest.fixture(scope="session")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sound demo rows, the fewest that there can be: 16 of each kind to train on, 8 held out."""
    few = DemoDataConfig(
        t2i_rows=16, edit_rows=16, vlm_rows=16, pairs=0, heldout_rows=8, min_edge=64, max_edge=96, oddities=False
    )
    return ensure_demo_data(tmp_path_factory.mktemp("few") / "demo", few)
