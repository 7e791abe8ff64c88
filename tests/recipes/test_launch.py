"""What ranks agree on before they know each other."""

import logging
import re
from pathlib import Path

import pytest

from recipes.launch import News, agreed_stamp, remove_traces


def test_one_process_takes_its_own_time(monkeypatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", agreed_stamp())


@pytest.mark.parametrize(("name", "stays"), [("rank1.log", False), ("metrics.jsonl", True), ("mine.txt", True)])
def test_only_the_directory_of_a_run_that_wrote_nothing_is_removed(name: str, stays: bool, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    (directory / ".hydra").mkdir(parents=True)
    for file in (".lock", ".hydra/config.yaml", "rank0.log", name):
        (directory / file).touch()
    remove_traces(directory)
    assert directory.exists() is stays


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
