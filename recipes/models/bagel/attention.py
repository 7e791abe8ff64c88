"""Joint attention over a pack: per-sample SDPA anywhere, one block-sparse flex kernel on a GPU.

Both are planned once for a pack and called by every layer with q [L, H, d] and k, v [L, K, d] in pack order; each key
head serves H / K consecutive query heads.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from recipes.models.bagel.masks import Splits, Visibility

AttentionKind = Literal["auto", "sdpa"]


class PackedAttention(Protocol):
    """Attention whose mask is already known."""

    def __call__(self, q_LHd: Tensor, k_LKd: Tensor, v_LKd: Tensor) -> Tensor:
        """Return what every row gathered, [L, H, d]."""
        ...


@dataclass(frozen=True, slots=True)
class SampleAttention:
    """Scaled dot-product attention sample by sample; a mask of None lets the rows of a sample see all of it."""

    lengths: Sequence[int]
    masks: Sequence[Tensor | None]

    def __call__(self, q_LHd: Tensor, k_LKd: Tensor, v_LKd: Tensor) -> Tensor:
        samples = zip(*(x.split(list(self.lengths)) for x in (q_LHd, k_LKd, v_LKd)), self.masks, strict=True)
        return torch.cat([_attend(q, k, v, mask) for q, k, v, mask in samples])


@dataclass(frozen=True, slots=True)
class FlexAttention:
    """One kernel over the whole padded pack that skips the blocks nobody may see.

    Padding keeps the shape the same from pack to pack, so that the kernel is compiled once; padding rows exist in q, k
    and v alone. ``compiled=False`` materializes all scores and is for comparisons.
    """

    block_mask: BlockMask
    padded_length: int
    compiled: bool = True

    def __call__(self, q_LHd: Tensor, k_LKd: Tensor, v_LKd: Tensor) -> Tensor:
        attend = _compiled_flex() if self.compiled else flex_attention
        padding = (0, 0, 0, self.padded_length - len(q_LHd))
        q, k, v = (F.pad(x.transpose(0, 1), padding)[None] for x in (q_LHd, k_LKd, v_LKd))
        return attend(q, k, v, block_mask=self.block_mask, enable_gqa=True)[0, :, : len(q_LHd)].transpose(0, 1)


def plan_attention(kind: AttentionKind, visibility: Visibility, device: torch.device) -> PackedAttention:
    """Plan the attention of one pack; ``auto`` takes flex where the pack has splits and lies on a GPU."""
    if kind == "auto" and isinstance(visibility, Splits) and device.type == "cuda":
        return plan_flex(visibility, device)
    masks = visibility.sample_masks(device)
    return SampleAttention([len(mask) for mask in masks], masks)


def plan_flex(splits: Splits, device: torch.device, *, compiled: bool = True) -> FlexAttention:
    """Find the blocks of a pack that the flex kernel must visit, at most in part or in whole."""
    may_attend = splits.rule(device)
    length = splits.padded_length

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return may_attend(query, key)

    create = _compiled_block_mask() if compiled else create_block_mask
    return FlexAttention(create(mask_mod, None, None, length, length, device=device), length, compiled)


def _attend(q_nHd: Tensor, k_nKd: Tensor, v_nKd: Tensor, mask: Tensor | None) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q_nHd, k_nKd, v_nKd))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)


@functools.cache
def _compiled_block_mask() -> Callable[..., Any]:
    return torch.compile(create_block_mask)
