"""Batches of a cache for one rank, with a state that belongs to the last batch handed out."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.bucket_plan import format_table
from automodel_data.diffusion.handover import Parcel, Sender
from automodel_data.diffusion.payload import PayloadError
from automodel_data.diffusion.sampler import SequentialBucketSampler
from automodel_data.diffusion.state import LoaderState
from automodel_data.errors import DataError, DropLedger, merge_counts
from automodel_data.workers import leave_signals_to_the_trainer

if TYPE_CHECKING:
    from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig
    from automodel_data.diffusion.text_to_image_dataset import TextToImageDataloaderConfig

log = logging.getLogger(__name__)

BAD_PAYLOAD_POLICIES: Final = ("raise", "skip")
_MAX_BAD_IN_A_ROW = 100
_WAY_OUT = (
    "delete the file and encode again (scripts/encode_cache.py with --verify lists all such), or count and pass over "
    "them with bad_payload=skip"
)

Collate = Callable[[list[Any]], Any]


class Loss(NamedTuple):
    """One payload that was skipped."""

    reason: str
    detail: str


class LoadedBatch(NamedTuple):
    """A batch and what was lost while it was read; travels from a worker to the loader."""

    batch: Any
    losses: list[Loss]


class Failure(NamedTuple):
    """Why a batch cannot be had.

    A value, since a worker would wrap an exception in its traceback; and not an exception as a value, since one raised
    from a local variable is a cycle, which keeps the workers waiting when it is collected.
    """

    message: str


class BatchReader(Dataset):
    """Read and collate whole batches: its index is a list of sample indices.

    Args:
        bad_payload: ``raise`` at a payload that cannot be used. ``skip``: count it, and read the next sample of its
            bucket in its place, so that the batch keeps its shape and all ranks keep their number of batches.
    """

    def __init__(self, dataset: BaseMultiresolutionDataset, collate: Collate, bad_payload: str) -> None:
        if bad_payload not in BAD_PAYLOAD_POLICIES:
            raise ValueError(f"bad_payload ({bad_payload!r}) must be one of {', '.join(BAD_PAYLOAD_POLICIES)}")
        self.dataset = dataset
        self.collate = collate
        self.bad_payload = bad_payload

    def __getitem__(self, indices: list[int]) -> LoadedBatch | Failure:
        """Read the samples ``indices``.

        Returns:
            The batch; or its failure: a payload cannot be used and the policy is ``raise``, a whole bucket cannot be
            used, or the samples do not fit into one batch.
        """
        losses: list[Loss] = []
        try:
            samples = self._read(indices, losses)
        except PayloadError as error:
            return Failure(f"{error}; {_WAY_OUT}")
        except DataError as error:
            return Failure(str(error))
        try:
            return LoadedBatch(self.collate(samples), losses)
        except DataError as error:
            files = ", ".join(self.dataset.metadata[index]["cache_file"] for index in indices)
            return Failure(f"{error} (the batch was read from {files})")

    def _read(self, indices: list[int], losses: list[Loss]) -> list[dict]:
        """Read all files, then check all payloads: in turn, each would push the other out of the processor's cache."""
        payloads = [self._unless_lost(losses, self.dataset.payload, index) for index in indices]
        samples = [
            None if payload is None else self._unless_lost(losses, self.dataset.sample, index, payload)
            for index, payload in zip(indices, payloads, strict=True)
        ]
        used = set(indices)
        return [
            self._read_instead(index, used) if sample is None else sample
            for index, sample in zip(indices, samples, strict=True)
        ]

    def _unless_lost(self, losses: list[Loss], step: Callable[..., Any], *args: Any) -> Any:
        """Return what a step returns; by policy None and one loss more, if the payload cannot be used."""
        try:
            return step(*args)
        except PayloadError as error:
            if self.bad_payload == "raise":
                raise
            losses.append(Loss(error.reason, str(error)))
            return None

    def _read_instead(self, bad: int, used: set[int]) -> dict:
        """Read the first usable sample behind ``bad`` in its bucket, if possible one that the batch does not use."""
        bucket = next(g["indices"] for g in self.dataset.bucket_groups.values() if bad in g["indices"])
        at = bucket.index(bad)
        others = bucket[at + 1 :] + bucket[:at]
        candidates = sorted(others, key=lambda index: index in used)  # stable
        for index in islice(candidates, _MAX_BAD_IN_A_ROW):
            try:
                sample = self.dataset[index]
            except PayloadError:
                continue  # counted when its own turn comes
            used.add(index)
            return sample
        tried = min(len(candidates), _MAX_BAD_IN_A_ROW) + 1
        raise DataError(
            f"{self.dataset.cache_dir}: none of {tried} payloads in a row can be used, first "
            f"{self.dataset.metadata[bad]['cache_file']}; run encode_cache with --verify to list them"
        )


