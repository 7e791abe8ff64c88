"""Reports on tiny demo rows, whole or with a fault in a copy of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from recipes import config, launch
from recipes.demo_data import DemoDataConfig, ensure_demo_data
from recipes.validate.config import ValidateRun
from recipes.validate.report import Report
from recipes.validate.run import validate

CONF = Path(__file__).parents[3] / "conf"
ROWS = 16


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    few = DemoDataConfig(
        t2i_rows=ROWS, edit_rows=ROWS, vlm_rows=ROWS, pairs=0, heldout_rows=8, min_edge=64, max_edge=96, oddities=False
    )
    return ensure_demo_data(tmp_path_factory.mktemp("data") / "demo", few)


@pytest.fixture
def copied(rows: Path, tmp_path: Path) -> Path:
    """Rows to break."""
    return shutil.copytree(rows, tmp_path / "demo")


@pytest.fixture(scope="session")
def run() -> Callable[..., ValidateRun]:
    """Compose a run as ``scripts/validate.py`` does."""

    def composed(*overrides: str) -> ValidateRun:
        config.register(ValidateRun)
        launch.register_resolvers()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loaded, _ = config.load(compose("validate", list(overrides)), ValidateRun)
        config.register()
        return loaded

    return composed


@pytest.fixture(scope="session")
def report_on(run: Callable[..., ValidateRun]) -> Callable[..., Report]:
    """Validate rows in a folder, every row of them, with more overrides."""

    def report(root: Path, *overrides: str) -> Report:
        counts = [
            f"sources.num_used_data.{split}.vlm_sft=[{lines}]" for split, lines in (("train", ROWS), ("heldout", 8))
        ]
        where = [f"sources.root={root}", "sources.prepare=null", *counts]
        return validate(run(*where, "validate.rows=all", "validate.packs=2", *overrides))

    return report
