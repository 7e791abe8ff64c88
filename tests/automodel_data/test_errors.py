"""Losses are counted by dataset and reason, the first offenders are named, and a barren stretch of rows is known."""

import json
import logging

import pytest

from automodel_data.errors import DataError, DropLedger, Harvest, SkipSample, merge_counts


def test_a_data_error_is_a_value_error() -> None:
    assert issubclass(DataError, ValueError)


@pytest.mark.parametrize(("detail", "text"), [("", "broken JSON"), ("line 3", "broken JSON: line 3")])
def test_a_skipped_row_says_why(detail: str, text: str) -> None:
    skipped = SkipSample("broken JSON", detail)
    assert (str(skipped), skipped.reason, skipped.detail) == (text, "broken JSON", detail)


def test_losses_are_counted_by_dataset_and_reason() -> None:
    ledger = DropLedger()
    ledger.drop("t2i", "missing image", "a.parquet, row 3")
    ledger.drop("t2i", "unreadable row group", "a.parquet", count=40)
    ledger.drop("vlm", "missing image", "b.jsonl:7")
    assert ledger.counts == {"t2i": {"missing image": 1, "unreadable row group": 40}, "vlm": {"missing image": 1}}
    assert ledger.total() == 42


def test_the_counts_are_a_copy() -> None:
    ledger = DropLedger()
    ledger.drop("t2i", "missing image")
    ledger.counts["t2i"]["missing image"] = 9
    assert ledger.counts == {"t2i": {"missing image": 1}}


def test_the_commonest_reasons_come_first_with_their_first_three_offenders() -> None:
    ledger = DropLedger()
    ledger.drop("t2i", "missing image", "row 1", "a.jpg")
    for row in range(5):
        ledger.drop("t2i", "too long", f"row {row}")
    assert ledger.describe("t2i") == (
        "lost: 5 x too long (first: row 0; row 1; row 2), 1 x missing image (first: row 1 a.jpg)"
    )
    assert ledger.describe("vlm") == "no row was lost, there were none"


def test_the_first_three_losses_of_a_reason_are_logged_and_then_every_thousandth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = DropLedger()
    with caplog.at_level(logging.WARNING):
        for row in range(2001):
            ledger.drop("t2i", "missing image", f"row {row}")
    told = [record.getMessage() for record in caplog.records]
    assert [message.split("row ")[1].split()[0] for message in told] == ["0", "1", "2", "999", "1999"]
    assert "further ones are counted, not logged" in told[2]


def test_counts_survive_a_save_as_json() -> None:
    ledger = DropLedger()
    ledger.drop("t2i", "missing image", count=3)
    other = DropLedger()
    other.drop("vlm", "broken JSON")
    other.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    other.drop("t2i", "missing image")
    assert other.counts == {"t2i": {"missing image": 4}}


def test_tables_of_several_workers_add_up() -> None:
    tables = [{"a": {"x": 1, "y": 2}}, {}, {"a": {"y": 3}, "b": {"z": 4}}]
    assert merge_counts(*tables) == {"a": {"x": 1, "y": 5}, "b": {"z": 4}}


@pytest.mark.parametrize(
    ("closed", "good", "failed"),
    [("", 0, False), ("a whole pass over", 1, False), ("a whole pass over", 0, True)],
)
def test_rows_have_failed_when_all_are_read_and_no_sample_is_left(closed: str, good: int, failed: bool) -> None:
    assert Harvest(good=good, closed=closed).failed == failed