class LatentDataloader:
    """Iterate over one epoch of batches; ``sampler.set_epoch`` chooses which.

    Workers read ahead; the state is nevertheless that of the last batch handed out.

    Args:
        num_workers: Processes that read; 0 reads in this one.
        prefetch_factor: Batches read ahead by each worker.
    """

    def __init__(
        self,
        reader: BatchReader,
        sampler: SequentialBucketSampler,
        num_workers: int = 0,
        pin_memory: bool = False,
        prefetch_factor: int = 2,
    ) -> None:
        self.dataset = reader.dataset
        self.sampler = sampler
        self.num_workers = num_workers
        self._ledger = DropLedger()
        # Of the workers, held so that they stay mapped: to map one anew for each batch takes as long as to copy it out.
        self._buffers: deque[torch.Tensor] = deque(maxlen=num_workers * (prefetch_factor + 1))
        self._batches: DataLoader[LoadedBatch | Failure] = DataLoader(
            reader,
            sampler=sampler,
            batch_size=None,  # the reader collates
            collate_fn=partial(_sent, Sender(prefetch_factor + 1)) if num_workers > 0 else _as_it_is,
            num_workers=num_workers,
            pin_memory=pin_memory and torch.accelerator.is_available(),
            persistent_workers=num_workers > 0,
            prefetch_factor=prefetch_factor if num_workers > 0 else None,
            worker_init_fn=leave_signals_to_the_trainer,
            generator=torch.Generator(),  # keeps it from drawing from the global one
        )

    def __len__(self) -> int:
        """Return the batches of an epoch."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the sampler's epoch, once from behind a loaded position.

        Raises:
            DataError: a payload cannot be used, see ``BatchReader``.
        """
        start = self.sampler.resume_at
        for position, loaded in enumerate(self._batches, start + 1):
            if isinstance(loaded, Failure):
                raise DataError(loaded.message)
            self.sampler.position = position
            for reason, detail in loaded.losses:
                self._ledger.drop(str(self.dataset.cache_dir), reason, detail=detail)
            yield self._unpacked(loaded.batch)

    def _unpacked(self, batch: Any) -> Any:
        if not isinstance(batch, Parcel):
            return batch  # read in this process, or pinned
        self._buffers.append(batch.memory)
        return batch.unpack()

    def drops(self) -> dict[str, dict[str, int]]:
        """Return ``{cache directory: {reason: payloads skipped}}`` of this rank so far."""
        return self._ledger.counts

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the last batch handed out, as values that JSON can hold."""
        return LoaderState(
            sampler=self.sampler.state_dict(),
            drops=self._ledger.state_dict(),
            rank=self.sampler.rank,
            world_size=self.sampler.num_replicas,
            num_workers=self.num_workers,
        ).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration start behind the batch the state belongs to; any number of workers will do.

        Raises:
            DataError: the state is another rank's, or the sampler refuses it.
        """
        state = LoaderState(**state_dict)
        if state.rank != self.sampler.rank:
            raise DataError(
                f"this is the loader state of rank {state.rank}, and this is rank {self.sampler.rank}; "
                "each rank must load its own"
            )
        self.sampler.load_state_dict(state.sampler)
        self._ledger.load_state_dict(state.drops)

    def load_elastic(self, state_dicts: Sequence[Mapping[str, Any]]) -> None:
        """Go on from the states of all ranks of a run with other ranks or another batch size.

        What they left of their epoch is dealt out anew; rank 0 counts on from what all of them lost.

        Raises:
            DataError: the sampler refuses them.
        """
        states = [LoaderState(**state) for state in state_dicts]
        self.sampler.load_elastic([state.sampler for state in states])
        if self.sampler.rank == 0:
            self._ledger.load_state_dict(merge_counts(*(state.drops for state in states)))


def _as_it_is(loaded: Any) -> Any:
    return loaded


def _sent(sender: Sender, loaded: LoadedBatch | Failure) -> LoadedBatch | Failure:
    return loaded if isinstance(loaded, Failure) else LoadedBatch(sender.pack(loaded.batch), loaded.losses)


@dataclass(slots=True)
class DiffusionDataloaderBuild:
    """A loader and the sampler whose epoch it follows."""

    dataloader: LatentDataloader
    sampler: SequentialBucketSampler


def build_dataloader(
    config: "ImageEditDataloaderConfig | TextToImageDataloaderConfig",
    dataset: BaseMultiresolutionDataset,
    collate: Collate,
    dp_rank: int,
    dp_world_size: int,
    batch_size: int,
) -> DiffusionDataloaderBuild:
    """Make a rank's loader with the config's options, and log its table of buckets."""
    reader = BatchReader(dataset, collate, config.bad_payload)
    sampler = SequentialBucketSampler(
        dataset,
        base_batch_size=batch_size,
        base_resolution=config.base_resolution,
        drop_last=config.drop_last,
        shuffle_buckets=config.shuffle,
        shuffle_within_bucket=config.shuffle,
        dynamic_batch_size=config.dynamic_batch_size,
        seed=config.seed,
        num_replicas=dp_world_size,
        rank=dp_rank,
        bucket_policy=config.bucket_policy,
        bucket_order=config.bucket_order,
    )
    log.info("buckets of %s, each epoch:\n%s", dataset.cache_dir, format_table(sampler.plans))
    loader = LatentDataloader(reader, sampler, config.num_workers, config.pin_memory, config.prefetch_factor)
    return DiffusionDataloaderBuild(loader, sampler)
