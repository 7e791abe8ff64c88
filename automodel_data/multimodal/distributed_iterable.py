"""Rows of a sharded list of paths, for ever, from a cursor: the read loop that every packed dataset shares."""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from torch.utils.data import IterableDataset

from automodel_data.errors import DataError, DropLedger, SkipSample
from automodel_data.images import ImagePolicy
from automodel_data.multimodal.cursor import Cursor
from automodel_data.multimodal.plan import NO_WORKER, Position, Sample, SampleIndex, join_position, split_position
from automodel_data.multimodal.sharded_paths import PathT, ShardedPaths
from automodel_data.multimodal.tally import Tally
from automodel_data.placement import Placement
from automodel_data.randomness import Draw, Randomness

log = logging.getLogger(__name__)

RowT = TypeVar("RowT")


class DistributedIterableDataset(ShardedPaths[PathT], IterableDataset[Sample], Generic[PathT, RowT]):
    """A source: an ordered list of paths, shared out over ranks and workers, read row by row without end.

    A subclass lists its paths (``get_data_paths``), reads the rows of one (``read_path``, and ``read_row`` for one of
    them) and parses a row into a sample (``parse``). This class shuffles, shards and reads on from a ``Cursor``; its
    ``Tally`` counts what is lost, and gives up with a ``DataError`` when a whole pass yields nothing.

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
        super().__init__(dataset_name, local_rank, world_size, num_workers)
        self.data_status: list[Position | None] | None = None
        self.left_out: Sequence[SkipSample] = []
        """What is wrong with files that were left out of the paths."""
        self.rng = Randomness(0)
        self.images = ImagePolicy()
        self.restart(None)

    def restart(self, worker_id: int | None) -> None:
        """Forget what was read and lost, and read as the worker of that number (None: as torch numbers it)."""
        self.worker_id = worker_id
        self.cursor = Cursor()
        self.tally = Tally(self.dataset_name)

    def adopt(self, rng: Randomness, images: ImagePolicy) -> None:
        """Draw from ``rng`` and open images by ``images`` from now on; the packer hands its own to every source."""
        self.rng = rng
        self.images = images

    # what a subclass provides -------------------------------------------------------------------------------------

    @abstractmethod
    def read_path(self, path: PathT, after: list[int] | None) -> Iterator[tuple[list[int], RowT]]:
        """Yield ``(place, row)`` for the rows of one path, those behind the place ``after`` only."""

    @abstractmethod
    def read_row(self, path: PathT, place: list[int]) -> RowT:
        """Read one row again; raise ``SkipSample`` when it is not there any more."""

    @abstractmethod
    def parse(self, row: RowT) -> Sample:
        """Turn a row into a sample; raise ``SkipSample`` when it cannot be used."""

    def where(self, path_index: int, place: list[int]) -> str:
        """Name a row's file and place, for messages."""
        return f"{self.data_paths[path_index]}, row {place}"

    def locate(self, position: Position, worker_id: int) -> str:
        """Name the file and row of a documented position, of a worker of this rank or of ``NO_WORKER``."""
        number, place = split_position(position)
        if worker_id == NO_WORKER:
            return self.where(number, place)
        reader = Placement(
            rank=self.local_rank, world_size=self.world_size, worker=worker_id, num_workers=self.num_workers
        )
        return self.where(reader.worker_share(len(self.data_paths))[number], place)

    # resume -------------------------------------------------------------------------------------------------------

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
            "order": self.order_digest,
            **self.cursor.to_dict(),
            "drops": self.ledger.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue behind a saved position when next iterated.

        Raises:
            DataError: the state was saved with another number of paths, with other ones or in another order.
        """
        saved, now = state_dict["paths"], len(self.data_paths)
        if (saved, state_dict["order"]) != (now, self.order_digest):
            found = f"there are {now} now" if saved != now else "the same number are there, but not these in this order"
            raise DataError(
                f"{self.dataset_name}: the data state was saved with {saved} paths, {found}: resume with the same "
                "files, num_used_data and data_seed, or start anew"
            )
        self.cursor = Cursor.from_dict(state_dict)
        self.ledger.load_state_dict(state_dict["drops"])

    # the read loop ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Sample]:
        """Yield samples for ever; a resume position holds for the first pass only.

        Raises:
            DataError: a whole pass, or ``MOST_BARREN_ROWS`` rows, gave nothing.
        """
        placement = self._placement()
        if self.cursor.begins_usual_pass and self.cursor.passes == 0:
            self.cursor.position = self._get_worker_data_status(placement.worker)
            if placement.rank == placement.worker == 0:  # one reader counts for all
                for loss in self.left_out:
                    self.tally.tell(loss)
        while True:
            whole_pass = self.cursor.begins_usual_pass
            yield from self._read_pass(placement)
            self.tally.end_pass(whole_pass)
            self.cursor.end_pass()
            reader = f"worker {placement.worker} of rank {placement.rank}"
            log.info("%s: %s has read its paths %d times", self.dataset_name, reader, self.cursor.passes)

    def _read_pass(self, placement: Placement) -> Iterator[Sample]:
        usual = placement.worker_share(len(self.data_paths))
        for number, path, after in self.cursor.paths_ahead(usual):
            for place, row in self.read_path(self.data_paths[path], after):
                position = self.cursor.position = join_position(number, place)
                origin = SampleIndex(
                    position=position, path=path, worker_id=placement.worker, dataset_name=self.dataset_name
                )
                sample = self._parse_or_count(row, origin.among_all_paths() if self.cursor.dealt else origin)
                if sample is not None:
                    yield sample

    def _parse_or_count(self, row: RowT, origin: SampleIndex) -> Sample | None:
        try:
            with self.rng.recording() as draws:
                sample = self.parse(row)
        except SkipSample as skipped:
            self.tally.lose_row(skipped, self.where(origin.path, origin.place))
            return None
        sample.index, sample.draws, sample.harvest = origin, list(draws), self.tally.keep_row()
        return sample

    def restore(self, origin: SampleIndex, draws: Sequence[Draw]) -> Sample:
        """Parse a row again with the decisions drawn for it then.

        Raises:
            DataError: the row cannot be used any more.
        """
        try:
            with self.rng.replaying(draws), self.tally.listening():
                sample = self.parse(self.read_row(self.data_paths[origin.path], origin.place))
        except (SkipSample, LookupError) as error:  # LookupError: the row asks for other decisions than it did
            raise DataError(
                f"{self.dataset_name}: a buffered sample cannot be restored, the data changed: "
                f"{self.where(origin.path, origin.place)}: {error}"
            ) from error
        sample.index, sample.draws = origin, list(draws)
        return sample

    # losses -------------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> DropLedger:
        """What was lost so far."""
        return self.tally.ledger

    def reject(self, sample: Sample, reason: str, detail: str = "") -> None:
        """Count a sample that was yielded but can never be used.

        Raises:
            DataError: it was the last hope of its pass.
        """
        assert sample.index is not None
        self.tally.lose_sample(sample.harvest, reason, self.where(sample.index.path, sample.index.place), detail)

    def give_up(self, sample: Sample, reason: str) -> None:
        """Count a good sample that was lost for want of room.

        Raises:
            DataError: it was the last hope of many rows.
        """
        sample.harvest.given_up += 1
        self.reject(sample, reason)

    def _log_drop(self, reason: str, message: str, *args: Any, every: int = 100, exc_info: bool = False) -> None:
        """Count a lost sample and log the first ones; for parsers that prefer this over raising ``SkipSample``.

        A row of which ``parse_row`` then gives nothing is counted once, under the last reason told.
        """
        self.tally.tell(SkipSample(reason, message % args if args else message))
