"""What a flow model takes, and latents as tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PATCH = 2

Grid = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowInputs:
    """A batch of one bucket, float32.

    Attributes:
        noisy_BCHW: The target between data (time 0) and noise (time 1).
        contexts: Clean latents [B, C, h, w] of every context image, in order.
        text_BSD: Encoded prompts.
        mask_BS: True where a prompt has a token.
        pooled_BD: One vector per prompt, for models that ask for it.
        time_B: Flow time of each target.
        conditioning: Names of the cache's conditioning tensors, for messages.
    """

    noisy_BCHW: Tensor
    contexts: Sequence[Tensor]
    text_BSD: Tensor
    mask_BS: Tensor
    pooled_BD: Tensor | None
    time_B: Tensor
    conditioning: Sequence[str] = ()

    def tokens(self) -> tuple[Tensor, list[Grid]]:
        """Return [B, N, 4 C], the target first, and the height and width of each image in tokens."""
        images = [self.noisy_BCHW, *self.contexts]
        grids = [(image.shape[2] // PATCH, image.shape[3] // PATCH) for image in images]
        return torch.cat([to_tokens(image) for image in images], dim=1), grids


def to_tokens(latents_BCHW: Tensor) -> Tensor:
    """Cut into patches in raster order: [B, H/2 * W/2, C * 2 * 2]."""
    B, C, H, W = latents_BCHW.shape
    cells = latents_BCHW.reshape(B, C, H // PATCH, PATCH, W // PATCH, PATCH)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(B, -1, C * PATCH * PATCH)


def to_latents(tokens_BNF: Tensor, grid: Grid) -> Tensor:
    """Undo ``to_tokens``: [B, C, H, W]."""
    (h, w), B = grid, len(tokens_BNF)
    cells = tokens_BNF.reshape(B, h, w, -1, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5)
    return cells.reshape(B, -1, h * PATCH, w * PATCH)
