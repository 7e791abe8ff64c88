"""With other ranks, workers or batch sizes the unread samples are dealt out anew: none lost, none read twice."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig
from automodel_data.diffusion.loader import LatentDataloader
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataloaderConfig
from automodel_data.errors import DataError

SMALL, TALL, LARGE = (4, 4, 4), (4, 8, 4), (4, 8, 8)
SAMPLES = 55


@pytest.fixture
def cache(make_edit_cache: Callable[..., Path]) -> Path:
    return make_edit_cache({SMALL: 29, TALL: 7, LARGE: 19})


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """So many ranks, workers on each, and samples in a batch."""

    ranks: int
    workers: int = 0
    batch_size: int = 2

    def loaders(self, cache: Path, states: list[dict[str, Any]] | None, **options: Any) -> list[LatentDataloader]:
        config = ImageEditDataloaderConfig(
            str(cache), **{"bucket_policy": "partial", "num_workers": self.workers, **options}
        )
        built = [config.build(rank, self.ranks, self.batch_size).dataloader for rank in range(self.ranks)]
        if states is not None:
            for loader in built:
                loader.load_elastic(states)
        return built


def rows(batch: dict[str, Any]) -> list[int]:
    return [sample["original_ids"]["row"] for sample in batch["metadata"]["samples"]]


def read(loaders: list[LatentDataloader], steps: int | None = None) -> list[int]:
    """Read so many batches on every rank, or the rest of the epoch."""
    return [row for loader in loaders for batch in islice(loader, steps) for row in rows(batch)]


def states_of(loaders: list[LatentDataloader]) -> list[dict[str, Any]]:
    return json.loads(json.dumps([loader.state_dict() for loader in loaders]))


@pytest.mark.parametrize("order", ["sequential", "interleaved"])
def test_every_sample_is_read_once_in_the_epoch_across_three_changes(cache: Path, order: str) -> None:
    seen: list[int] = []
    states = None
    for run, steps in (
        (Run(ranks=2, workers=1, batch_size=1), 4),
        (Run(ranks=1, batch_size=2), 3),
        (Run(ranks=3, batch_size=1), 2),
    ):
        loaders = run.loaders(cache, states, bucket_order=order)
        seen += read(loaders, steps)
        states = states_of(loaders)
    seen += read(last := Run(ranks=2, batch_size=3).loaders(cache, states, bucket_order=order))
    assert set(seen) == set(range(SAMPLES))
    assert len(seen) - SAMPLES == sum(plan.repeated for plan in last[0].sampler.plans)


def test_what_a_short_batch_would_have_lost_is_dealt_out_too(cache: Path) -> None:
    first = Run(ranks=2, batch_size=4).loaders(cache, None, bucket_policy="drop")
    seen = read(first)
    assert set(seen) != set(range(SAMPLES))
    rest = read(Run(ranks=1, batch_size=1).loaders(cache, states_of(first), bucket_policy="drop"))
    assert sorted(rest) == sorted(set(range(SAMPLES)) - set(seen))


@pytest.mark.parametrize("policy", ["drop", "partial", "pad"])
def test_ranks_stay_in_step_on_what_is_left(cache: Path, policy: str) -> None:
    read(first := Run(ranks=2).loaders(cache, None, bucket_policy=policy), 4)
    loaders = Run(ranks=3, batch_size=3).loaders(cache, states_of(first), bucket_policy=policy)
    steps = list(zip(*loaders, strict=True))
    assert len(steps) == len(loaders[0])
    assert all(len({batch["image_latents"].shape for batch in step}) == 1 for step in steps)


def test_the_next_epochs_are_the_usual_ones(cache: Path) -> None:
    read(first := Run(ranks=2).loaders(cache, None), 3)
    (resumed,) = Run(ranks=1).loaders(cache, states_of(first))
    list(resumed)
    resumed.sampler.set_epoch(1)
    (usual,) = Run(ranks=1).loaders(cache, None)
    usual.sampler.set_epoch(1)
    assert read([resumed]) == read([usual])
    assert resumed.state_dict() == usual.state_dict()


def test_a_state_between_two_changes_resumes_as_any_other(cache: Path) -> None:
    read(first := Run(ranks=2).loaders(cache, None), 3)
    run = Run(ranks=1, batch_size=3)
    whole = read(run.loaders(cache, states_of(first)))
    (stopped,) = run.loaders(cache, states_of(first))
    seen = read([stopped], 4)
    for _ in range(2):
        (resumed,) = run.loaders(cache, None)
        resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
        seen += read([resumed], 3)
        stopped = resumed
    (resumed,) = run.loaders(cache, None)
    resumed.load_state_dict(stopped.state_dict())
    assert seen + read([resumed]) == whole


def test_an_epoch_read_to_its_end_leaves_nothing(cache: Path) -> None:
    read(first := Run(ranks=2).loaders(cache, None))
    (resumed,) = Run(ranks=1).loaders(cache, states_of(first))
    assert read([resumed]) == []
    resumed.sampler.set_epoch(resumed.sampler.epoch + 1)
    assert sorted(read([resumed])) == list(range(SAMPLES))


def test_the_state_stays_a_few_numbers(cache: Path) -> None:
    read(loaders := Run(ranks=2).loaders(cache, None), 2)
    plain = loaders[0].state_dict()["sampler"]
    assert plain.keys() == {"epoch", "batches_yielded", "made_with"}
    for ranks in (1, 3, 2):
        read(loaders := Run(ranks=ranks).loaders(cache, states_of(loaders)), 1)
    stretches = loaders[0].state_dict()["sampler"]["stretches"]
    assert [tuple(one.values()) for one in stretches] == [(2, 2, 2), (1, 2, 1), (3, 2, 1)]


def test_batches_sized_by_pixels_are_replayed_in_their_size(make_t2i_cache: Callable[..., Path]) -> None:
    cache = make_t2i_cache({(64, 64): 24, (128, 128): 6})
    config = TextToImageDataloaderConfig(
        str(cache), base_resolution=(128, 128), dynamic_batch_size=True, drop_last=False, num_workers=0
    )
    first = [config.build(rank, 2, 1).dataloader for rank in range(2)]
    seen = [prompt for loader in first for batch in islice(loader, 3) for prompt in batch["metadata"]["prompts"]]
    second = config.build(0, 1, 2).dataloader
    second.load_elastic(states_of(first))
    seen += [prompt for batch in second for prompt in batch["metadata"]["prompts"]]
    assert Counter(seen) == Counter(f"prompt {row}" for row in range(30))


def test_rank_0_counts_on_from_what_all_ranks_lost(make_edit_cache: Callable[..., Path]) -> None:
    def spoil(payload: dict[str, Any], row: int) -> None:
        if row < 6:
            payload["target_latent"][0, 0, 0] = torch.nan

    cache = make_edit_cache({SMALL: 24}, spoil)
    read(first := Run(ranks=2).loaders(cache, None, bad_payload="skip"), 5)
    read(second := Run(ranks=3).loaders(cache, states_of(first), bad_payload="skip"))
    reason = "payload not finite"
    assert sum(loader.drops().get(str(cache), {}).get(reason, 0) for loader in second) == 6


def test_ranks_that_stand_at_different_batches_are_refused(cache: Path) -> None:
    loaders = Run(ranks=2).loaders(cache, None)
    read(loaders[:1], 2)
    with pytest.raises(DataError, match=r"stand at different batches, .* \[\(0, 2\), \(0, 0\)\].*of one checkpoint"):
        Run(ranks=1).loaders(cache, states_of(loaders))


def test_another_seed_or_cache_is_refused_all_the_same(cache: Path, make_edit_cache: Callable[..., Path]) -> None:
    states = states_of(Run(ranks=2).loaders(cache, None))
    with pytest.raises(DataError, match=r"another order: seed \(42 then, 1 now\); "):
        Run(ranks=1).loaders(cache, states, seed=1)
    with pytest.raises(DataError, match=r"samples \(55 then, 8 now\)"):
        Run(ranks=1).loaders(make_edit_cache({SMALL: 8}, name="other"), states)
