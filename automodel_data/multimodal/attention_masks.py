"""Dense attention masks that are computed when somebody reads them: they cost O(n^2) floats."""

from collections.abc import Iterator, Sequence
from typing import overload

import torch

from automodel_data.multimodal.utils import prepare_attention_mask_per_sample


class AttentionMasks(Sequence[torch.Tensor]):
    """A pack's masks, one float32 [n, n] for each sample, made anew at every reading on ``device``."""

    def __init__(
        self,
        split_lens: Sequence[Sequence[int]],
        attn_modes: Sequence[Sequence[str]],
        device: torch.device | str | int = "cpu",
    ) -> None:
        self.split_lens = split_lens
        self.attn_modes = attn_modes
        self._device = device

    def to(self, device: torch.device | str | int) -> "AttentionMasks":
        """Return the same masks, to be made on ``device``."""
        return AttentionMasks(self.split_lens, self.attn_modes, device)

    def __len__(self) -> int:
        return len(self.split_lens)

    @overload
    def __getitem__(self, index: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> "AttentionMasks": ...
    def __getitem__(self, index: int | slice) -> "torch.Tensor | AttentionMasks":
        if isinstance(index, slice):
            return AttentionMasks(self.split_lens[index], self.attn_modes[index], self._device)
        return prepare_attention_mask_per_sample(self.split_lens[index], self.attn_modes[index], self._device)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self[index] for index in range(len(self)))
