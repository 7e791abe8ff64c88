"""Rows of a sharded list of paths, for ever, from a cursor: the read loop that every packed dataset shares."""

import logging
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from automodel_data.errors import DataError, DropLedger, SkipSample
from automodel_data.images import ImagePolicy
from automodel_data.multimodal.plan import Sample, SampleIndex
from automodel_data.placement import Placement
from automodel_data.randomness import Draw, Randomness

log = logging.getLogger(__name__)

Position = int | list[int]
"""Where a row lies, as ``data_indexes`` documents it for its source."""

MAX_LOST_IN_A_ROW = 10_000


class DistributedIterableDataset(IterableDataset):
    """A source: an ordered list of paths, shared out over ranks and workers, read row by row without end.

    A subclass lists its paths (``get_data_paths``), reads their rows (``read``, and ``read_row`` for one of them) and
    parses a row into a sample (``parse``). This class shuffles, shards, counts what is lost, keeps the cursor, and
    gives up with a ``DataError`` when a whole pass yields nothing.

    Args:
        dataset_name: Name in logs, in the ledger and in every sample's index.
        local_rank: Global rank of this process.
        world_size: Ranks in all.
        num_workers: Worker processes of the dataloader, 0 for none.
    """

    def __init__(self, dataset_name: str, local_rank: int = 0, world_size: int = 1, num_workers: int = 8) -> None:
        self.dataset_name = dataset_name
        self.local_rank = local_rank
        self.world_size = world_size
        self.num_workers = num_workers
        self.data_paths: Any = []  # a sequence, of the kind that get_data_paths lists
        self.data_paths_per_rank: Any = []
        self.data_status: Sequence[Position | None] | None = None
        self.ledger = DropLedger()
        self.rng = Randomness(0)
        self.images = ImagePolicy()
        self.worker_id: int | None = None
        self.cursor: Position | None = None
        self._kept_in_pass = 0
        self._lost_in_a_row = 0

    def adopt(self, rng: Randomness, images: ImagePolicy) -> None:
        """Draw from ``rng`` and open images by ``images`` from now on; the packer hands its own to every source."""
        self.rng = rng
        self.images = images

    # what a subclass provides -------------------------------------------------------------------------------------

    @abstractmethod
    def get_data_paths(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """List the paths, the units that ranks and workers share."""

    @abstractmethod
    def read(self, paths: Any, after: Position | None) -> Iterator[tuple[Position, Any]]:
        """Read the rows of ``paths`` once, in order, those behind the position ``after`` only."""

    @abstractmethod
    def read_row(self, paths: Any, position: Position) -> Any:
        """Read one row again."""

    @abstractmethod
    def parse(self, row: Any, position: Position, paths: Any) -> Sample:
        """Turn a row into a sample; raise ``SkipSample`` when it cannot be used."""

    def where(self, position: Position, paths: Any) -> str:
        """Name a row's file and place, for messages."""
        return f"row {position}"

    # sharding -----------------------------------------------------------------------------------------------------

    def set_epoch(self, seed: int = 42) -> None:
        """Sort and shuffle the paths with ``seed``, and take this rank's share.

        Raises:
            DataError: there are fewer paths than ranks, or than workers on this rank.
        """
        order = self.sorted_order()
        random.Random(seed).shuffle(order)
        self.data_paths = self.reordered(order)
        self.data_paths_per_rank = self._placement().rank_share(self.data_paths)
        self._check_share("rank", "ranks", self.data_paths, self.world_size)
        if self.num_workers > 0:
            self._check_share("worker", "workers on each rank", self.data_paths_per_rank, self.num_workers)

    def _check_share(self, one: str, many: str, paths: Sequence[Any], parts: int) -> None:
        share, rest = divmod(len(paths), parts)
        if share == 0:
            raise DataError(
                f"{self.dataset_name}: {len(paths)} paths cannot be shared by {parts} {many}; every {one} needs at "
                f"least one: use fewer {many}, raise num_used_data, or split the data into more files"
            )
        if rest:
            log.warning("%s: %d of %d paths are left out, they do not divide by %d %s", self.dataset_name, rest,
                        len(paths), parts, many)  # fmt: skip

    def sorted_order(self) -> list[int]:
        """Return the indexes that sort the paths; tuples sort by their first two fields."""
        paths = self.data_paths
        return sorted(range(len(paths)), key=lambda i: paths[i][:2] if isinstance(paths[i], tuple) else paths[i])

    def reordered(self, order: Sequence[int]) -> Sequence[Any]:
        """Return the paths in another order."""
        return [self.data_paths[i] for i in order]

    def get_data_paths_per_worker(self) -> tuple[Sequence[Any], int]:
        """Return the paths of the worker that calls, and its id; without workers all of the rank's, and 0."""
        info = get_worker_info()
        if info is None:
            return self.data_paths_per_rank, 0
        worker = info.id if self.worker_id is None else self.worker_id
        return self._placement(worker, info.num_workers).worker_share(self.data_paths_per_rank), worker

    def _placement(self, worker: int = 0, num_workers: int = 0) -> Placement:
        return Placement(rank=self.local_rank, world_size=self.world_size, worker=worker, num_workers=num_workers)

    # the cursor ---------------------------------------------------------------------------------------------------

    def set_data_status(self, data_status: Sequence[Position | None] | None) -> None:
        """Resume behind these positions, one for each worker."""
        self.data_status = data_status

    def _get_worker_data_status(self, worker_id: int) -> Position | None:
        return None if self.data_status is None else self.data_status[worker_id]

    def _set_worker_resume_data_status(self, worker_id: int, status: Position | None) -> None:
        known = list(self.data_status or [])
        self.data_status = known + [None] * (worker_id + 1 - len(known))
        self.data_status[worker_id] = status

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last row read and what was lost so far."""
        return {"cursor": self.cursor, "drops": self.ledger.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue behind a saved position when next iterated."""
        self.cursor = state_dict["cursor"]
        self.ledger.load_state_dict(state_dict["drops"])
        _, worker_id = self.get_data_paths_per_worker()
        self._set_worker_resume_data_status(worker_id, self.cursor)

    def restart(self, worker_id: int | None) -> None:
        """Forget what was read and lost, and read as the worker of that number (None: as torch numbers it)."""
        self.worker_id = worker_id
        self.cursor = None
        self.ledger = DropLedger()

    # the read loop ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Sample]:
        """Yield samples for ever; a resume position holds for the first pass only.

        Raises:
            DataError: a whole pass, or ``MAX_LOST_IN_A_ROW`` rows in a row, gave nothing.
        """
        paths, worker_id = self.get_data_paths_per_worker()
        after = self._get_worker_data_status(worker_id)
        passes = 0
        while True:
            self._kept_in_pass = 0
            for position, row in self.read(paths, after):
                self.cursor = position
                sample = self._parse_or_count(row, position, paths, worker_id)
                if sample is not None:
                    self._kept_in_pass += 1
                    yield sample
            passes += 1
            if after is None and self._kept_in_pass <= 0:
                raise DataError(f"a whole pass over {self.dataset_name} gave no usable sample; {self._losses()}")
            log.info("%s: worker %d of rank %d has read its %d paths %d times", self.dataset_name, worker_id,
                     self.local_rank, len(paths), passes)  # fmt: skip
            after = self.cursor = None

    def restore(self, position: Position, draws: Sequence[Draw]) -> Sample:
        """Parse a row again with the decisions drawn for it then.

        Raises:
            DataError: the row cannot be used any more.
        """
        paths, worker_id = self.get_data_paths_per_worker()
        try:
            with self.rng.replaying(draws):
                sample = self.parse(self.read_row(paths, position), position, paths)
        except SkipSample as error:
            raise DataError(
                f"{self.dataset_name}: a buffered sample cannot be restored, the data changed: "
                f"{self.where(position, paths)}: {error}"
            ) from error
        return self._signed(sample, position, worker_id, draws)

    def reject(self, sample: Sample, reason: str, detail: str = "") -> None:
        """Count a sample that was yielded but can never be used."""
        self._kept_in_pass -= 1
        self.lose(sample, reason, detail)

    def lose(self, sample: Sample, reason: str, detail: str = "") -> None:
        """Count a good sample that was given up."""
        assert sample.index is not None
        paths, _ = self.get_data_paths_per_worker()
        self.ledger.drop(self.dataset_name, reason, self.where(sample.index.position, paths), detail)

    def lose_rows(self, reason: str, where: str, detail: str, count: int) -> None:
        """Count rows that could not even be read."""
        self.ledger.drop(self.dataset_name, reason, where, detail, count)

    def _log_drop(self, reason: str, message: str, *args: Any, every: int = 100, exc_info: bool = False) -> None:
        """Count a lost sample and log the first ones; for parsers that prefer this over raising ``SkipSample``."""
        self.ledger.drop(self.dataset_name, reason, detail=message % args if args else message)

    def _parse_or_count(self, row: Any, position: Position, paths: Sequence[Any], worker_id: int) -> Sample | None:
        try:
            with self.rng.recording() as draws:
                sample = self.parse(row, position, paths)
        except SkipSample as skipped:
            self.ledger.drop(self.dataset_name, skipped.reason, self.where(position, paths), skipped.detail)
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= MAX_LOST_IN_A_ROW:
                raise DataError(
                    f"{self._lost_in_a_row} rows of {self.dataset_name} in a row were lost; {self._losses()}"
                ) from skipped
            return None
        self._lost_in_a_row = 0
        return self._signed(sample, position, worker_id, draws)

    def _signed(self, sample: Sample, position: Position, worker_id: int, draws: Sequence[Draw]) -> Sample:
        sample.index = SampleIndex(position=position, worker_id=worker_id, dataset_name=self.dataset_name)
        sample.draws = list(draws)
        return sample

    def _losses(self) -> str:
        return self.ledger.describe(self.dataset_name)
