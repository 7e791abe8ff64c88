"""Reports on a few rows, sound or with a fault in a copy of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recipes.validate.config import ValidateRun
from recipes.validate.report import Report
from recipes.validate.run import validate
from tests.recipes.composing import composed, rows_in


@pytest.fixture
def copied(few_rows: Path, tmp_path: Path) -> Path:
    """Rows to break."""
    return shutil.copytree(few_rows, tmp_path / "demo")


@pytest.fixture(scope="session")
def report_on() -> Callable[..., Report]:
    """Validate rows in a folder, every row of them."""

    def report(root: Path, *overrides: str) -> Report:
        every = ["validate.rows=all", "validate.packs=2"]
        return validate(composed("validate", ValidateRun, *rows_in(root), *every, *overrides))

    return report
