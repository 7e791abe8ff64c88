"""Which paths of a source a rank and a worker read, and in which order."""

import random
from abc import abstractmethod
from collections.abc import MutableSequence, Sequence
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from torch.utils.data import get_worker_info

from automodel_data.placement import Placement, check_share

PathT = TypeVar("PathT")


class ShardedPaths(Generic[PathT]):
    """An ordered list of paths, shuffled alike everywhere and shared out over ranks and workers.

    Args:
        dataset_name: Name in logs, in the ledger and in every sample's index.
        local_rank: Global rank of this process.
        world_size: Ranks in all.
        num_workers: Worker processes of the dataloader, 0 for none.
    """

    def __init__(self, dataset_name: str, local_rank: int, world_size: int, num_workers: int) -> None:
        self.dataset_name = dataset_name
        self.local_rank = local_rank
        self.world_size = world_size
        self.num_workers = num_workers
        self.worker_id: int | None = None
        self.data_paths: Sequence[PathT] = []
        self.order_digest = ""
        self.data_paths_per_rank: Sequence[PathT] = []

    @abstractmethod
    def get_data_paths(self, *args: Any, **kwargs: Any) -> Sequence[PathT]:
        """List the paths, the units that ranks and workers share."""

    def set_epoch(self, seed: int = 42) -> None:
        """Sort and shuffle the paths with ``seed``, and take this rank's share.

        Raises:
            DataError: there are fewer paths than ranks, or than workers on this rank.
        """
        order = self.sorted_order()
        random.Random(seed).shuffle(order)
        self.data_paths = self.reordered(order)
        self.order_digest = self.digest()
        share = self._placement().rank_share(len(self.data_paths))
        self.data_paths_per_rank = self.reordered(share)
        check_share(self.dataset_name, len(self.data_paths), self.world_size, "rank", "ranks")
        if self.num_workers > 0:
            check_share(self.dataset_name, len(share), self.num_workers, "worker", "workers on each rank")

    def digest(self) -> str:
        """Return a digest of the paths' names in their order; the folder that they lie in does not count."""
        digest = blake2b(digest_size=8)
        for path in self.data_paths:
            for part in path if isinstance(path, tuple) else (path,):
                digest.update(f"{str(part).rpartition('/')[2]}\0".encode())
        return digest.hexdigest()

    def sorted_order(self) -> MutableSequence[int]:
        """Return the indexes that sort the paths; tuples sort by their first two fields."""

        def key(index: int) -> Any:
            path = self.data_paths[index]
            return path[:2] if isinstance(path, tuple) else path

        return sorted(range(len(self.data_paths)), key=key)

    def reordered(self, order: Sequence[int]) -> Sequence[PathT]:
        """Return the paths of these indexes, in that order."""
        return [self.data_paths[i] for i in order]

    def get_data_paths_per_worker(self) -> tuple[Sequence[PathT], int]:
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
