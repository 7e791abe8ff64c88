"""Packs drawn without a model: how full they are, what was lost, who is in them, and where the time goes."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from automodel_data.multimodal.checks import read_groups
from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from automodel_data.multimodal.loader import BagelDataloaderConfig
from automodel_data.multimodal.utils import add_special_tokens
from recipes.validate.findings import Check, Finding, problem, warning


@dataclass(kw_only=True, slots=True)
class GroupMix:
    """A group's part of the packs.

    Args:
        weight: Share that the config asks for.
        samples, tokens: In all packs.
        lost: Samples lost while the packs were drawn.
        steps_per_pass: Optimizer steps until its rows have been read once, estimated; None where nobody knows its rows.
    """

    weight: float
    is_mandatory: bool
    samples: int = 0
    tokens: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    steps_per_pass: float | None = None

    @property
    def num_lost(self) -> int:
        return sum(self.lost.values())

    @property
    def read(self) -> int:
        """Samples packed and lost."""
        return self.samples + self.num_lost


@dataclass(kw_only=True, slots=True)
class PacksReport:
    """The packs drawn. Lengths in tokens, ``seconds`` by stage; ``capacity`` is ``max_num_tokens``."""

    capacity: int
    lengths: list[int]
    groups: dict[str, GroupMix]
    seconds: dict[str, float]

    @property
    def fills(self) -> list[float]:
        """How full each pack is, 0 to 1."""
        return [length / self.capacity for length in self.lengths]

    @property
    def samples(self) -> int:
        return sum(group.samples for group in self.groups.values())

    @property
    def tokens(self) -> int:
        return sum(self.lengths)


def draw_packs(data: BagelDataloaderConfig, tokenizer: Any, seed: int, count: int) -> PacksReport:
    """Draw ``count`` packs in this process, as its only rank.

    Raises:
        DataError: the data gives none.
    """
    tokenizer, special_tokens, _ = add_special_tokens(tokenizer)
    build = replace(data, num_workers=0).build(tokenizer, special_tokens, 0, 1, 1, seed)
    groups = read_groups(data.dataset_config)
    weights = sum(group.weight for group in groups)
    mix = {group.name: GroupMix(weight=group.weight / weights, is_mandatory=group.is_mandatory) for group in groups}
    lengths: list[int] = []
    started = time.perf_counter()
    for batch in islice(build.dataloader, count):
        lengths.append(batch.sequence_length)
        _count(batch, mix)
    wall = time.perf_counter() - started
    for name, lost in build.dataloader.drops().items():
        mix[name].lost = lost
    spent = build.dataset.materializer.seconds
    stages = {"plan": wall - spent.decode - spent.assemble, "decode": spent.decode, "assemble": spent.assemble}
    return PacksReport(capacity=data.dataset_config.max_num_tokens, lengths=lengths, groups=mix, seconds=stages)


def _count(batch: SimpleCustomBatch, mix: Mapping[str, GroupMix]) -> None:
    for origin, length in zip(batch.batch_data_indexes, batch.sample_lens, strict=False):  # the last pads, with flex
        group = mix[origin["dataset_name"]]
        group.samples += 1
        group.tokens += length


def estimate_passes(report: PacksReport, rows: Mapping[str, int | None], packs_per_step: int) -> None:
    """Fill in for each group how many steps its ``rows`` last, ``packs_per_step`` over all ranks."""
    for name, group in report.groups.items():
        known = rows[name]
        if known is not None and group.read:
            group.steps_per_pass = known / (group.read / len(report.lengths)) / packs_per_step


def judge_packs(report: PacksReport, split: str, max_lost: float) -> Iterator[Finding]:
    """Yield what the packs show that a look at the rows does not."""
    for name, group in report.groups.items():
        if group.read == 0:
            line = f"not one sample in {len(report.lengths)} packs; raise its weight ({group.weight:.0%} of all)"
            yield warning(Check.PACKS, f"{split}/{name}", line)
        expected = max_lost * group.read
        if group.num_lost > expected + 2 * math.sqrt(expected):  # more than chance makes of so few samples
            reasons = ", ".join(f"{count} x {reason}" for reason, count in group.lost.items())
            line = f"{group.num_lost} of {group.read} samples read for {len(report.lengths)} packs were lost: {reasons}"
            yield problem(Check.PACKS, f"{split}/{name}", line)
