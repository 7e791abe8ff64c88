"""Packs are those of the contract's words, within their budgets; broken data costs rows, never a pack or the run."""

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from automodel_data.multimodal.datasets import make_bagel_multimodal_dataset

Names = list[tuple[str, int]]


# the packer by the book -------------------------------------------------------------------------------------------


@dataclass
class ByTheBook:
    """The packer as the contract words it, over groups of captioned images of known lengths."""

    groups: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any]
    rng: random.Random
    lost: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = {name: self._rows(name, group["lengths"]) for name, group in self.groups.items()}

    def _rows(self, name: str, lengths: list[int]) -> Iterator[tuple[str, int, int]]:
        for row in itertools.cycle(range(len(lengths))):
            self.rng.choice(["the only caption"])
            yield name, row, lengths[row]

    def _lose(self, name: str, reason: str) -> None:
        reasons = self.lost.setdefault(name, {})
        reasons[reason] = reasons.get(reason, 0) + 1

    def _tokens(self, length: int) -> int:
        """Draw for dropout; return the tokens that the sample takes."""
        dropped = self.rng.random() < self.options["text_cond_dropout_prob"]
        return 3 if dropped else length  # a dropped caption leaves the image of one patch

    def _draw_group(self) -> str:
        total = sum(group["weight"] for group in self.groups.values())
        u, bound = self.rng.random(), 0.0
        for name, group in self.groups.items():
            bound += group["weight"] / total
            if u < bound:
                return name
        raise AssertionError

    def packs(self) -> Iterator[tuple[Names, int]]:
        o = self.options
        pack: Names = []
        tokens = 0
        buffer: list[tuple[str, int, int]] = []
        while True:
            if not pack:
                for name, group in self.groups.items():
                    if group["is_mandatory"]:
                        while (sample := next(self.rows[name]))[2] >= o["max_num_tokens_per_sample"]:
                            self._lose(name, "too long")
                        pack.append(sample[:2])
                        tokens += self._tokens(sample[2])
            from_buffer = tokens < o["prefer_buffer_before"] and bool(buffer)
            sample = buffer.pop(0) if from_buffer else next(self.rows[self._draw_group()])
            name, _, length = sample
            if length > o["max_num_tokens_per_sample"]:
                self._lose(name, "too long")
            elif tokens + length > o["max_num_tokens"]:
                if not from_buffer and len(buffer) < o["max_buffer_size"]:
                    buffer.append(sample)
                    continue
                self._lose(name, "pack and buffer full")
                yield pack, tokens
                pack, tokens = [], 0
            else:
                pack.append(sample[:2])
                tokens += self._tokens(length)
                if tokens >= o["expected_num_tokens"]:
                    yield pack, tokens
                    pack, tokens = [], 0


MIXTURES = {
    "one": {"a": {"lengths": [10, 11, 9, 17, 13, 25], "weight": 1.0, "is_mandatory": False}},
    "mandatory": {"a": {"lengths": [10, 20, 9, 17, 13, 21], "weight": 1.0, "is_mandatory": True}},
    "two": {
        "a": {"lengths": [6, 12, 20, 7], "weight": 1.0, "is_mandatory": True},
        "b": {"lengths": [18, 9, 30], "weight": 2.5, "is_mandatory": False},
    },
    "both": {
        "a": {"lengths": [6, 19, 20, 7], "weight": 1.0, "is_mandatory": True},
        "b": {"lengths": [18, 9, 30, 6, 20], "weight": 3, "is_mandatory": True},
    },
}
BUDGETS = {
    "plain": {"expected_num_tokens": 30, "prefer_buffer_before": 0, "max_buffer_size": 3},
    "prefer": {"expected_num_tokens": 38, "prefer_buffer_before": 25, "max_buffer_size": 2},
    "always": {"expected_num_tokens": 40, "prefer_buffer_before": 40, "max_buffer_size": 1},
    "none": {"expected_num_tokens": 36, "prefer_buffer_before": 20, "max_buffer_size": 0},
    "dropout": {
        "expected_num_tokens": 33,
        "prefer_buffer_before": 20,
        "max_buffer_size": 2,
        "text_cond_dropout_prob": 0.4,
    },
}


def names(batch: Any) -> Names:
    return [(index["dataset_name"], index["data_indexes"][-1]) for index in batch.batch_data_indexes]


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("budget", BUDGETS)
def test_packs_and_losses_are_those_of_the_contract(mixture: str, budget: str, workshop: Any) -> None:
    for name, group in MIXTURES[mixture].items():
        workshop.add_lengths(name, group["lengths"], weight=group["weight"], is_mandatory=group["is_mandatory"])
    options = {"max_num_tokens_per_sample": 20, "max_num_tokens": 40, "text_cond_dropout_prob": 0.0} | BUDGETS[budget]
    for seed in range(3):
        loader = workshop.build(seed=seed, **options).dataloader
        book = ByTheBook(MIXTURES[mixture], options, random.Random(seed))
        for batch, (pack, tokens) in islice(zip(loader, book.packs(), strict=True), 15):
            assert (names(batch), batch.sequence_length) == (pack, tokens)
            assert loader.drops() == book.lost
            assert batch.sequence_length <= options["max_num_tokens"]
            assert sum(batch.sample_lens) == sum(batch.split_lens) == options["max_num_tokens"]


