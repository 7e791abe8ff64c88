"""What a sample and a batch of the caches are: mappings with these fields."""

from typing import TypedDict

import torch

from automodel_data.diffusion.signature import _CompoundBucketSignatureMetadata


class _ImageEditCacheMetadata(TypedDict):
    """Checked ``metadata`` of an image-edit payload; lengths are in tokens, by default one per latent pixel."""

    original_ids: dict[str, object]
    target_spatial_shape: list[int]
    context_spatial_shapes: list[list[int]]
    compound_bucket_signature: _CompoundBucketSignatureMetadata
    conditioning_shapes: dict[str, list[int]]
    target_token_length: int
    context_token_lengths: list[int]
    text_token_length: int


class _ImageEditSample(TypedDict):
    """One image edit: latents [C, H, W], prompt [S, D] with its mask [S]."""

    target_latent: torch.Tensor
    context_latents: list[torch.Tensor]
    prompt_embeddings: torch.Tensor
    prompt_attention_mask: torch.Tensor
    conditioning_tensors: dict[str, torch.Tensor]
    metadata: _ImageEditCacheMetadata


class _ImageEditBatchMetadata(TypedDict):
    """The samples' metadata and token counts, per sample and in all."""

    samples: list[_ImageEditCacheMetadata]
    batch_size: int
    target_token_counts: list[int]
    context_token_counts: list[int]
    text_token_counts: list[int]
    total_token_counts: list[int]
    target_token_count: int
    context_token_count: int
    text_token_count: int
    total_token_count: int


class _ImageEditBatch(TypedDict):
    """B image edits of one bucket: latents [B, C, H, W], ``context_latents`` one such tensor per context in order."""

    image_latents: torch.Tensor
    context_latents: list[torch.Tensor]
    text_embeddings: torch.Tensor
    text_attention_mask: torch.Tensor
    conditioning_tensors: dict[str, torch.Tensor]
    data_type: str
    metadata: _ImageEditBatchMetadata


class TextToImageSample(TypedDict, total=False):
    """One image: latent [C, H, W]; resolutions (width, height) and the crop's (left, top) corner are int64 [2].

    Either ``prompt_embeds`` [S, D] with its mask [S], or, to train the text encoders, token ids [S].
    """

    latent: torch.Tensor
    crop_resolution: torch.Tensor
    original_resolution: torch.Tensor
    crop_offset: torch.Tensor
    prompt: str
    image_path: str
    bucket_id: int
    aspect_ratio: float
    prompt_embeds: torch.Tensor
    prompt_attention_mask: torch.Tensor
    pooled_prompt_embeds: torch.Tensor
    clip_hidden: torch.Tensor
    clip_tokens: torch.Tensor
    t5_tokens: torch.Tensor


class TextToImageBatchMetadata(TypedDict):
    """Where the images of a batch come from; resolutions and offsets are int64 [B, 2]."""

    prompts: list[str]
    image_paths: list[str]
    bucket_ids: list[int]
    aspect_ratios: list[float]
    crop_resolution: torch.Tensor
    original_resolution: torch.Tensor
    crop_offset: torch.Tensor
    batch_size: int


class TextToImageBatch(TypedDict, total=False):
    """B images of one bucket, with the same fields as an image-edit batch, but no contexts.

    Either ``text_embeddings`` and ``text_attention_mask``, or ``clip_tokens`` and ``t5_tokens`` [B, S].
    """

    image_latents: torch.Tensor
    text_embeddings: torch.Tensor
    text_attention_mask: torch.Tensor
    conditioning_tensors: dict[str, torch.Tensor]
    clip_tokens: torch.Tensor
    t5_tokens: torch.Tensor
    data_type: str
    metadata: TextToImageBatchMetadata
