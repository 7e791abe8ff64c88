"""Pages of a few rows, and the batches that they show."""

from collections.abc import Callable
from pathlib import Path

import pytest

from recipes.preview.config import PreviewRun
from recipes.preview.run import preview
from recipes.preview.views import PageView
from tests.recipes.composing import composed, rows_in


@pytest.fixture(scope="session")
def page_of(few_rows: Path) -> Callable[..., PageView]:
    """Describe two packs of the few rows."""

    def page(*overrides: str) -> PageView:
        small = ["preview.packs=2", "data.num_workers=0"]
        return preview(composed("preview", PreviewRun, *rows_in(few_rows), *small, *overrides))

    return page


@pytest.fixture(scope="session")
def page(page_of: Callable[..., PageView]) -> PageView:
    return page_of()
