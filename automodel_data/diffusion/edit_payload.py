"""Check what an image-edit payload holds against its item's signature."""

from collections.abc import Mapping

import torch

from automodel_data.diffusion.payload import (
    _require_tensor,
    _validate_latent,
    check_floats,
    check_mask,
    check_tensor,
)
from automodel_data.diffusion.samples import _ImageEditCacheMetadata
from automodel_data.diffusion.signature import (
    Shape3,
    _CompoundBucketSignature,
    _nonnegative_int,
    _normalize_shape,
    _parse_compound_bucket_signature,
    _signature_to_metadata,
)
from automodel_data.errors import DataError


def read_latents(
    data: Mapping[str, object], signature: _CompoundBucketSignature
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the target latent and the context latents, whose shapes must be the signature's.

    Raises:
        DataError: a latent is missing, no finite float tensor [C, H, W], or of another shape.
    """
    target = _require_tensor(data, "target_latent")
    contexts = data.get("context_latents")
    if not isinstance(contexts, list) or not contexts:
        raise DataError(f"context_latents must be a list of at least one tensor, got {type(contexts).__name__}")
    if len(contexts) != len(signature.contexts):
        raise DataError(f"context_latents holds {len(contexts)} latents, its item {len(signature.contexts)}")
    _check_latent(target, "target_latent", signature.target)
    contexts = [check_tensor(latent, f"context_latents[{i}]") for i, latent in enumerate(contexts)]
    for i, (latent, shape) in enumerate(zip(contexts, signature.contexts, strict=True)):
        _check_latent(latent, f"context_latents[{i}]", shape)
    return target, contexts


def _check_latent(latent: torch.Tensor, field: str, shape: tuple[int, int, int]) -> None:
    actual = _validate_latent(latent, field)
    if actual != shape:
        raise DataError(f"{field} has shape {list(actual)}, its item's compound_bucket_signature says {list(shape)}")


def read_prompt(data: Mapping[str, object]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the prompt's embeddings [S, D] and its mask [S].

    Raises:
        DataError: dtype, shape or a value is another.
    """
    embeddings = _require_tensor(data, "prompt_embeddings")
    check_floats(embeddings, "prompt_embeddings", "S, D")
    mask = _require_tensor(data, "prompt_attention_mask")
    check_mask(mask, "prompt_attention_mask", len(embeddings))
    return embeddings, mask


def read_conditioning(value: object) -> dict[str, torch.Tensor]:
    """Return the named conditioning tensors.

    Raises:
        DataError: it is no mapping of names to finite tensors.
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise DataError(f"conditioning_tensors must be a mapping of names to tensors, got {type(value).__name__}")
    named = {f"conditioning_tensors.{name}": tensor for name, tensor in value.items()}
    return {name: _require_tensor(named, f"conditioning_tensors.{name}") for name in value}


def normalize_metadata(
    raw: object,
    signature: _CompoundBucketSignature,
    prompt_length: int,
    conditioning: Mapping[str, torch.Tensor],
) -> _ImageEditCacheMetadata:
    """Check ``metadata`` against the tensors, and fill in the token lengths it leaves out.

    Raises:
        DataError: a field is missing or contradicts a tensor.
    """
    if not isinstance(raw, Mapping):
        raise DataError(f"metadata must be a mapping, got {type(raw).__name__}")
    ids = raw.get("original_ids")
    if not isinstance(ids, Mapping) or not ids:
        raise DataError(f"metadata.original_ids must be a non-empty mapping, got {ids!r}")
    _check_shapes(raw, signature)
    _check_conditioning_shapes(raw.get("conditioning_shapes"), conditioning)
    return {
        "original_ids": dict(ids),
        "target_spatial_shape": list(signature.target[1:]),
        "context_spatial_shapes": [list(shape[1:]) for shape in signature.contexts],
        "compound_bucket_signature": _signature_to_metadata(signature),
        "conditioning_shapes": {name: list(tensor.shape) for name, tensor in conditioning.items()},
        "text_token_length": _text_length(raw, prompt_length),
        "target_token_length": _target_length(raw, signature),
        "context_token_lengths": _context_lengths(raw, signature),
    }


def _check_shapes(raw: Mapping[str, object], signature: _CompoundBucketSignature) -> None:
    field = "metadata.compound_bucket_signature"
    stated = _parse_compound_bucket_signature(raw.get("compound_bucket_signature"), field)
    if stated != signature:
        raise DataError(f"{field} is {stated}, its item says {signature}")
    _check_spatial(raw.get("target_spatial_shape"), "metadata.target_spatial_shape", signature.target[1:])
    contexts = raw.get("context_spatial_shapes")
    if not isinstance(contexts, list | tuple) or len(contexts) != len(signature.contexts):
        raise DataError(f"metadata.context_spatial_shapes must hold one [H, W] per context, got {contexts!r}")
    for i, (value, shape) in enumerate(zip(contexts, signature.contexts, strict=True)):
        _check_spatial(value, f"metadata.context_spatial_shapes[{i}]", shape[1:])


def _check_spatial(value: object, field: str, expected: tuple[int, ...]) -> None:
    if _normalize_shape(value, field, 2) != expected:
        raise DataError(f"{field} is {value!r}, the latent has {list(expected)}")


def _check_conditioning_shapes(shapes: object, conditioning: Mapping[str, torch.Tensor]) -> None:
    field = "metadata.conditioning_shapes"
    if shapes is None and not conditioning:
        return
    if not isinstance(shapes, Mapping) or shapes.keys() != conditioning.keys():
        raise DataError(f"{field} must name the shapes of {sorted(conditioning)}, got {shapes!r}")
    for name, tensor in conditioning.items():
        if _normalize_shape(shapes[name], f"{field}.{name}", tensor.ndim, allow_zero=True) != tuple(tensor.shape):
            raise DataError(f"{field}.{name} is {shapes[name]!r}, the tensor has {list(tensor.shape)}")


def _text_length(raw: Mapping[str, object], prompt_length: int) -> int:
    field = "metadata.text_token_length"
    length = _nonnegative_int(raw.get("text_token_length", prompt_length), field)
    if length > prompt_length:
        raise DataError(f"{field} ({length}) must not exceed the prompt's {prompt_length} tokens")
    return length


def _target_length(raw: Mapping[str, object], signature: _CompoundBucketSignature) -> int:
    length = raw.get("target_token_length", _latent_pixels(signature.target))
    return _latent_length(length, signature.target, "metadata.target_token_length")


def _context_lengths(raw: Mapping[str, object], signature: _CompoundBucketSignature) -> list[int]:
    field = "metadata.context_token_lengths"
    lengths = raw.get("context_token_lengths", [_latent_pixels(shape) for shape in signature.contexts])
    if not isinstance(lengths, list | tuple) or len(lengths) != len(signature.contexts):
        raise DataError(f"{field} must hold one length per context, got {lengths!r}")
    return [
        _latent_length(length, shape, f"{field}[{i}]")
        for i, (length, shape) in enumerate(zip(lengths, signature.contexts, strict=True))
    ]


def _latent_length(length: object, shape: Shape3, field: str) -> int:
    """Return how many tokens a latent is cut into, at most one for each of its pixels."""
    checked, most = _nonnegative_int(length, field), _latent_pixels(shape)
    if not 1 <= checked <= most:
        raise DataError(f"{field} ({length}) must lie between 1 and {most}, the latent's {shape[1]} x {shape[2]}")
    return checked


def _latent_pixels(shape: Shape3) -> int:
    _, height, width = shape
    return height * width
