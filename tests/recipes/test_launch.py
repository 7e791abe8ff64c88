"""What ranks agree on before they know each other."""

import logging
import re

import pytest

from recipes.launch import News, agreed_stamp


def test_one_process_takes_its_own_time(monkeypatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", agreed_stamp())


@pytest.mark.parametrize(
    ("name", "level", "shown"),
    [
        ("recipes.job", logging.INFO, True),
        ("automodel_data.multimodal.loader", logging.INFO, False),
        ("automodel_data.errors", logging.WARNING, True),
    ],
)
def test_the_console_shows_the_runs_own_lines_and_all_warnings(name: str, level: int, shown: bool) -> None:
    assert News().filter(logging.LogRecord(name, level, "", 0, "", (), None)) is shown
