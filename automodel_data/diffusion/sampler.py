"""The order of an epoch: batches of one bucket, the same bucket on every rank at the same step."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import torch
from torch.utils.data import Sampler

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.bucket_plan import BucketPlan, parse_policy
from automodel_data.errors import DataError

ORDERS: Final = ("sequential", "interleaved")


class SequentialBucketSampler(Sampler[list[int]]):
    """Yield lists of indices, each from one bucket; an epoch's order depends on ``seed`` and epoch alone.

    Args:
        dataset: Has ``bucket_groups`` and ``sorted_bucket_keys``.
        base_batch_size: Samples of a batch on each rank.
        base_resolution: With ``dynamic_batch_size``: the (width, height) for which ``base_batch_size`` is meant.
        drop_last: Drop a bucket's last, short batch; else yield it short.
        shuffle_buckets: Draw the order of the buckets.
        shuffle_within_bucket: Draw the order of each bucket's samples.
        dynamic_batch_size: Scale the batch size so that every batch has about the same number of pixels.
        num_replicas: Ranks; None asks ``torch.distributed`` (1 if it is not initialized).
        rank: This one of them; None asks too.
        bucket_policy: Overrides ``drop_last``. A bucket's last, short batch is dropped (``drop``), yielded short
            (``partial``), or filled by cycling through the bucket (``pad``).
        bucket_order: ``sequential`` empties one bucket after the other; ``interleaved`` draws the bucket of each step
            in proportion to the batches it has left.

    Raises:
        ValueError: an option is not possible.
        DataError: no bucket fills a batch.
    """

    def __init__(
        self,
        dataset: BaseMultiresolutionDataset,
        base_batch_size: int = 32,
        base_resolution: tuple[int, int] = (512, 512),
        drop_last: bool = True,
        shuffle_buckets: bool = True,
        shuffle_within_bucket: bool = True,
        dynamic_batch_size: bool = False,
        seed: int = 42,
        num_replicas: int | None = None,
        rank: int | None = None,
        bucket_policy: str | None = None,
        bucket_order: str = "sequential",
    ) -> None:
        self.dataset = dataset
        self.base_batch_size = base_batch_size
        self.base_resolution = base_resolution
        self.bucket_policy = parse_policy(bucket_policy, drop_last)
        self.bucket_order = bucket_order
        self.shuffle_buckets = shuffle_buckets
        self.shuffle_within_bucket = shuffle_within_bucket
        self.dynamic_batch_size = dynamic_batch_size
        self.seed = seed
        self.num_replicas, self.rank = _resolve_ranks(num_replicas, rank)
        self.epoch = 0
        self.position = 0  # batches of this epoch that were handed out
        self.resume_at = 0  # where the next iteration starts
        self._check_options()
        self.plans = [self._plan(key) for key in dataset.sorted_bucket_keys]
        self._check_usable()

    def _check_options(self) -> None:
        if self.base_batch_size < 1:
            raise ValueError(f"batch size ({self.base_batch_size}) must be at least 1")
        if self.bucket_order not in ORDERS:
            raise ValueError(f"bucket_order ({self.bucket_order!r}) must be one of {', '.join(ORDERS)}")
        if self.bucket_order == "interleaved" and not self.shuffle_buckets:
            raise ValueError(
                "bucket_order (interleaved) draws buckets: it needs shuffle_buckets (False), or sequential"
            )
        if self.dynamic_batch_size and not self.dataset.pixels_are_cost:
            raise ValueError(
                "dynamic_batch_size (True) is not possible with image-edit data: a sample's cost depends on its "
                "contexts too; set it to False"
            )

    def _plan(self, key: Any) -> BucketPlan:
        group = self.dataset.bucket_groups[key]
        return BucketPlan(
            name=self.dataset.bucket_name(key),
            samples=len(group["indices"]),
            batch_size=self._batch_size(group["resolution"]),
            replicas=self.num_replicas,
            policy=self.bucket_policy,
        )

    def _batch_size(self, resolution: tuple[int, int]) -> int:
        if not self.dynamic_batch_size:
            return self.base_batch_size
        return self.dataset.calculator.get_dynamic_batch_size(resolution, self.base_batch_size, self.base_resolution)

    def _check_usable(self) -> None:
        if len(self):
            return
        short = "; ".join(f"{plan.name} has {plan.samples} samples, {plan.missing} too few" for plan in self.plans)
        raise DataError(
            f"{self.dataset.cache_dir}: no bucket fills a batch on {self.num_replicas} ranks "
            f"({short or 'no samples'}); encode more samples, lower the batch size, or set bucket_policy to pad"
        )

    def __len__(self) -> int:
        """Return the batches of an epoch, the same for every rank."""
        return sum(plan.batches for plan in self.plans)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, whose order is drawn anew; naming the current one again keeps a loaded position."""
        if epoch != self.epoch:
            self.epoch, self.position, self.resume_at = epoch, 0, 0

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the epoch, once from behind a loaded position, else from its start."""
        # As a generator: a loader with workers asks for two iterators and advances the second only.
        start, self.resume_at = self.resume_at, 0
        self.position = start
        for position, (_, batch) in enumerate(islice(self._epoch_batches(), start, None), start + 1):
            self.position = position
            yield batch

    def _epoch_batches(self) -> Iterator[tuple[int, list[int]]]:
        """Yield bucket and batch for the whole epoch of this rank; every rank makes the same draws."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = self._bucket_sequence(generator)
        if self.bucket_order == "sequential":
            for bucket in order:
                yield from ((bucket, batch) for batch in self._bucket_batches(bucket, generator))
            return
        waiting = {bucket: iter(self._bucket_batches(bucket, generator)) for bucket in order}
        # A draw in proportion to what is left, step by step, is a uniform shuffle of one label for each batch.
        labels = [bucket for bucket in order for _ in range(self.plans[bucket].batches)]
        for place in torch.randperm(len(labels), generator=generator).tolist():
            yield labels[place], next(waiting[labels[place]])

    def _bucket_sequence(self, generator: torch.Generator) -> list[int]:
        if not self.shuffle_buckets:
            return list(range(len(self.plans)))
        return torch.randperm(len(self.plans), generator=generator).tolist()

    def _bucket_batches(self, bucket: int, generator: torch.Generator) -> list[list[int]]:
        """Return this rank's batches of one bucket."""
        plan = self.plans[bucket]
        indices = self.dataset.bucket_groups[self.dataset.sorted_bucket_keys[bucket]]["indices"]
        if self.shuffle_within_bucket:
            indices = [indices[i] for i in torch.randperm(len(indices), generator=generator).tolist()]
        share = [indices[i % len(indices)] for i in range(self.rank, plan.padded, plan.replicas)]
        return [share[i * plan.batch_size : (i + 1) * plan.batch_size] for i in range(plan.batches)]

    def get_batch_info(self, batch_idx: int) -> dict[str, Any]:
        """Return bucket key, resolution, batch size and aspect name of a batch of the current epoch.

        Raises:
            IndexError: the epoch has no such batch.
        """
        if not 0 <= batch_idx < len(self):
            raise IndexError(f"batch {batch_idx} of an epoch of {len(self)}")
        bucket, batch = next(islice(self._epoch_batches(), batch_idx, None))
        key = self.dataset.sorted_bucket_keys[bucket]
        group = self.dataset.bucket_groups[key]
        return {
            "bucket_key": key,
            "resolution": group["resolution"],
            "batch_size": len(batch),
            "aspect_name": group["aspect_name"],
        }

    def state_dict(self) -> dict[str, Any]:
        """Return epoch, batches yielded since its start, and what the order depends on, as plain values."""
        return {"epoch": self.epoch, "batches_yielded": self.position, "made_with": self._made_with()}

    def _made_with(self) -> dict[str, Any]:
        return {
            "samples": sum(plan.samples for plan in self.plans),
            "num_replicas": self.num_replicas,
            "batch_size": self.base_batch_size,
            "seed": self.seed,
            "bucket_policy": self.bucket_policy,
            "bucket_order": self.bucket_order,
            "shuffle": [self.shuffle_buckets, self.shuffle_within_bucket],
            "dynamic_batch_size": list(self.base_resolution) if self.dynamic_batch_size else None,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration start behind a saved position.

        A state of ``epoch`` and ``batches_yielded`` alone, as older systems save it, is taken at its word.

        Raises:
            DataError: the order depended on something that has changed.
        """
        if "made_with" in state_dict:
            self._refuse_changes(state_dict["made_with"])
        self.epoch = state_dict["epoch"]
        self.position = self.resume_at = state_dict["batches_yielded"]

    def _refuse_changes(self, saved: Mapping[str, Any]) -> None:
        changed = [
            f"{name} ({saved[name]!r} then, {now!r} now)"
            for name, now in self._made_with().items()
            if saved[name] != now
        ]
        if changed:
            raise DataError(
                f"this sampler state belongs to another run: {', '.join(changed)}; the batches would come in another "
                "order; resume with the saved settings, or start the epoch anew without loading the state"
            )


def _resolve_ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    if num_replicas is None or rank is None:
        import torch.distributed as dist  # asked only here

        running = dist.is_available() and dist.is_initialized()
        num_replicas = num_replicas if num_replicas is not None else (dist.get_world_size() if running else 1)
        rank = rank if rank is not None else (dist.get_rank() if running else 0)
    if not 0 <= rank < num_replicas:
        raise ValueError(f"rank ({rank}) must be at least 0 and below num_replicas ({num_replicas})")
    return num_replicas, rank
