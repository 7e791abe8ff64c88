"""The batch: one pack, with its parts as attributes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from automodel_data.multimodal.attention_masks import AttentionMasks


class SimpleCustomBatch:
    """One pack. Absent parts are absent attributes.

    Always there: ``sequence_length`` (int), ``sample_lens`` (list), ``packed_text_ids`` [T], ``packed_text_indexes``
    [T], ``packed_position_ids`` [L], ``batch_data_indexes`` (list of mappings). ``split_lens`` and ``attn_modes`` for
    flex attention, or ``nested_attention_masks`` (float32 [n, n] for each sample). With images for the generation side
    ``padded_images`` [M, 3, H, W], ``patchified_vae_latent_shapes``, ``packed_latent_position_ids`` [G],
    ``packed_vae_token_indexes`` [G], ``packed_timesteps`` [G], ``mse_loss_indexes`` [G+]; with images for the
    understanding tower ``packed_vit_tokens`` [N, 3 p p], ``packed_vit_position_ids`` [N], ``packed_vit_token_indexes``
    [N], ``vit_token_seqlens`` [images]; with answers
    ``packed_label_ids``, ``ce_loss_indexes``, ``ce_loss_weights`` [E].

    Args:
        batch: A list with the one pack.
    """

    sequence_length: int
    sample_lens: list[int]
    packed_text_ids: torch.Tensor
    packed_text_indexes: torch.Tensor
    packed_position_ids: torch.Tensor
    batch_data_indexes: list[Mapping[str, Any]]

    def __init__(self, batch: Sequence[Mapping[str, Any]]) -> None:
        (pack,) = batch
        self.__dict__.update(pack)

    def to_dict(self) -> dict[str, Any]:
        """Return the parts by name; dense masks as a list."""
        return {name: list(value) if isinstance(value, AttentionMasks) else value for name, value in vars(self).items()}

    def pin_memory(self) -> "SimpleCustomBatch":
        """Move the tensors to page-locked memory, so that copies to a GPU need not wait."""
        return self._map(lambda tensor: tensor.pin_memory())

    def cuda(self, device: torch.device | str | int) -> "SimpleCustomBatch":
        """Move the tensors to ``device`` without waiting for the copies."""
        self._map(lambda tensor: tensor.to(device, non_blocking=True))
        for name, value in vars(self).items():
            if isinstance(value, AttentionMasks):
                setattr(self, name, value.to(device))
        return self

    def _map(self, move: Callable[[torch.Tensor], torch.Tensor]) -> "SimpleCustomBatch":
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                setattr(self, name, move(value))
        return self


def bagel_packed_collate_fn(batch: Sequence[Mapping[str, Any]]) -> SimpleCustomBatch:
    """Wrap the one pack of a batch."""
    return SimpleCustomBatch(batch)


def collate_wrapper() -> Callable[[Sequence[Mapping[str, Any]]], SimpleCustomBatch]:
    """Return the collate function."""
    return bagel_packed_collate_fn
