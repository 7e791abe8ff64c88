"""Read the payload file of one item, and check its tensors."""

import errno
import io
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
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_DTYPES = (*_FLOATS, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


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
    except Exception as error:  # spoilt bytes make readers and unpickler raise anything
        raise PayloadError(f"{path}: {_explain(path, error)}", UNREADABLE) from error
    if not isinstance(data, Mapping):
        raise PayloadError(f"{path}: holds a {type(data).__name__}, not a mapping of fields", INVALID)
    return data


def _explain(path: Path, error: Exception) -> str:
    match error:
        case OSError(errno=number, strerror=str(said)) if number != errno.EINVAL:  # that one is a seek before the start
            return f"cannot be read: {said}"
        case pickle.UnpicklingError() if not _is_torn(path):
            return (
                "refused by torch.load(weights_only=True): not a mapping of tensors and plain values, "
                "or it holds code, which is never run"
            )
    first_line, _, _ = str(error).partition("\n")
    return f"is truncated, or no file of torch.save: {first_line}"


def _is_torn(path: Path) -> bool:
    """Tell whether a file begins as an archive and does not end as one, so that it is taken for an older format."""
    with path.open("rb") as stream:
        return b"PK".startswith(stream.read(2)) and not zipfile.is_zipfile(path)


def _load(path: Path) -> object:
    """Load a file; large ones are mapped, so that their bytes are copied once, when they are collated."""
    if path.stat().st_size >= _MAPPED_FROM and zipfile.is_zipfile(path):  # unlike the format before torch 1.6
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return torch.load(io.BytesIO(path.read_bytes()), map_location="cpu", weights_only=True)  # one read, not many


def _require_tensor(data: Mapping[str, object], field_name: str) -> torch.Tensor:
    """Return a field that must be a tensor, with finite values if they are floats.

    Raises:
        DataError: see ``check_tensor``.
    """
    return check_tensor(data.get(field_name), field_name)


def check_tensor(value: object, field_name: str) -> torch.Tensor:
    """Return a value that must be a dense tensor of a usual type, with finite values if they are floats.

    Raises:
        DataError: it is no tensor, of another kind or type, or holds NaN or infinity.
    """
    if not isinstance(value, torch.Tensor):
        raise DataError(f"{field_name} must be a tensor, got {type(value).__name__}")
    if value.layout is not torch.strided or value.is_meta or value.dtype not in _DTYPES:
        kind = "meta" if value.is_meta else str(value.layout).removeprefix("torch.")
        raise DataError(
            f"{field_name} must be a dense tensor of bool, int, float16, bfloat16, float32 or float64, "
            f"got {kind} {value.dtype}"
        )
    check_finite(value, field_name)
    return value.detach() if value.requires_grad else value


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
    check_floats(tensor, field_name, "C, H, W")
    channels, height, width = tensor.shape
    return channels, height, width


def check_floats(tensor: torch.Tensor, field_name: str, dimensions: str) -> None:
    """Refuse anything but a non-empty float tensor with the named dimensions, for example ``S, D``.

    Raises:
        DataError: dtype or shape is another.
    """
    if not tensor.is_floating_point() or tensor.ndim != len(dimensions.split(",")) or tensor.numel() == 0:
        raise DataError(
            f"{field_name} must be a non-empty float tensor [{dimensions}], got {tensor.dtype} {list(tensor.shape)}"
        )


def check_mask(mask: torch.Tensor, field_name: str, length: int) -> None:
    """Refuse anything but a bool or int tensor [S] of zeros and ones.

    Raises:
        DataError: dtype, shape or a value is another.
    """
    if mask.is_floating_point() or mask.shape != (length,):
        raise DataError(
            f"{field_name} must be a bool or int tensor [{length}], as long as the prompt, "
            f"got {mask.dtype} {list(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        low, high = torch.aminmax(mask)
        if low < 0 or high > 1:
            raise DataError(f"{field_name} must hold only 0 and 1, got {low.item()} to {high.item()}")
