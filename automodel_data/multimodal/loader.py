"""The dataloader of packs: worker processes, pinned memory, and the state of the last pack handed out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from automodel_data.errors import DataError, merge_counts
from automodel_data.multimodal.collate_fns import SimpleCustomBatch, bagel_packed_collate_fn
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.elastic import deal
from automodel_data.multimodal.packing import PackedDataset
from automodel_data.multimodal.state import LoaderState
from automodel_data.workers import check_workers, leave_signals_to_the_trainer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False, slots=True)
class StatefulPack:
    """A pack and the state of its worker's stream behind it."""

    batch: SimpleCustomBatch
    state: Mapping[str, Any]

    def pin_memory(self) -> "StatefulPack":
        """Pin the batch (called by the dataloader)."""
        return StatefulPack(self.batch.pin_memory(), self.state)


class _WorkerStream(IterableDataset):
    """The stream of one worker, from a saved state; a ``DataError`` travels as a value, to be raised in one piece."""

    def __init__(self, dataset: PackedDataset, state: LoaderState) -> None:
        self._dataset = dataset
        self._state = state

    def __iter__(self) -> Iterator[StatefulPack | DataError]:
        info = get_worker_info()
        number = 0 if info is None else (info.id + self._state.next_worker) % info.num_workers
        self._dataset.worker_id = None if info is None else number
        try:
            self._dataset.load_state_dict(self._state.workers[number])
            yield from map(_collated, self._dataset.packs_with_state())  # unlike a loop, it holds no pack
        except DataError as error:
            yield error


def _collated(pack_and_state: tuple[dict[str, Any], dict[str, Any]]) -> StatefulPack:
    pack, state = pack_and_state
    return StatefulPack(bagel_packed_collate_fn([pack]), state)


class PackedDataLoader:
    """Iterates over packs; ``state_dict`` is that of the last pack handed out, not of what workers prefetched.

    Every iteration starts where ``load_state_dict`` put it, or at the beginning.
    """

    def __init__(self, dataset: PackedDataset, num_workers: int, pin_memory: bool, prefetch_factor: int) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.prefetch_factor = prefetch_factor
        placement = dataset.placement
        self._seed = placement.seed(dataset.global_seed)
        self._start = LoaderState.start(placement.rank, placement.world_size, num_workers)
        self._state = self._start

    def __iter__(self) -> Iterator[SimpleCustomBatch]:
        """Yield packs without end.

        Raises:
            DataError: the data gives nothing more.
        """
        self._state = self._start
        packs = DataLoader(
            _WorkerStream(self.dataset, self._start),
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            prefetch_factor=self.prefetch_factor if self.num_workers else None,
            worker_init_fn=leave_signals_to_the_trainer,
            generator=torch.Generator().manual_seed(self._seed),  # or it draws from the process's own
        )
        yield from map(self._hand_out, packs)

    def _hand_out(self, pack: StatefulPack | DataError) -> SimpleCustomBatch:
        if isinstance(pack, DataError):
            raise pack
        self._state = self._state.after(pack.state)
        return pack.batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state behind the last pack handed out, as plain values that JSON can hold."""
        return self._state.to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a saved state at the next iteration.

        Raises:
            DataError: it was saved with another rank, world size or worker count.
        """
        state = LoaderState.from_dict(state_dict)
        placement = self.dataset.placement
        state.check(placement.rank, placement.world_size, self.num_workers)
        self._start = self._state = state

    def load_elastic(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Continue from the states of all ranks of a run with other numbers of ranks or workers (see ``elastic``)."""
        placement = self.dataset.placement
        old = [LoaderState.from_dict(state) for state in states]
        dealt = deal(old, placement.world_size, self.num_workers, self.dataset.global_seed)
        self._start = self._state = dealt[placement.rank]

    def origins(self, batch: SimpleCustomBatch) -> list[str]:
        """Name the file and row of every sample of a pack."""
        return [self.dataset.origin(index) for index in batch.batch_data_indexes]

    def drops(self) -> dict[str, dict[str, int]]:
        """Return the samples lost up to the last pack handed out, by group and reason."""
        streams = [stream for stream in self._state.workers if stream is not None]
        sources = [source for stream in streams for source in stream["groups"].values()]
        return merge_counts(*(part["drops"] for part in [*streams, *sources]))


@dataclass(frozen=True, eq=False, slots=True)
class BagelDataloaderBuild:
    """A dataloader and its dataset."""

    dataloader: PackedDataLoader
    dataset: PackedDataset


@dataclass(slots=True)
class BagelDataloaderConfig:
    """How packs are loaded.

    Args:
        dataset_config: The packs; any class with the ``build`` of ``BagelDatasetConfig``.
        num_workers: Worker processes, 0 to load in this one.
        pin_memory: Pin batches for copies to a GPU; without one it is ignored.
        prefetch_factor: Packs prepared ahead by each worker.
    """

    dataset_config: BagelDatasetConfig
    num_workers: int = 1
    pin_memory: bool = True
    prefetch_factor: int = 2

    def __post_init__(self) -> None:
        check_workers(self.num_workers, self.prefetch_factor)

    def build(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        special_tokens: Mapping[str, object],
        rank: int,
        world_size: int,
        batch_size: int,
        global_seed: int,
    ) -> BagelDataloaderBuild:
        """Build the loader of one rank.

        Raises:
            DataError: ``batch_size`` is not 1, or the dataset refuses its config or its data.
        """
        if batch_size != 1:
            raise DataError(
                f"batch_size is {batch_size}; a pack is a batch, so it must be 1 (max_num_tokens sets a pack's size)"
            )
        dataset = self.dataset_config.build(
            tokenizer=tokenizer,
            special_tokens=special_tokens,
            rank=rank,
            world_size=world_size,
            num_workers=self.num_workers,
            global_seed=global_seed,
        )
        dataloader = PackedDataLoader(dataset, self.num_workers, self.pin_memory, self.prefetch_factor)
        return BagelDataloaderBuild(dataloader, dataset)
