"""Make one batch of the samples of a bucket."""

from collections.abc import Sequence

import torch

from automodel_data.diffusion.samples import (
    TextToImageBatch,
    TextToImageSample,
    _ImageEditBatch,
    _ImageEditBatchMetadata,
    _ImageEditSample,
)
from automodel_data.errors import DataError


def _collate_image_edit(batch: list[_ImageEditSample]) -> _ImageEditBatch:
    """Stack samples of one signature; prompts are padded to the longest.

    Raises:
        DataError: shapes, dtypes or conditioning names differ within the batch.
    """
    contexts = zip(*(sample["context_latents"] for sample in batch), strict=True)
    embeddings, mask = _pad_prompts(
        [sample["prompt_embeddings"] for sample in batch], [sample["prompt_attention_mask"] for sample in batch]
    )
    return {
        "image_latents": stack([sample["target_latent"] for sample in batch], "target_latent"),
        "context_latents": [stack(latents, f"context_latents[{i}]") for i, latents in enumerate(contexts)],
        "text_embeddings": embeddings,
        "text_attention_mask": mask,
        "conditioning_tensors": _stack_conditioning_tensors(batch),
        "data_type": "image",
        "metadata": _count_tokens(batch),
    }


def _count_tokens(batch: list[_ImageEditSample]) -> _ImageEditBatchMetadata:
    samples = [sample["metadata"] for sample in batch]
    target = [metadata["target_token_length"] for metadata in samples]
    context = [sum(metadata["context_token_lengths"]) for metadata in samples]
    text = [metadata["text_token_length"] for metadata in samples]
    total = [sum(counts) for counts in zip(target, context, text, strict=True)]
    return {
        "samples": samples,
        "batch_size": len(samples),
        "target_token_counts": target,
        "context_token_counts": context,
        "text_token_counts": text,
        "total_token_counts": total,
        "target_token_count": sum(target),
        "context_token_count": sum(context),
        "text_token_count": sum(text),
        "total_token_count": sum(total),
    }


def collate_text_to_image(batch: list[TextToImageSample]) -> TextToImageBatch:
    """Stack samples of one resolution; prompts are padded to the longest.

    Raises:
        DataError: shapes, dtypes or the fields themselves differ within the batch.
    """
    collated: TextToImageBatch = {
        "image_latents": stack([sample["latent"] for sample in batch], "latent"),
        "conditioning_tensors": {
            name: stack(_all_of(batch, name), name)
            for name in ("pooled_prompt_embeds", "clip_hidden")
            if any(name in sample for sample in batch)
        },
        "data_type": "image",
        "metadata": {
            "prompts": [sample["prompt"] for sample in batch],
            "image_paths": [sample["image_path"] for sample in batch],
            "bucket_ids": [sample["bucket_id"] for sample in batch],
            "aspect_ratios": [sample["aspect_ratio"] for sample in batch],
            "crop_resolution": torch.stack([sample["crop_resolution"] for sample in batch]),
            "original_resolution": torch.stack([sample["original_resolution"] for sample in batch]),
            "crop_offset": torch.stack([sample["crop_offset"] for sample in batch]),
            "batch_size": len(batch),
        },
    }
    if "prompt_embeds" in batch[0]:
        collated["text_embeddings"], collated["text_attention_mask"] = _pad_prompts(
            _all_of(batch, "prompt_embeds"), _all_of(batch, "prompt_attention_mask")
        )
    if "clip_tokens" in batch[0]:
        collated["clip_tokens"] = stack(_all_of(batch, "clip_tokens"), "clip_tokens")
    if "t5_tokens" in batch[0]:
        collated["t5_tokens"] = stack(_all_of(batch, "t5_tokens"), "t5_tokens")
    return collated


def _all_of(batch: list[TextToImageSample], name: str) -> list[torch.Tensor]:
    tensors = [sample.get(name) for sample in batch]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        lacking = next(sample["image_path"] for sample in batch if name not in sample)
        raise DataError(f"{name} must be in every payload of a batch or in none; that of {lacking!r} lacks it")
    return tensors  # type: ignore[return-value]


def stack(tensors: Sequence[torch.Tensor], name: str) -> torch.Tensor:
    """Stack tensors of one shape and dtype.

    Raises:
        DataError: they differ.
    """
    _refuse_differences([(tuple(tensor.shape), tensor.dtype) for tensor in tensors], name)
    return torch.stack(list(tensors))


def _refuse_differences(kinds: Sequence[tuple[tuple[int, ...], torch.dtype]], name: str) -> None:
    if len(set(kinds)) > 1:
        listed = ", ".join(sorted({f"{list(shape)} {dtype}" for shape, dtype in kinds}))
        raise DataError(f"{name} must have one shape and dtype within a batch, got {listed}; encode the cache anew")


def _pad_prompts(
    embeddings: Sequence[torch.Tensor], masks: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad prompts [S, D] and their masks [S] with zeros to the longest, and stack them.

    Raises:
        DataError: hidden sizes or dtypes differ.
    """
    return _pad(embeddings, "prompt embeddings (padded)"), _pad(masks, "prompt mask")


def _pad(tensors: Sequence[torch.Tensor], name: str) -> torch.Tensor:
    """Stack tensors that may differ in their first dimension, with zeros behind the shorter ones."""
    _refuse_differences([(tuple(tensor.shape[1:]), tensor.dtype) for tensor in tensors], name)
    lengths = [len(tensor) for tensor in tensors]
    longest, shape = max(lengths), tensors[0].shape[1:]
    zeros = tensors[0].new_zeros((longest - min(lengths), *shape))
    pieces = [piece for tensor in tensors for piece in (tensor, zeros[: longest - len(tensor)])]
    return torch.cat(pieces).view(len(tensors), longest, *shape)  # pad_sequence would write every byte twice


def _stack_conditioning_tensors(batch: Sequence[_ImageEditSample]) -> dict[str, torch.Tensor]:
    """Stack each named conditioning tensor; every sample must have the same names.

    Raises:
        DataError: names, shapes or dtypes differ.
    """
    names = batch[0]["conditioning_tensors"].keys()
    for sample in batch:
        if sample["conditioning_tensors"].keys() != names:
            raise DataError(
                f"conditioning_tensors must have the same names within a batch, got {sorted(names)} "
                f"and {sorted(sample['conditioning_tensors'])} ({sample['metadata']['original_ids']})"
            )
    return {
        name: stack([sample["conditioning_tensors"][name] for sample in batch], f"conditioning_tensors.{name}")
        for name in names
    }
