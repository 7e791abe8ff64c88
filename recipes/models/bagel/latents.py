"""Latents as tokens, and the flow that noises them (rectified flow; Liu et al., 2022, Esser et al., 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor

Grid = tuple[int, int]


def patchify(latents_MCHW: Tensor, grids: Sequence[Grid], patch: int) -> Tensor:
    """Cut each padded latent to its grid of tokens, in raster order, and lay the images end to end.

    Returns:
        [G, patch * patch * C]; inside a token the row of the patch is slowest and the channel fastest.
    """
    tokens = [latents_MCHW.new_empty(0, patch * patch * latents_MCHW.shape[1])]
    for latent, (h, w) in zip(latents_MCHW, grids, strict=True):
        cells = latent[:, : h * patch, : w * patch].unflatten(2, (w, patch)).unflatten(1, (h, patch))
        tokens.append(cells.permute(1, 3, 2, 4, 0).reshape(h * w, -1))
    return torch.cat(tokens)


def unpatchify(tokens_GF: Tensor, grid: Grid, patch: int) -> Tensor:
    """Undo ``patchify`` for one image: [h * w, patch * patch * C] to [C, h * patch, w * patch]."""
    h, w = grid
    cells = tokens_GF.reshape(h, w, patch, patch, -1).permute(4, 0, 2, 1, 3)
    return cells.reshape(-1, h * patch, w * patch)


def shift_time(u: Tensor, shift: float) -> Tensor:
    """Move times in [0, 1] towards noise by the resolution shift; 0 and 1 stay where they are."""
    return shift * u / (1 + (shift - 1) * u)


def add_noise(clean_GF: Tensor, noise_GF: Tensor, time_G: Tensor) -> Tensor:
    """Go from data (time 0) a straight line towards noise (time 1)."""
    time = time_G[:, None]
    return (1 - time) * clean_GF + time * noise_GF
