"""Who sees whom in a pack: one predicate over (sample, split, mode), dense or handed to a kernel.

Each sample is cut into splits, in order. A row may see another one of its own sample if that lies in the past, or
anywhere in its own split when the split is ``full`` or ``noise``; nobody outside a ``noise`` split sees into it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Rule = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Splits:
    """The cuts of a pack, the last sample and the last split being its padding (possibly of length 0).

    Attributes:
        sample_lens: Rows of each sample.
        split_lens: Rows of each split; the splits of a sample follow each other.
        modes: ``causal``, ``full`` or ``noise`` for each split.
    """

    sample_lens: Sequence[int]
    split_lens: Sequence[int]
    modes: Sequence[str]

    @property
    def padded_length(self) -> int:
        return sum(self.split_lens)

    def rule(self, device: torch.device) -> Rule:
        """Return the predicate (query rows, key rows) -> bool over rows of the padded pack; its arguments broadcast."""
        split = _numbered(self.split_lens).to(device)
        sample = _numbered(self.sample_lens).to(device)
        noise = torch.tensor([mode == "noise" for mode in self.modes], device=device)[split]
        two_way = torch.tensor([mode != "causal" for mode in self.modes], device=device)[split]

        def may_attend(query: Tensor, key: Tensor) -> Tensor:
            same_split = split[query] == split[key]
            reachable = (key <= query) | (same_split & two_way[key])
            return (sample[query] == sample[key]) & reachable & (same_split | ~noise[key])

        return may_attend

    def sample_masks(self, device: torch.device) -> list[Tensor]:
        """Return for each sample but the padding what its rows may see, bool [n, n]."""
        rule = self.rule(device)
        rows = torch.arange(self.padded_length, device=device).split(list(self.sample_lens))
        return [rule(own[:, None], own[None, :]) for own in rows[:-1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleMasks:
    """What the rows of each sample may see, as the nested batches carry it: additive float [n, n], 0 or -inf."""

    additive: Sequence[Tensor]

    def sample_masks(self, device: torch.device) -> list[Tensor]:
        """Return the same as bool, on ``device``."""
        return [mask.to(device) == 0 for mask in self.additive]


Visibility = Splits | SampleMasks


def _numbered(lengths: Sequence[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
