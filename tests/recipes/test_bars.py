"""How far a long loop is."""

import logging

import pytest

from recipes.bars import Bar, Pace, watched


class Clock:
    """Goes on by ``seconds`` each time it is looked at."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def test_one_slow_step_changes_what_is_left_by_its_share_of_the_last_steps() -> None:
    pace = Pace()
    for step in range(1, 51):
        pace.add(step, 2.0 * step)
    assert pace.seconds_left(100) == pytest.approx(200)
    pace.add(51, 2.0 * 51 + 20)
    assert 200 < pace.seconds_left(100) < 250
    for step in range(52, 102):
        pace.add(step, 2.0 * step + 20)
    assert pace.seconds_left(100) == pytest.approx(200), "it is forgotten"


def test_a_pace_needs_two_steps_and_steps_may_be_skipped() -> None:
    pace = Pace()
    pace.add(10, 5.0)
    assert pace.seconds_left(3) is None
    pace.add(20, 10.0)
    assert pace.seconds_left(3) == 1.5


def test_without_a_terminal_a_loop_is_told_in_a_few_lines(caplog) -> None:
    caplog.set_level(logging.INFO)
    bar = Bar(total=100, what="payloads", every_seconds=40, clock=Clock(seconds=1.0))
    assert list(watched(range(100), bar)) == list(range(100))
    assert caplog.messages == [
        "payloads: 40 of 100, 60 s left",
        "payloads: 80 of 100, 20 s left",
        "payloads: 100 of 100 in 101 s",
    ]


def test_rows_may_be_passed_over_and_other_counts_shown(caplog) -> None:
    caplog.set_level(logging.INFO)
    with Bar(total=10, what="rows", every_seconds=0, clock=Clock(seconds=2.0)) as bar:
        bar.move_to(4, encoded=1, lost=2)
    assert caplog.messages == [
        "rows: 4 of 10, 3 s left, encoded 1, lost 2",
        "rows: 4 of 10 in 4 s, encoded 1, lost 2",
    ]


def test_ranks_that_do_not_lead_show_nothing(caplog, capsys) -> None:
    caplog.set_level(logging.INFO)
    assert list(watched("abc", Bar(total=3, what="rows", shown=False, every_seconds=0))) == ["a", "b", "c"]
    assert caplog.messages == []
    assert capsys.readouterr().err == ""


def test_on_a_terminal_it_is_a_bar(monkeypatch, capsys, caplog) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Bar(total=3, what="rows") as bar:
        bar.move_to(1, lost=1)
        bar.move_to(3, lost=2)
    shown = capsys.readouterr().err
    assert "rows: 100%" in shown
    assert "3/3" in shown
    assert "lost=2" in shown
    assert caplog.messages == []
