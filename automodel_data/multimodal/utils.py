"""Small numeric pieces of the packed format."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image

from automodel_data.images import to_rgb


def patchify(image: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Cut an image [C, H, W] into raster-ordered patches [N, p * p * C], channels fastest."""
    channels, height, width = image.shape
    if height % patch_size or width % patch_size:
        raise ValueError(f"image of {height}x{width} pixels does not divide into patches of {patch_size}")
    rows, columns = height // patch_size, width // patch_size
    grid = image.reshape(channels, rows, patch_size, columns, patch_size)
    return grid.permute(1, 3, 2, 4, 0).reshape(rows * columns, patch_size * patch_size * channels)


def get_flattened_position_ids_extrapolate(
    img_h: int, img_w: int, patch_size: int, max_num_patches_per_side: int
) -> torch.Tensor:
    """Return position ids [N] of an image's patches in a square table, row by row from its corner."""
    rows = torch.arange(img_h // patch_size)
    columns = torch.arange(img_w // patch_size)
    return (rows[:, None] * max_num_patches_per_side + columns).flatten()


def get_flattened_position_ids_interpolate(
    img_h: int, img_w: int, patch_size: int, max_num_patches_per_side: int
) -> torch.Tensor:
    """Return position ids [N] of an image's patches, spread over the whole square table (NaViT's fractions)."""
    rows = _spread(img_h // patch_size, max_num_patches_per_side)
    columns = _spread(img_w // patch_size, max_num_patches_per_side)
    return (rows[:, None] * max_num_patches_per_side + columns).flatten()


def _spread(count: int, table: int) -> torch.Tensor:
    boundaries = torch.arange(1 / table, 1.0, 1 / table)
    fractions = torch.arange(0, 1 - 1e-6, 1 / count)
    return torch.bucketize(fractions, boundaries, right=True)


def len2weight(x: int, loss_reduction: str = "square") -> float:
    """Return the weight of each loss token of a text with ``x`` of them.

    ``token``: every token counts alike; ``sample``: every text; ``square``: in between (1 / sqrt(x)).

    Raises:
        ValueError: there is no such reduction.
    """
    if x == 0:
        return 0.0
    match loss_reduction:
        case "token":
            return 1.0
        case "sample":
            return 1 / x
        case "square":
            return 1 / math.sqrt(x)
        case _:
            raise ValueError(f"loss_reduction is {loss_reduction!r}; it must be 'token', 'sample' or 'square'")


def prepare_attention_mask_per_sample(
    split_lens: Sequence[int], attn_modes: Sequence[str], device: torch.device | str | int = "cpu"
) -> torch.Tensor:
    """Return one sample's additive mask, float32 [n, n]: 0 where the row may see the column, -inf elsewhere.

    Every row sees all earlier splits and, inside its own, the past (``causal``) or everything (``full``, ``noise``);
    nobody outside a ``noise`` split sees it.
    """
    size = sum(split_lens)
    mask = torch.full((size, size), -torch.inf, device=device)
    start = 0
    for length, mode in zip(split_lens, attn_modes, strict=True):
        stop = start + length
        if mode == "causal":
            mask[start:stop, start:stop].triu_(1)  # leaves zeros on and below the diagonal
        else:
            mask[start:stop, start:stop] = 0
        if mode != "noise":
            mask[stop:, start:stop] = 0
        start = stop
    return mask


def add_special_tokens(tokenizer: Any) -> tuple[Any, dict[str, int], int]:
    """Add the packed format's four special tokens where the tokenizer lacks them.

    Returns:
        The tokenizer, the ids by role (``bos_token_id``, ``eos_token_id``, ``start_of_image``, ``end_of_image``), and
        how many tokens were new.
    """
    roles = {
        "bos_token_id": "<|im_start|>",
        "eos_token_id": "<|im_end|>",
        "start_of_image": "<|vision_start|>",
        "end_of_image": "<|vision_end|>",
    }
    present = set(tokenizer.get_vocab())
    missing = [token for token in roles.values() if token not in present]
    added = tokenizer.add_tokens(missing, special_tokens=True) if missing else 0
    return tokenizer, {role: tokenizer.convert_tokens_to_ids(token) for role, token in roles.items()}, added


def pil_img2rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB: transparency is composited on white, 16-bit greys are scaled."""
    return to_rgb(image)
