"""The owned generators behind every random decision, and tapes of the decisions made.

A buffered sample is restored by re-reading its row and *replaying* the decisions that were drawn for it, so resume
state holds a few numbers per sample instead of its images.
"""

import base64
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

Draw = float | int | list[int]
D = TypeVar("D", bound=Draw)


class Randomness:
    """A ``random.Random`` and a NumPy ``RandomState`` with one seed, drawn from by name of the decision.

    The process's global generators are neither read nor seeded.
    """

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed)
        self._numpy = np.random.RandomState(seed)
        self._record: list[Draw] | None = None
        self._replay: Iterator[Draw] | None = None

    def uniform(self) -> float:
        """Draw from [0, 1)."""
        return self._draw(self._python.random)

    def choose(self, options: int) -> int:
        """Draw an index below ``options``, as ``random.choice`` does."""
        return self._draw(lambda: self._python.choice(range(options)))

    def normal(self) -> float:
        """Draw from the standard normal distribution (NumPy)."""
        return self._draw(lambda: float(self._numpy.randn()))

    def integer(self, low: int, high: int) -> int:
        """Draw from ``low..high``, both included (NumPy's ``randint``)."""
        return self._draw(lambda: int(self._numpy.randint(low, high + 1)))

    def subset(self, size: int, count: int) -> list[int]:
        """Draw ``count`` of ``range(size)``, sorted (the head of a NumPy permutation)."""
        return self._draw(lambda: sorted(int(i) for i in self._numpy.permutation(size)[:count]))

    @contextmanager
    def recording(self) -> Iterator[list[Draw]]:
        """Collect the decisions drawn inside the block."""
        tape: list[Draw] = []
        self._record = tape
        try:
            yield tape
        finally:
            self._record = None

    @contextmanager
    def replaying(self, tape: Sequence[Draw]) -> Iterator[None]:
        """Give the decisions of ``tape`` inside the block instead of drawing; the generators stay where they are.

        Raises:
            LookupError: the block takes more decisions than the tape holds, or fewer.
        """
        self._replay = iter(tape)
        try:
            yield
            left = sum(1 for _ in self._replay)
            if left:
                raise LookupError(f"{left} of {len(tape)} recorded decisions were not asked for")
        finally:
            self._replay = None

    def _draw(self, make: Callable[[], D]) -> D:
        if self._replay is not None:
            for draw in self._replay:
                return draw  # type: ignore[return-value]  # a tape replays the calls that recorded it
            raise LookupError("more decisions are asked for than were recorded")
        value = make()
        if self._record is not None:
            self._record.append(value)
        return value

    def state_dict(self) -> dict[str, object]:
        """Return both generators' state as plain values (7 KB)."""
        version, words, gauss = self._python.getstate()
        name, keys, position, has_gauss, cached = self._numpy.get_state(legacy=True)
        return {
            "python": {"version": version, "words": _pack(words), "gauss": gauss},
            "numpy": {"name": name, "words": _pack([*keys, int(position)]), "has_gauss": has_gauss, "cached": cached},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        python, numpy = state["python"], state["numpy"]
        self._python.setstate((python["version"], tuple(_unpack(python["words"])), python["gauss"]))
        *keys, position = _unpack(numpy["words"])
        self._numpy.set_state(
            (numpy["name"], np.array(keys, dtype=np.uint32), position, numpy["has_gauss"], numpy["cached"])
        )


def _pack(words: Sequence[int]) -> str:
    return base64.b64encode(np.array(words, dtype="<u4").tobytes()).decode("ascii")


def _unpack(text: str) -> list[int]:
    return [int(word) for word in np.frombuffer(base64.b64decode(text), dtype="<u4")]
