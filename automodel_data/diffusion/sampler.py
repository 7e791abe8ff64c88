"""The order of an epoch: batches of one bucket, the same bucket on every rank at the same step."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from automodel_data.diffusion.bucket_pass import BucketPass, parse_order
from automodel_data.diffusion.bucket_plan import BucketPlan, parse_policy
from automodel_data.diffusion.state import OrderSettings, SamplerState, Stretch
from automodel_data.errors import DataError


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
        self.bucket_order = parse_order(bucket_order)
        self.shuffle_buckets = shuffle_buckets
        self.shuffle_within_bucket = shuffle_within_bucket
        self.dynamic_batch_size = dynamic_batch_size
        self.seed = seed
        self.num_replicas, self.rank = _resolve_ranks(num_replicas, rank)
        self.epoch = 0
        self.position = 0  # batches of this epoch that were handed out
        self.resume_at = 0  # where the next iteration starts
        self._check_options()
        self._stretches: Sequence[Stretch] = ()  # of this epoch, read before its rest was dealt out anew
        self._pass = self._deal()
        self._check_usable()

    @property
    def plans(self) -> Sequence[BucketPlan]:
        """Return what each bucket gives in this epoch; after ``load_elastic``, in its rest."""
        return self._pass.plans

    def _check_options(self) -> None:
        if self.base_batch_size < 1:
            raise ValueError(f"batch size ({self.base_batch_size}) must be at least 1")
        if self.bucket_order == "interleaved" and not self.shuffle_buckets:
            raise ValueError(
                "bucket_order (interleaved) draws buckets: it needs shuffle_buckets (False), or sequential"
            )
        if self.dynamic_batch_size and not self.dataset.pixels_are_cost:
            raise ValueError(
                "dynamic_batch_size (True) is not possible with image-edit data: a sample's cost depends on its "
                "contexts too; set it to False"
            )

    @cached_property
    def _buckets_hash(self) -> str:
        content = hashlib.sha256()
        for key in self.dataset.sorted_bucket_keys:
            content.update(f"{self.dataset.bucket_name(key)}\0".encode())
            content.update(np.asarray(self.dataset.bucket_groups[key]["indices"], dtype="<i8").tobytes())
        return content.hexdigest()[:16]

    def _deal(self) -> BucketPass:
        """Return the epoch's pass, or what its earlier stretches have left of it."""
        buckets = [self.dataset.bucket_groups[key]["indices"] for key in self.dataset.sorted_bucket_keys]
        for stretch in self._stretches:
            buckets = self._pass_over(buckets, stretch.num_replicas, stretch.batch_size).unread_after(stretch.batches)
        return self._pass_over(buckets, self.num_replicas, self.base_batch_size)

    def _pass_over(self, buckets: Sequence[Sequence[int]], num_replicas: int, batch_size: int) -> BucketPass:
        plans = [
            BucketPlan(
                name=self.dataset.bucket_name(key),
                samples=len(bucket),
                batch_size=self._scaled(batch_size, self.dataset.bucket_groups[key]["resolution"]),
                replicas=num_replicas,
                policy=self.bucket_policy,
            )
            for key, bucket in zip(self.dataset.sorted_bucket_keys, buckets, strict=True)
        ]
        return BucketPass(
            buckets=buckets,
            plans=plans,
            order=self.bucket_order,
            shuffle_buckets=self.shuffle_buckets,
            shuffle_within_bucket=self.shuffle_within_bucket,
            seed=self.seed + self.epoch,
        )

    def _scaled(self, batch_size: int, resolution: tuple[int, int]) -> int:
        if not self.dynamic_batch_size:
            return batch_size
        return self.dataset.calculator.get_dynamic_batch_size(resolution, batch_size, self.base_resolution)

    def _check_usable(self) -> None:
        if len(self):
            return
        ranks = f"{self.num_replicas} rank{'' if self.num_replicas == 1 else 's'}"
        short = "; ".join(f"{plan.name} has {plan.samples} samples, {plan.missing} too few" for plan in self.plans)
        raise DataError(
            f"{self.dataset.cache_dir}: no bucket fills a batch on {ranks} "
            f"({short or 'no samples'}); encode more samples, lower the batch size, or set bucket_policy to pad"
        )

    def __len__(self) -> int:
        """Return the batches of this epoch, or of its rest after ``load_elastic``; the same for every rank."""
        return len(self._pass)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, whose order is drawn anew; naming the current one again keeps a loaded position."""
        if epoch != self.epoch:
            self._go_to(SamplerState(epoch=epoch, batches_yielded=0))

    def _go_to(self, state: SamplerState) -> None:
        self.epoch, self._stretches = state.epoch, state.stretches
        self.position = self.resume_at = state.batches_yielded
        self._pass = self._deal()
        if not 0 <= self.position <= len(self):
            raise DataError(
                f"the position in the epoch is behind batch {self.position}, and the epoch has {len(self)}: it was "
                "saved with another cache, number of ranks or batch size; start a new run"
            )

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the epoch, once from behind a loaded position, else from its start."""
        # As a generator: a loader with workers asks for two iterators and advances the second only.
        start, self.resume_at = self.resume_at, 0
        self.position = start
        for position, step in enumerate(islice(self._pass, start, None), start + 1):
            self.position = position
            yield step.samples[self.rank :: self.num_replicas]

    def get_batch_info(self, batch_idx: int) -> dict[str, Any]:
        """Return bucket key, resolution, batch size and aspect name of a batch of the current epoch.

        Raises:
            IndexError: the epoch has no such batch.
        """
        if not 0 <= batch_idx < len(self):
            raise IndexError(f"batch {batch_idx} of an epoch of {len(self)}")
        step = next(islice(self._pass, batch_idx, None))
        key = self.dataset.sorted_bucket_keys[step.bucket]
        group = self.dataset.bucket_groups[key]
        return {
            "bucket_key": key,
            "resolution": group["resolution"],
            "batch_size": len(step.samples) // self.num_replicas,
            "aspect_name": group["aspect_name"],
        }

    def state_dict(self) -> dict[str, Any]:
        """Return epoch, batches yielded since its start, and what the order depends on, as plain values."""
        return SamplerState(
            epoch=self.epoch,
            batches_yielded=self.position,
            made_with=self._settings(),
            stretches=self._stretches,
        ).to_dict()

    def _settings(self) -> OrderSettings:
        return OrderSettings(
            samples=sum(len(group["indices"]) for group in self.dataset.bucket_groups.values()),
            buckets=self._buckets_hash,
            num_replicas=self.num_replicas,
            batch_size=self.base_batch_size,
            seed=self.seed,
            bucket_policy=self.bucket_policy,
            bucket_order=self.bucket_order,
            shuffle=[self.shuffle_buckets, self.shuffle_within_bucket],
            dynamic_batch_size=list(self.base_resolution) if self.dynamic_batch_size else None,
        )

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration start behind a saved position.

        A state of ``epoch`` and ``batches_yielded`` alone, as older systems save it, is taken at its word.

        Raises:
            DataError: the order depended on something that has changed, or the epoch ends before.
        """
        state = SamplerState.from_dict(state_dict)
        if state.made_with is not None:
            state.made_with.refuse_changes(self._settings())
        self._go_to(state)

    def load_elastic(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Deal out what all ranks of a run left of their epoch to the ranks, and in the batch size, of this one.

        None of it is lost or read twice, beyond what ``bucket_policy`` says of short batches. It is the rest of a
        replay of the batches read before, so the state stays a few numbers. The next epochs are the usual ones.

        Args:
            states: Of all ranks, from one step.

        Raises:
            DataError: the ranks stopped at different steps, or the order depended on something else that has changed.
        """
        first, *others = map(SamplerState.from_dict, states)
        rest = first.left_behind(self._settings())
        if any(other != first for other in others):
            places = [(state.epoch, state.batches_yielded) for state in (first, *others)]
            raise DataError(
                f"the ranks stand at different batches, (epoch, batches) {places}: what is left cannot be dealt out "
                "anew; resume with the states of one checkpoint"
            )
        self._go_to(rest)


def _resolve_ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    if num_replicas is None or rank is None:
        import torch.distributed as dist  # asked only here

        running = dist.is_available() and dist.is_initialized()
        num_replicas = num_replicas if num_replicas is not None else (dist.get_world_size() if running else 1)
        rank = rank if rank is not None else (dist.get_rank() if running else 0)
    if not 0 <= rank < num_replicas:
        raise ValueError(f"rank ({rank}) must be at least 0 and below num_replicas ({num_replicas})")
    return num_replicas, rank