@pytest.mark.parametrize("seed", range(5))
def test_no_pack_breaks_the_hard_budget_or_is_empty_whatever_the_lengths(seed: int, workshop: Any) -> None:
    rng = random.Random(seed)
    for name in "abc":
        lengths = [rng.randint(6, 40) for _ in range(30)]
        workshop.add_lengths(name, lengths, weight=rng.random() + 0.1, is_mandatory=name != "c")
    options = {
        "max_num_tokens": 60,
        "max_num_tokens_per_sample": 30,
        "expected_num_tokens": rng.randint(1, 60),
        "prefer_buffer_before": rng.randint(0, 60),
        "max_buffer_size": rng.randint(0, 5),
        "text_cond_dropout_prob": 0.2,
    }
    for batch in islice(workshop.build(seed=seed, **options).dataloader, 40):
        assert 0 < batch.sequence_length <= 60
        assert len(batch.packed_position_ids) == batch.sequence_length


def test_a_sample_as_long_as_the_pack_fits(workshop: Any) -> None:
    workshop.add_lengths("a", [40, 41])
    batches = list(islice(workshop.build(max_num_tokens_per_sample=40, expected_num_tokens=40).dataloader, 3))
    assert [batch.sequence_length for batch in batches] == [40, 40, 40]
    assert batches[0].split_lens[-1] == 0


# its generators ---------------------------------------------------------------------------------------------------


def test_the_global_generators_of_this_process_are_neither_read_nor_seeded(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 12, 14])
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    batches = list(islice(workshop.build().dataloader, 3))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    random.seed(99)
    np.random.seed(99)
    again = list(islice(workshop.build().dataloader, 3))
    for ours, theirs in zip(batches, again, strict=True):
        assert torch.equal(ours.packed_timesteps, theirs.packed_timesteps)


def test_ranks_draw_differently(workshop: Any) -> None:
    workshop.add_vlm("talk", [{"conversations": [{"from": "gpt", "value": str(number)}]} for number in range(8)])
    streams = [
        [batch.packed_text_ids.tolist() for batch in islice(workshop.build(rank=rank, world_size=2).dataloader, 2)]
        for rank in range(2)
    ]
    assert streams[0] != streams[1]


# resume -----------------------------------------------------------------------------------------------------------


def test_a_buffer_of_edits_is_restored_with_its_order_and_its_losses_counted_once(workshop: Any) -> None:
    pictures = [workshop.image(16 * (number + 1), 16, number) for number in range(4)]
    workshop.add_edit("edits", [(pictures[: 2 + row % 3], [["a", "bb"]] * (1 + row % 3)) for row in range(9)], 4)
    workshop.add_lengths("a", [10, 25, 12, 19, 18])
    budget = {"max_num_tokens": 44, "expected_num_tokens": 42, "max_num_tokens_per_sample": 24, "max_buffer_size": 6}
    whole = workshop.build(**budget)
    wanted = [names(batch) for batch in islice(whole.dataloader, 20)]
    read, state, buffered = [], None, 0
    for _ in range(20):
        loader = workshop.build(**budget).dataloader
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        read += [names(batch) for batch in islice(loader, 1)]
        state = loader.state_dict()
        buffered = max(buffered, len(state["workers"][0]["buffer"]))
    assert read == wanted
    assert buffered >= 3
    assert loader.drops() == whole.dataloader.drops()


def test_losses_that_belong_to_no_group_are_counted_on_after_a_resume(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 11, 12, 13])
    state = workshop.build().dataloader.state_dict()
    for resumed in (1, 2, 3):
        loader = workshop.build().dataloader
        loader.load_state_dict(json.loads(json.dumps(state)))
        batches = iter(loader)
        next(batches)
        loader.dataset._log_drop("unforeseen", "resume %d", resumed)
        next(batches)
        state = loader.state_dict()
        assert loader.drops()["packing"] == {"unforeseen": resumed}


def test_a_resume_position_can_be_given_for_each_group(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 11, 12, 13], 2)
    dataset = make_bagel_multimodal_dataset(
        workshop.build().dataset.tokenizer,
        {"bos_token_id": 1, "eos_token_id": 2, "start_of_image": 3, "end_of_image": 4},
        workshop.groups,
        num_workers=0,
        max_num_tokens=40,
        max_num_tokens_per_sample=20,
        expected_num_tokens=20,
        data_status={"a": [[0, 1, 0]]},
        dataset_info=workshop.info,
    )
    first = next(iter(dataset))["batch_data_indexes"]
    assert [index["data_indexes"] for index in first] == [[0, 1, 1], [0, 0, 0]]


def test_a_dataset_iterated_twice_begins_twice_at_the_same_place(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 11, 12, 13])
    dataset = workshop.build().dataset
    streams = [[batch["batch_data_indexes"] for batch in islice(dataset, 4)] for _ in range(2)]
    assert streams[0] == streams[1]
    (state,) = (state for _, state in islice(dataset.packs_with_state(), 1))
    dataset.load_state_dict(state)
    later = [[batch["batch_data_indexes"] for batch in islice(dataset, 3)] for _ in range(2)]
    assert later[0] == later[1] == streams[0][1:]
    dataset.load_state_dict(None)
    assert [batch["batch_data_indexes"] for batch in islice(dataset, 4)] == streams[0]


def test_the_documented_defaults_build_a_dataset_whose_draws_follow_data_seed(workshop: Any) -> None:
    workshop.add_lengths("a", [10, 11, 12, 13])
    tokenizer = workshop.build().dataset.tokenizer
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "start_of_image": 3, "end_of_image": 4}
    datasets = [
        make_bagel_multimodal_dataset(
            tokenizer,
            tokens,
            workshop.groups,
            num_workers=0,
            dataset_info=workshop.info,
            data_seed=seed,
            max_num_tokens=40,
            max_num_tokens_per_sample=20,
            expected_num_tokens=30,
        )
        for seed in (1, 1, 2)
    ]
    batches = [next(iter(dataset)) for dataset in datasets]
    timesteps = [batch["packed_timesteps"].tolist() for batch in batches]
    assert timesteps[0] == timesteps[1] != timesteps[2]
    assert "nested_attention_masks" in batches[0]
