"""PackedDataset: samples of several groups packed into token budgets, for ever, from any point.

::

    packer (mixture, policy) -> lay_out -> [closed pack, resume state] -> materialize -> batch
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from automodel_data.errors import DataError, DropLedger, merge_counts
from automodel_data.images import ImagePolicy, image_backend
from automodel_data.multimodal.checks import check_config, read_groups
from automodel_data.multimodal.config import BagelDatasetConfig
from automodel_data.multimodal.groups import GroupConfig
from automodel_data.multimodal.materialize import Materializer
from automodel_data.multimodal.mixture import Group, Mixture
from automodel_data.multimodal.pack_builder import LayoutRules, OpenPack, SpecialTokens, lay_out
from automodel_data.multimodal.packer import Packer
from automodel_data.multimodal.plan import Sample, sample_from_mapping
from automodel_data.multimodal.policy import PackingPolicy
from automodel_data.multimodal.state import BufferedSample, StreamState
from automodel_data.placement import Placement
from automodel_data.randomness import Randomness

DataConfig = BagelDatasetConfig


class PackedDataset(IterableDataset):
    """Packs of samples, without end.

    Every random draw comes from generators owned by this object and seeded by ``Placement.seed(global_seed)``; the
    state behind each pack names rows and decisions, never images.

    Args:
        data_config: Groups, dropout, patch sizes, image backend.
        tokenizer: Encodes texts to ids.
        special_tokens: Ids of ``bos_token_id``, ``eos_token_id``, ``start_of_image``, ``end_of_image``.
        local_rank: Global rank of this process.
        world_size: Ranks in all.
        num_workers: Worker processes of the dataloader, 0 for none.
        expected_num_tokens: See ``BagelDatasetConfig``, as for the other budgets.
        data_status: For each group positions to resume behind, one for each worker.
        dataset_info: Where the datasets lie.
        global_seed: Seed of all draws; ``data_config.data_seed`` where omitted.

    Raises:
        DataError: knobs contradict each other, or there is too little data to share out.
    """

    def __init__(
        self,
        data_config: BagelDatasetConfig,
        tokenizer: Any,
        special_tokens: Mapping[str, Any],
        local_rank: int,
        world_size: int,
        num_workers: int,
        expected_num_tokens: int = 32768,
        max_num_tokens_per_sample: int = 16384,
        max_num_tokens: int = 36864,
        prefer_buffer_before: int = 16384,
        max_buffer_size: int = 50,
        interpolate_pos: bool = False,
        use_flex: bool = False,
        data_status: Any = None,
        dataset_info: Mapping[str, Any] | None = None,
        global_seed: int | None = None,
    ) -> None:
        self.data_config = data_config
        self.tokenizer = tokenizer
        self.placement = Placement(rank=local_rank, world_size=world_size, num_workers=num_workers)
        self.dataset_info = data_config.resolved_dataset_info if dataset_info is None else dataset_info
        self.global_seed = data_config.data_seed if global_seed is None else global_seed
        policy = PackingPolicy(
            expected_num_tokens=expected_num_tokens,
            max_num_tokens_per_sample=max_num_tokens_per_sample,
            max_num_tokens=max_num_tokens,
            prefer_buffer_before=prefer_buffer_before,
            max_buffer_size=max_buffer_size,
        )
        check_config(data_config, policy, self.dataset_info)
        self._rules = LayoutRules(
            tokens=SpecialTokens(**special_tokens),
            text_cond_dropout_prob=data_config.text_cond_dropout_prob,
            vit_cond_dropout_prob=data_config.vit_cond_dropout_prob,
            vae_cond_dropout_prob=data_config.vae_cond_dropout_prob,
            vae_image_downsample=data_config.vae_image_downsample,
            max_latent_size=data_config.max_latent_size,
            vit_patch_size=data_config.vit_patch_size,
            max_num_patch_per_side=data_config.max_num_patch_per_side,
            interpolate_pos=interpolate_pos,
        )
        backend = image_backend(data_config.image_backend)
        self.materializer = Materializer(
            rules=self._rules, backend=backend, max_num_tokens=max_num_tokens if use_flex else None
        )
        self._mixture = Mixture(self.build_datasets(read_groups(data_config), data_status))
        self._packer = Packer(mixture=self._mixture, policy=policy, lay_out=self.pack_sequence)
        self._rng = Randomness(self.placement.seed(self.global_seed))
        self._ledger = DropLedger()
        self._yielded = 0
        self._resume: StreamState | None = None
        self.worker_id: int | None = None

    # what it is made of -------------------------------------------------------------------------------------------

    def build_datasets(self, datasets_metainfo: Sequence[GroupConfig], data_status: Any) -> list[Group]:
        """Build the groups' sources; ``data_status`` maps groups to positions."""
        return [
            config.build(self.dataset_info, self.tokenizer, self.placement, (data_status or {}).get(config.name))
            for config in datasets_metainfo
        ]

    def set_epoch(self, seed: int) -> None:
        """Shuffle every source's paths with ``seed`` and share them out."""
        for group in self._mixture.groups:
            group.source.set_epoch(seed)

    def set_sequence_status(self) -> OpenPack:
        """Return an empty pack."""
        return OpenPack()

    def pack_sequence(self, sample: Mapping[str, Any], sequence_status: OpenPack) -> OpenPack:
        """Lay out a sample behind those of the pack.

        Raises:
            SkipSample: condition dropout left nothing of it.
        """
        sequence_status.add(lay_out(sample_from_mapping(sample), self._rules, self._rng))
        return sequence_status

    def to_tensor(self, sequence_status: OpenPack) -> dict[str, Any]:
        """Decode a pack's images and return its tensors (see ``SimpleCustomBatch``).

        Raises:
            DataError: none of its samples could be decoded.
        """
        with self._decode_pool() as pool:
            batch = self.materializer.materialize(sequence_status.layouts, pool, self._mixture.reject)
        if batch is None:
            raise DataError("no sample of the pack could be decoded")
        return batch

    # the stream ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield packs as mappings of tensors, without end."""
        return map(itemgetter(0), self.packs_with_state())

    def packs_with_state(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield each pack with the state behind it (plain values)."""
        with self._decode_pool() as pool:
            for pack in self.planned_packs():
                batch = self.materializer.materialize(pack.layouts, pool, self._mixture.reject)
                if batch is not None:
                    self._yielded += 1
                    yield batch, self.state_dict()
                    del batch  # it must not lie beside the next one while that is made

    def planned_packs(self) -> Iterator[OpenPack]:
        """Yield closed packs without decoding an image: what a stream will hold, at the price of its headers."""
        self._begin()
        yield from self._packer.packs(self._rng)

    def _begin(self) -> None:
        info = get_worker_info()
        worker = self.worker_id if self.worker_id is not None else (0 if info is None else info.id)
        seed = replace(self.placement, worker=worker).seed(self.global_seed)
        if info is not None:  # so that a parse_row that draws from the global generators is reproducible too
            random.seed(seed)
            np.random.seed(seed)
        self._rng = Randomness(seed)
        policy = ImagePolicy(
            exif_orientation=self.data_config.exif_orientation, max_pixels=self.data_config.max_image_pixels
        )
        for group in self._mixture.groups:
            group.rewind(self.worker_id)
            group.source.adopt(self._rng, policy)
        self._set_resume_point([], 0)
        self._ledger = DropLedger()
        if self._resume is not None:
            self._restore(self._resume)

    def _log_drop(self, reason: str, message: str, *args: Any, every: int = 100) -> None:
        """Count a loss that belongs to no group."""
        self._ledger.drop("packing", reason, detail=message % args if args else message)

    def _decode_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.data_config.decode_threads, thread_name_prefix="decode")

    # resume -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this stream behind its last pack, as plain values."""
        buffer = [BufferedSample.of(sample) for sample in self._packer.buffer]
        return StreamState(
            yielded=self._yielded,
            randomness=self._rng_state_dict(),
            groups=self._grouped_dataset_state_dicts(),
            buffer=buffer,
            drops=self._ledger.counts,
        ).to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | None) -> None:
        """Continue from a saved state (None: from the beginning) when next iterated.

        Raises:
            DataError: the state was saved with other groups.
        """
        self._resume = None
        if state_dict is None:
            return
        state = StreamState.from_dict(state_dict)
        names = [group.name for group in self._mixture.groups]
        if sorted(state.groups) != sorted(names):
            raise DataError(f"the data state was saved with the groups {sorted(state.groups)}, this run has {names}")
        self._resume = state

    def drops(self) -> dict[str, dict[str, int]]:
        """Return the samples lost so far in this stream, by group and reason."""
        return merge_counts(self._ledger.counts, *(group.source.ledger.counts for group in self._mixture.groups))

    def origin(self, data_index: Mapping[str, Any]) -> str:
        """Name the file and row of one of a batch's ``batch_data_indexes``."""
        source = self._mixture.source(data_index["dataset_name"])
        return source.locate(data_index["data_indexes"], data_index["worker_id"])

    def _restore(self, state: StreamState) -> None:
        self._load_grouped_dataset_state_dicts(state.groups)
        buffer = [self._mixture.source(one.index.dataset_name).restore(one.index, one.draws) for one in state.buffer]
        self._set_resume_point(buffer, state.yielded)
        self._ledger.load_state_dict(state.drops)
        self._load_rng_state_dict(state.randomness)

    def _set_resume_point(self, buffer: list[Sample], yielded_batches: int) -> None:
        self._packer.buffer = buffer
        self._yielded = yielded_batches

    def _rng_state_dict(self) -> dict[str, Any]:
        return self._rng.state_dict()

    def _load_rng_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rng.load_state_dict(state)

    def _grouped_dataset_state_dicts(self) -> dict[str, dict[str, Any]]:
        return {group.name: group.source.state_dict() for group in self._mixture.groups}

    def _load_grouped_dataset_state_dicts(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        for group in self._mixture.groups:
            group.source.load_state_dict(states[group.name])
