"""Rows of a sharded list of paths, for ever, from a cursor: the read loop that every packed dataset shares."""

import logging
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from torch.utils.data import IterableDataset, get_worker_info

from automodel_data.errors import DataError, DropLedger, FailureBudget, SkipSample
from automodel_data.images import ImagePolicy
from automodel_data.multimodal.plan import Position, Sample, SampleIndex, join_position, split_position
from automodel_data.placement import Placement, Stretch, walk
from automodel_data.randomness import Draw, Randomness

log = logging.getLogger(__name__)


class DistributedIterableDataset(IterableDataset):
    """A source: an ordered list of paths, shared out over ranks and workers, read row by row without end.

    A subclass lists its paths (``get_data_paths``), reads the rows of one (``read_path``, and ``read_row`` for one of
    them) and parses a row into a sample (``parse``). This class shuffles, shards, counts what is lost, keeps the
    cursor, and gives up with a ``DataError`` when a whole pass yields nothing.

    A row's place in its path is a list of numbers: none where a path is a row, the row's number in a row group, or the
    row group's number and the row's.

    Args:
        dataset_name: Name in logs, in the ledger and in every sample's index.
        local_rank: Global rank of this process.
        world_size: Ranks in all.
        num_workers: Worker processes of the dataloader, 0 for none.
    """

    transform_is_for_vit: ClassVar[bool] = False
    """Whether ``image_transform_args`` makes images for the understanding tower, not for the generation side."""

    def __init__(self, dataset_name: str, local_rank: int = 0, world_size: int = 1, num_workers: int = 8) -> None:
        self.dataset_name = dataset_name
        self.local_rank = local_rank
        self.world_size = world_size
        self.num_workers = num_workers
        self.data_paths: Any = []  # a sequence, of the kind that get_data_paths lists
        self.data_paths_per_rank: Any = []
        self.data_status: list[Position | None] | None = None
        self.rng = Randomness(0)
        self.images = ImagePolicy()
        self.restart(None)

    def restart(self, worker_id: int | None) -> None:
        """Forget what was read and lost, and read as the worker of that number (None: as torch numbers it)."""
        self.worker_id = worker_id
        self.cursor: Position | None = None
        self.passes = 0
        self.dealt: list[list[Stretch]] = []
        self.ledger = DropLedger()
        self._budget = FailureBudget(self.dataset_name, self.ledger)

    def adopt(self, rng: Randomness, images: ImagePolicy) -> None:
        """Draw from ``rng`` and open images by ``images`` from now on; the packer hands its own to every source."""
        self.rng = rng
        self.images = images

    # what a subclass provides -------------------------------------------------------------------------------------

    @abstractmethod
    def get_data_paths(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """List the paths, the units that ranks and workers share."""

    @abstractmethod
    def read_path(self, path: Any, after: list[int] | None) -> Iterator[tuple[list[int], Any]]:
        """Yield ``(place, row)`` for the rows of one path, those behind the place ``after`` only."""

    @abstractmethod
    def read_row(self, path: Any, place: list[int]) -> Any:
        """Read one row again; raise ``SkipSample`` when it is not there any more."""

    @abstractmethod
    def parse(self, row: Any) -> Sample:
        """Turn a row into a sample; raise ``SkipSample`` when it cannot be used."""

    def where(self, path_index: int, place: list[int]) -> str:
        """Name a row's file and place, for messages."""
        return f"{self.data_paths[path_index]}, row {place}"

    def locate(self, position: Position, worker_id: int) -> str:
        """Name the file and row of a documented position, of a worker of this rank that reads its usual share."""
        number, place = split_position(position)
        reader = Placement(
            rank=self.local_rank, world_size=self.world_size, worker=worker_id, num_workers=self.num_workers
        )
        return self.where(reader.worker_share(len(self.data_paths))[number], place)

    # sharding -----------------------------------------------------------------------------------------------------

    def set_epoch(self, seed: int = 42) -> None:
        """Sort and shuffle the paths with ``seed``, and take this rank's share.

        Raises:
            DataError: there are fewer paths than ranks, or than workers on this rank.
        """
        order = self.sorted_order()
        random.Random(seed).shuffle(order)
        self.data_paths = self.reordered(order)
        share = self._placement().rank_share(len(self.data_paths))
        self.data_paths_per_rank = self.reordered(share)
        self._check_share("rank", "ranks", len(self.data_paths), self.world_size)
        if self.num_workers > 0:
            self._check_share("worker", "workers on each rank", len(share), self.num_workers)

    def _check_share(self, one: str, many: str, paths: int, parts: int) -> None:
        share, rest = divmod(paths, parts)
        if share == 0:
            raise DataError(
                f"{self.dataset_name}: {paths} paths cannot be shared by {parts} {many}; every {one} needs at least "
                f"one: use fewer {many}, raise num_used_data, or split the data into more files"
            )
        if rest:
            log.warning(
                "%s: %d of %d paths are left out, they do not divide by %d %s",
                self.dataset_name, rest, paths, parts, many,
            )  # fmt: skip

    def sorted_order(self) -> list[int]:
        """Return the indexes that sort the paths; tuples sort by their first two fields."""
        paths = self.data_paths
        return sorted(range(len(paths)), key=lambda i: paths[i][:2] if isinstance(paths[i], tuple) else paths[i])

    def reordered(self, order: Sequence[int]) -> Sequence[Any]:
        """Return the paths of these indexes, in that order."""
        return [self.data_paths[i] for i in order]

    def get_data_paths_per_worker(self) -> tuple[Sequence[Any], int]:
        """Return the paths of the worker that calls, and its id; without workers all of the rank's, and 0."""
        placement = self._placement()
        return self.reordered(placement.worker_share(len(self.data_paths))), placement.worker

    def _placement(self) -> Placement:
        """Return where this process stands; outside worker processes it reads for the whole rank."""
        info = get_worker_info()
        if info is None:
            return Placement(rank=self.local_rank, world_size=self.world_size)
        worker = info.id if self.worker_id is None else self.worker_id
        return Placement(rank=self.local_rank, world_size=self.world_size, worker=worker, num_workers=info.num_workers)

    # the cursor ---------------------------------------------------------------------------------------------------

    def set_data_status(self, data_status: Sequence[Position | None] | None) -> None:
        """Start behind these positions, one for each worker."""
        self.data_status = None if data_status is None else list(data_status)

    def _get_worker_data_status(self, worker_id: int) -> Position | None:
        return None if self.data_status is None else self.data_status[worker_id]

    def _set_worker_resume_data_status(self, worker_id: int, status: Position | None) -> None:
        known = self.data_status or []
        self.data_status = known + [None] * (worker_id + 1 - len(known))
        self.data_status[worker_id] = status

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the last row read, and what was lost so far."""
        return {
            "paths": len(self.data_paths),
            "cursor": self.cursor,
            "passes": self.passes,
            "dealt": [[asdict(stretch) for stretch in share] for share in self.dealt],
            "drops": self.ledger.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue behind a saved position when next iterated.

        Raises:
            DataError: the state was saved with another number of paths.
        """
        if state_dict["paths"] != len(self.data_paths):
            raise DataError(
                f"{self.dataset_name}: the data state was saved with {state_dict['paths']} paths, there are "
                f"{len(self.data_paths)} now: resume with the same files, or start anew"
            )
        self.cursor = state_dict["cursor"]
        self.passes = state_dict["passes"]
        self.dealt = [[Stretch(**stretch) for stretch in share] for share in state_dict["dealt"]]
        self.ledger.load_state_dict(state_dict["drops"])

    # the read loop ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Sample]:
        """Yield samples for ever; a resume position holds for the first pass only.

        Raises:
            DataError: a whole pass, or ``MOST_BARREN_ROWS`` rows, gave nothing.
        """
        placement = self._placement()
        if self.cursor is None and self.passes == 0:
            self.cursor = self._get_worker_data_status(placement.worker)
        while True:
            whole_pass = self.cursor is None and not self.dealt
            yield from self._read_pass(placement)
            self._budget.end_pass(whole_pass)
            self.cursor = None
            self.passes += 1
            self.dealt = self.dealt[1:]
            log.info(
                "%s: worker %d of rank %d has read its paths %d times",
                self.dataset_name, placement.worker, self.local_rank, self.passes,
            )  # fmt: skip

    def _read_pass(self, placement: Placement) -> Iterator[Sample]:
        standard = [Stretch.of(placement.worker_share(len(self.data_paths)))]
        share = self.dealt[0] if self.dealt else standard
        first, resume_after = (0, None) if self.cursor is None else split_position(self.cursor)
        for number, (index, after) in enumerate(walk(share)):
            if number < first:
                continue
            after = resume_after if self.cursor is not None and number == first else after
            for place, row in self.read_path(self.data_paths[index], after):
                self.cursor = join_position(number, place)
                origin = SampleIndex(
                    position=self.cursor, path=index, worker_id=placement.worker, dataset_name=self.dataset_name
                )
                sample = self._parse_or_count(row, origin)
                if sample is not None:
                    yield sample

    def restore(self, origin: SampleIndex, draws: Sequence[Draw]) -> Sample:
        """Parse a row again with the decisions drawn for it then.

        Raises:
            DataError: the row cannot be used any more.
        """
        try:
            with self.rng.replaying(draws):
                sample = self.parse(self.read_row(self.data_paths[origin.path], origin.place))
        except SkipSample as error:
            raise DataError(
                f"{self.dataset_name}: a buffered sample cannot be restored, the data changed: "
                f"{self.where(origin.path, origin.place)}: {error}"
            ) from error
        sample.index, sample.draws = origin, list(draws)
        return sample

    # losses -------------------------------------------------------------------------------------------------------

    def reject(self, sample: Sample, reason: str, detail: str = "") -> None:
        """Count a sample that was yielded but can never be used.

        Raises:
            DataError: it was the last hope of its pass.
        """
        assert sample.index is not None
        self.ledger.drop(self.dataset_name, reason, self.where(sample.index.path, sample.index.place), detail)
        self._budget.lose(sample.harvest)

    def give_up(self, sample: Sample, reason: str) -> None:
        """Count a good sample that was lost for want of room.

        Raises:
            DataError: it was the last hope of many rows.
        """
        sample.harvest.given_up += 1
        self.reject(sample, reason)

    def lose_rows(self, reason: str, where: str, detail: str, count: int) -> None:
        """Count rows that could not even be read."""
        self.ledger.drop(self.dataset_name, reason, where, detail, count)

    def _log_drop(self, reason: str, message: str, *args: Any, every: int = 100, exc_info: bool = False) -> None:
        """Count a lost sample and log the first ones; for parsers that prefer this over raising ``SkipSample``."""
        self.ledger.drop(self.dataset_name, reason, detail=message % args if args else message)

    def _parse_or_count(self, row: Any, origin: SampleIndex) -> Sample | None:
        try:
            with self.rng.recording() as draws:
                sample = self.parse(row)
        except SkipSample as skipped:
            where = self.where(origin.path, origin.place)
            self.ledger.drop(self.dataset_name, skipped.reason, where, skipped.detail)
            self._budget.count_row(good=False)
            return None
        sample.index, sample.draws, sample.harvest = origin, list(draws), self._budget.harvest
        self._budget.count_row(good=True)
        return sample
