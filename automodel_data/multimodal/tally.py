"""What the rows of one source gave: samples or losses, each row once, and an end where there are only losses."""

from collections.abc import Iterator
from contextlib import contextmanager

from automodel_data.errors import DropLedger, FailureBudget, Harvest, SkipSample


class Tally:
    """Counts a source's rows and losses; logs the first of these, and gives up on a source that gives nothing.

    Args:
        dataset: Name of the source in the ledger and in logs.
    """

    def __init__(self, dataset: str) -> None:
        self.ledger = DropLedger()
        self._dataset = dataset
        self._budget = FailureBudget(dataset, self.ledger)
        self._told: list[SkipSample] | None = None

    def keep_row(self) -> Harvest:
        """Count a row that gave a sample; return the harvest that the sample belongs to."""
        harvest = self._budget.harvest
        self._budget.count_row(good=True)
        return harvest

    def lose_row(self, skipped: SkipSample, where: str) -> None:
        """Count a row that gave no sample.

        Raises:
            DataError: very many rows gave none.
        """
        self.lose_rows(skipped.reason, where, skipped.detail, 1)
        self._budget.count_row(good=False)

    def lose_sample(self, harvest: Harvest, reason: str, where: str, detail: str) -> None:
        """Count a sample of ``harvest`` that can never be used after all.

        Raises:
            DataError: it was the last hope of its pass.
        """
        self.lose_rows(reason, where, detail, 1)
        self._budget.lose(harvest)

    def lose_rows(self, reason: str, where: str, detail: str, count: int) -> None:
        """Count rows that could not even be read."""
        self.ledger.drop(self._dataset, reason, where, detail, count)

    def tell(self, loss: SkipSample) -> None:
        """Count a loss in a parser's own words, unless somebody is ``listening``."""
        if self._told is None:
            self.lose_rows(loss.reason, "", loss.detail, 1)
        else:
            self._told.append(loss)

    @contextmanager
    def listening(self) -> Iterator[list[SkipSample]]:
        """Collect what is told inside the block, uncounted: what becomes of its row is yet to be seen."""
        outer, self._told = self._told, []
        try:
            yield self._told
        finally:
            self._told = outer

    def end_pass(self, whole: bool) -> None:
        """Judge a pass (see ``FailureBudget``).

        Raises:
            DataError: it was a whole one and gave nothing.
        """
        self._budget.end_pass(whole)
