"""What goes wrong with data: an error for the user, a skip for a row, and the ledger of what was lost."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

MOST_BARREN_ROWS = 10_000
_FEW_ROWS = 100
_LOGGED_PER_REASON = 3
_LOGGED_AGAIN_EVERY = 1000


class DataError(ValueError):
    """The data or its configuration cannot feed a run; the message names the culprit and the way out."""


class SkipSample(Exception):  # noqa: N818 - a row's way out, not an error of the program
    """This row cannot be used.

    Args:
        reason: Short stable name under which the loss is counted, e.g. ``"undecodable image"``.
        detail: What exactly was wrong, for the log.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class DropLedger:
    """Counts lost samples by dataset and reason, and logs the first few of each with file and row."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._first: dict[tuple[str, str], list[str]] = {}

    def drop(self, dataset: str, reason: str, where: str = "", detail: str = "", count: int = 1) -> None:
        """Count ``count`` samples of ``dataset`` as lost; ``where`` names the file and row."""
        reasons = self._counts.setdefault(dataset, {})
        before = reasons.get(reason, 0)
        reasons[reason] = seen = before + count
        first = self._first.setdefault((dataset, reason), [])
        is_new = len(first) < _LOGGED_PER_REASON
        if is_new:
            first.append(f"{where} {detail}".strip())
        if is_new or seen // _LOGGED_AGAIN_EVERY > before // _LOGGED_AGAIN_EVERY:
            what = "a sample" if count == 1 else f"{count} samples"
            is_last = is_new and len(first) == _LOGGED_PER_REASON
            note = " (further ones are counted, not logged)" if is_last else ""
            log.warning("%s: lost %s, %s [%d so far] %s %s%s", dataset, what, reason, seen, where, detail, note)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Return ``{dataset: {reason: samples lost}}``, a copy."""
        return {dataset: dict(reasons) for dataset, reasons in self._counts.items()}

    def describe(self, dataset: str) -> str:
        """Return the commonest reasons of one dataset's losses with their first offenders, as one line."""
        reasons = sorted(self._counts.get(dataset, {}).items(), key=lambda item: -item[1])
        if not reasons:
            return "no row was lost, there were none"
        parts = [
            f"{count} x {reason} (first: {'; '.join(self._first.get((dataset, reason), ['?']))})"
            for reason, count in reasons[:_LOGGED_PER_REASON]
        ]
        return "lost: " + ", ".join(parts)

    def total(self) -> int:
        """Return how many samples were lost in all."""
        return sum(sum(reasons.values()) for reasons in self._counts.values())

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Return the counts as plain values."""
        return self.counts

    def load_state_dict(self, state: Mapping[str, Mapping[str, int]]) -> None:
        """Replace the counts by saved ones."""
        self._counts = {dataset: dict(reasons) for dataset, reasons in state.items()}


@dataclass(eq=False, slots=True)
class Harvest:
    """What a stretch of rows gave: the rows read, how many of their samples are not lost, and how many were given up.

    ``closed`` says which rows they were, once all are read.
    """

    rows: int = 0
    good: int = 0
    given_up: int = 0
    closed: str = ""
    starts_inside_a_pass: bool = False


class FailureBudget:
    """Gives up on a source that gives nothing, in a whole pass or in ``MOST_BARREN_ROWS`` rows.

    Samples are lost late, too: by the packer, or when their images are decoded. So each holds on to the harvest that it
    belongs to, and a closed one has failed as soon as none of its samples is left.
    """

    def __init__(self, dataset: str, ledger: DropLedger) -> None:
        self.harvest = Harvest()
        self._dataset = dataset
        self._ledger = ledger

    def count_row(self, good: bool) -> None:
        """Count a row that was read into the harvest under way."""
        self.harvest.rows += 1
        self.harvest.good += good
        if self.harvest.rows == MOST_BARREN_ROWS:
            self._close(f"{MOST_BARREN_ROWS} rows of")
            self.harvest = Harvest(starts_inside_a_pass=True)

    def end_pass(self, whole: bool) -> None:
        """Judge a pass; a part of one proves nothing, and few rows do not where samples were lost for want of room."""
        harvest = self.harvest
        if whole and not harvest.starts_inside_a_pass:
            if harvest.given_up and harvest.rows < _FEW_ROWS:
                return  # this harvest goes on in the next pass
            self._close("a whole pass over")
        self.harvest = Harvest()

    def lose(self, harvest: Harvest) -> None:
        """Take a sample out of its harvest."""
        harvest.good -= 1
        self._check(harvest)

    def _close(self, rows: str) -> None:
        self.harvest.closed = rows
        self._check(self.harvest)

    def _check(self, harvest: Harvest) -> None:
        if harvest.closed and harvest.good == 0:
            losses = self._ledger.describe(self._dataset)
            raise DataError(f"{harvest.closed} {self._dataset} gave no usable sample; {losses}")


def merge_counts(*tables: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Add up tables of ``{dataset: {reason: count}}``, e.g. those of several workers."""
    merged: dict[str, dict[str, int]] = {}
    for table in tables:
        for dataset, reasons in table.items():
            into = merged.setdefault(dataset, {})
            for reason, count in reasons.items():
                into[reason] = into.get(reason, 0) + count
    return merged
