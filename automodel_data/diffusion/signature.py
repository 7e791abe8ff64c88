"""The shape signature that makes an image-edit bucket, and the checks of shapes and counts read from files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

from automodel_data.errors import DataError

Shape3 = tuple[int, int, int]


class _CompoundBucketSignatureMetadata(TypedDict):
    """A signature as JSON holds it: ``target`` [C, H, W], ``contexts`` a list of such."""

    target: list[int]
    contexts: list[list[int]]


@dataclass(frozen=True, slots=True, order=True)
class _CompoundBucketSignature:
    """Latent shapes [C, H, W] of a target and of its contexts, in order."""

    target: Shape3
    contexts: tuple[Shape3, ...]

    @property
    def latent_pixels(self) -> int:
        """Return H * W summed over target and contexts."""
        return sum(height * width for _, height, width in (self.target, *self.contexts))

    def __str__(self) -> str:
        contexts = ",".join("x".join(map(str, shape)) for shape in self.contexts)
        return f"target={'x'.join(map(str, self.target))}/contexts=[{contexts}]"


def _nonnegative_int(value: object, field_name: str) -> int:
    """Return ``value`` if it is an int of at least 0.

    Raises:
        DataError: it is anything else, also a bool.
    """
    if type(value) is not int or value < 0:
        raise DataError(f"{field_name} must be an int of at least 0, got {value!r}")
    return value


def _normalize_shape(value: object, field_name: str, rank: int, allow_zero: bool = False) -> tuple[int, ...]:
    """Return a list or tuple of ``rank`` positive ints as a tuple.

    Args:
        allow_zero: Take 0 for a dimension too.

    Raises:
        DataError: it is no such list.
    """
    if not isinstance(value, list | tuple) or len(value) != rank:
        raise DataError(f"{field_name} must be a list of {rank} ints, got {value!r}")
    smallest = 0 if allow_zero else 1
    if any(type(size) is not int or size < smallest for size in value):
        raise DataError(f"{field_name} must hold ints of at least {smallest}, got {value!r}")
    return tuple(value)


def _parse_compound_bucket_signature(value: object, field_name: str) -> _CompoundBucketSignature:
    """Read ``{"target": [C, H, W], "contexts": [[C, H, W], ...]}``.

    Raises:
        DataError: a part is missing, not a shape, or there is no context.
    """
    if not isinstance(value, Mapping) or value.keys() != {"target", "contexts"}:
        raise DataError(f"{field_name} must be a mapping of 'target' and 'contexts', got {value!r}")
    contexts = value["contexts"]
    if not isinstance(contexts, list | tuple) or not contexts:
        raise DataError(f"{field_name}.contexts must be a list of at least one shape, got {contexts!r}")
    shapes = [_normalize_shape(value["target"], f"{field_name}.target", 3)]
    shapes += [_normalize_shape(shape, f"{field_name}.contexts[{i}]", 3) for i, shape in enumerate(contexts)]
    target, *rest = cast("list[Shape3]", shapes)
    return _CompoundBucketSignature(target=target, contexts=tuple(rest))


def _signature_to_metadata(signature: _CompoundBucketSignature) -> _CompoundBucketSignatureMetadata:
    """Return the signature as JSON holds it."""
    return {"target": list(signature.target), "contexts": [list(shape) for shape in signature.contexts]}
