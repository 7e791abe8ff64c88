"""Read the payload file of one item, and check its tensors."""

import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from automodel_data.diffusion.signature import Shape3
from automodel_data.errors import DataError

UNREADABLE = "unreadable payload"
INVALID = "invalid payload"
NOT_FINITE = "payload not finite"

_MAPPED_FROM = 2**18  # bytes; smaller files are read as fast as they are mapped
_LATENT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class PayloadError(DataError):
    """One payload file cannot be used.

    Args:
        reason: Short stable name under which the loss is counted.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn a complaint about a field into a PayloadError that names the file too."""
    try:
        yield
    except DataError as error:
        reason = error.reason if isinstance(error, PayloadError) else INVALID
        raise PayloadError(f"{path}: {error}", reason) from error


def read_payload(path: Path) -> Mapping[str, object]:
    """Read a mapping of tensors and plain values; code in the file is never run.

    Raises:
        PayloadError: the file is missing, truncated, holds anything but tensors and plain values, or is no mapping.
    """
    try:
        data = _load(path)
    except pickle.UnpicklingError as error:
        raise PayloadError(
            f"{path}: refused by torch.load(weights_only=True): not a mapping of tensors and plain values, "
            "or it holds code, which is never run",
            UNREADABLE,
        ) from error
    except OSError as error:
        raise PayloadError(f"{path}: cannot be read: {error.strerror or error}", UNREADABLE) from error
    except (EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        detail = str(error).partition("\n")[0]
        raise PayloadError(f"{path}: is truncated, or no file of torch.save: {detail}", UNREADABLE) from error
    if not isinstance(data, Mapping):
        raise PayloadError(f"{path}: holds a {type(data).__name__}, not a mapping of fields", INVALID)
    return data


def _load(path: Path) -> object:
    """Load a file; large ones are mapped, so that their bytes are copied once, when they are collated."""
    mapped = path.stat().st_size >= _MAPPED_FROM and zipfile.is_zipfile(path)  # unlike the format before torch 1.6
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def _require_tensor(data: Mapping[str, object], field_name: str) -> torch.Tensor:
    """Return a field that must be a tensor, with finite values if they are floats.

    Raises:
        DataError: it is missing, no tensor, or holds NaN or infinity.
    """
    value = data.get(field_name)
    if not isinstance(value, torch.Tensor):
        raise DataError(f"{field_name} must be a tensor, got {type(value).__name__}")
    check_finite(value, field_name)
    return value


def check_finite(tensor: torch.Tensor, field_name: str) -> None:
    """Refuse NaN and infinity.

    Raises:
        PayloadError: a value is not finite.
    """
    # A sum is many times cheaper than isfinite().all(); only one that overflowed or is spoilt needs the exact look.
    if tensor.is_floating_point() and not math.isfinite(tensor.sum().item()) and not torch.isfinite(tensor).all():
        raise PayloadError(f"{field_name} must be finite, got NaN or infinity", NOT_FINITE)


def _validate_latent(tensor: torch.Tensor, field_name: str) -> Shape3:
    """Return the shape of a latent.

    Raises:
        DataError: it is not a non-empty float tensor [C, H, W].
    """
    if tensor.dtype not in _LATENT_DTYPES or tensor.ndim != 3 or tensor.numel() == 0:
        raise DataError(
            f"{field_name} must be a non-empty float tensor [C, H, W], got {tensor.dtype} {list(tensor.shape)}"
        )
    channels, height, width = tensor.shape
    return channels, height, width


def check_embeddings(tensor: torch.Tensor, field_name: str) -> None:
    """Refuse anything but a float tensor [S, D] with at least one token.

    Raises:
        DataError: dtype or shape is another.
    """
    if not tensor.is_floating_point() or tensor.ndim != 2 or tensor.numel() == 0:
        raise DataError(
            f"{field_name} must be a non-empty float tensor [S, D], got {tensor.dtype} {list(tensor.shape)}"
        )


def check_mask(mask: torch.Tensor, field_name: str, length: int) -> None:
    """Refuse anything but a bool or int tensor [S] of zeros and ones.

    Raises:
        DataError: dtype, shape or a value is another.
    """
    integral = not mask.is_floating_point() and not mask.is_complex()
    if not integral or mask.shape != (length,):
        raise DataError(
            f"{field_name} must be a bool or int tensor [{length}], as long as the prompt, "
            f"got {mask.dtype} {list(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        low, high = torch.aminmax(mask)
        if low < 0 or high > 1:
            raise DataError(f"{field_name} must hold only 0 and 1, got {low.item()} to {high.item()}")
