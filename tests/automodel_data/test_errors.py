"""Losses are counted by dataset and reason, the first offenders are named, and a barren stretch of rows is known."""

import json
import logging

import pytest

from automodel_data import errors
from automodel_data.errors import DataError, DropLedger, FailureBudget, Harvest, SkipSample, merge_counts


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


def test_a_loss_of_many_samples_at_once_is_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    ledger = DropLedger()
    for group in range(5):
        ledger.drop("t2i", "unreadable row group", f"row group {group}", count=400)
    told = [record.getMessage() for record in caplog.records]
    assert [message.split("row group ")[2].split()[0] for message in told] == ["0", "1", "2", "4"]
    assert "lost 400 samples, unreadable row group [400 so far]" in told[0]


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


# the failure budget -----------------------------------------------------------------------------------------------


@pytest.fixture
def ledger() -> DropLedger:
    ledger = DropLedger()
    ledger.drop("t2i", "too long", "row 3")
    return ledger


@pytest.fixture
def budget(ledger: DropLedger) -> FailureBudget:
    return FailureBudget("t2i", ledger)


def read(budget: FailureBudget, good: int = 0, bad: int = 0) -> list[Harvest]:
    """Read good and bad rows; return the harvests of the good ones."""
    harvests = []
    for is_good in [True] * good + [False] * bad:
        if is_good:
            harvests.append(budget.harvest)
        budget.count_row(is_good)
    return harvests


BARREN = r"a whole pass over t2i gave no usable sample; lost: 1 x too long \(first: row 3\)"


def test_a_whole_pass_of_bad_rows_fails_with_the_reasons(budget: FailureBudget) -> None:
    read(budget, bad=4)
    with pytest.raises(DataError, match=BARREN):
        budget.end_pass(whole=True)


def test_a_part_of_a_pass_proves_nothing(budget: FailureBudget) -> None:
    read(budget, bad=4)
    budget.end_pass(whole=False)
    read(budget, good=1, bad=3)
    budget.end_pass(whole=True)


def test_a_pass_fails_when_its_last_sample_is_lost_however_late(budget: FailureBudget) -> None:
    first, second = read(budget, good=2, bad=1)
    budget.end_pass(whole=True)
    read(budget, good=2, bad=1)
    budget.lose(first)
    with pytest.raises(DataError, match=BARREN):
        budget.lose(second)


def test_losses_of_many_passes_at_once_do_not_add_up(budget: FailureBudget) -> None:
    bad = []
    for _ in range(20):
        bad += read(budget, good=2)[:1]
        budget.end_pass(whole=True)
    for harvest in bad:
        budget.lose(harvest)


def test_few_rows_whose_samples_found_no_room_prove_nothing_but_many_do(budget: FailureBudget) -> None:
    for _ in range(50):
        bad, unlucky = read(budget, good=2)
        budget.lose(bad)
        unlucky.given_up += 1
        budget.lose(unlucky)
        if budget.harvest.rows == 100:
            break
        budget.end_pass(whole=True)
    with pytest.raises(DataError, match=BARREN):
        budget.end_pass(whole=True)


def test_many_bad_rows_fail_before_their_pass_is_over(budget: FailureBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MOST_BARREN_ROWS", 10)
    read(budget, good=1, bad=9)
    with pytest.raises(DataError, match="10 rows of t2i gave no usable sample"):
        read(budget, bad=10)


def test_the_tail_of_a_long_pass_may_be_bad(budget: FailureBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MOST_BARREN_ROWS", 10)
    read(budget, good=10, bad=3)
    budget.end_pass(whole=True)
