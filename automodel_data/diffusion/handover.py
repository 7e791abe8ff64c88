"""Hand batches from a worker to the loader's process, through shared memory that is used again and again.

Shared memory is slow where it is touched for the first time, and every tensor that is sent by itself costs a connection
between the processes. So a worker writes all tensors of a batch into one buffer, one of a few that it uses in turn, and
the loader's process copies them out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

_ALIGNMENT = 64  # bytes; any dtype may be viewed there


class _Place(NamedTuple):
    """Stands in a batch for a tensor, whose bytes start at ``start``."""

    start: int
    shape: torch.Size
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def within(self, memory: torch.Tensor) -> torch.Tensor:
        return memory[self.start : self.start + self.size].view(self.dtype).view(self.shape)


@dataclass(frozen=True, eq=False, slots=True)
class Parcel:
    """A batch whose tensors lie in a worker's buffer; to be unpacked before the worker's turn comes to that again."""

    batch: Any
    memory: torch.Tensor  # uint8, shared

    def unpack(self) -> Any:
        """Return the batch in memory of its own."""
        return self._within(self.memory.clone())

    def pin_memory(self) -> Any:
        """Return the batch in pinned memory (called by the dataloader)."""
        return self._within(self.memory.pin_memory())

    def _within(self, memory: torch.Tensor) -> Any:
        return _replace(self.batch, _Place, lambda place: place.within(memory))


class Sender:
    """A worker's buffers, used in turn; each grows to the largest batch it has held.

    Args:
        buffers: More than the batches of this worker that can be on their way, which are ``prefetch_factor``.
    """

    def __init__(self, buffers: int) -> None:
        self._buffers = [torch.empty(0, dtype=torch.uint8)] * buffers
        self._turn = 0

    def pack(self, batch: Any) -> Parcel:
        """Write the tensors of a batch into the next buffer."""
        tensors: list[tuple[torch.Tensor, _Place]] = []
        end = 0

        def place(tensor: torch.Tensor) -> _Place:
            nonlocal end
            placed = _Place(end, tensor.shape, tensor.dtype)
            tensors.append((tensor, placed))
            end += -(-placed.size // _ALIGNMENT) * _ALIGNMENT
            return placed

        places = _replace(batch, torch.Tensor, place)
        memory = self._next_buffer(end)
        for tensor, placed in tensors:
            placed.within(memory).copy_(tensor)
        return Parcel(places, memory)

    def _next_buffer(self, size: int) -> torch.Tensor:
        self._turn = (self._turn + 1) % len(self._buffers)
        if len(self._buffers[self._turn]) < size:
            self._buffers[self._turn] = torch.empty(size, dtype=torch.uint8).share_memory_()
        return self._buffers[self._turn][:size]


def _replace(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """Return nested mappings and lists with ``function`` applied to what is of ``kind``."""
    if isinstance(value, kind):
        return function(value)
    match value:
        case dict():
            return {name: _replace(one, kind, function) for name, one in value.items()}
        case list():
            return [_replace(one, kind, function) for one in value]
    return value
