"""Resume state: names of rows and the decisions made for them, as plain values that JSON can hold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from automodel_data.errors import DataError
from automodel_data.multimodal.plan import Sample, SampleIndex
from automodel_data.randomness import Draw


@dataclass(frozen=True, kw_only=True, slots=True)
class BufferedSample:
    """A sample set aside: its row, and the decisions drawn when it was parsed."""

    index: SampleIndex
    draws: Sequence[Draw]

    @classmethod
    def of(cls, sample: Sample) -> "BufferedSample":
        """Name a sample."""
        assert sample.index is not None
        return cls(index=sample.index, draws=sample.draws)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BufferedSample":
        """Read plain values."""
        return cls(index=SampleIndex(**values["index"]), draws=values["draws"])

    def among_all_paths(self) -> "BufferedSample":
        """Name the same sample without its reader."""
        return replace(self, index=self.index.among_all_paths())


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamState:
    """Where one worker's stream stands behind a pack."""

    yielded: int
    randomness: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, Any]]
    buffer: Sequence[BufferedSample]
    drops: Mapping[str, Mapping[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "StreamState":
        """Read plain values."""
        return cls(**{**values, "buffer": [BufferedSample.from_dict(sample) for sample in values["buffer"]]})


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderState:
    """Where all workers of a rank stand behind the last pack handed out.

    Args:
        batches: Packs handed out since the start, or since the rows were dealt out anew.
        workers: The streams' states; None: not begun.
        dealt_after: Packs that all ranks had handed out when the rows were last dealt out anew (see ``elastic``).
    """

    rank: int
    world_size: int
    num_workers: int
    batches: int
    workers: Sequence[Mapping[str, Any] | None]
    dealt_after: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LoaderState":
        """Read plain values."""
        return cls(**values)

    @classmethod
    def start(cls, rank: int, world_size: int, num_workers: int) -> "LoaderState":
        """Return the state before the first batch."""
        return cls(
            rank=rank, world_size=world_size, num_workers=num_workers, batches=0, workers=[None] * max(1, num_workers)
        )

    @property
    def next_worker(self) -> int:
        """The worker whose pack is handed out next."""
        return self.batches % len(self.workers)

    def after(self, stream: Mapping[str, Any]) -> "LoaderState":
        """Return the state behind one more batch, that of the next worker."""
        workers = list(self.workers)
        workers[self.next_worker] = stream
        return replace(self, batches=self.batches + 1, workers=workers)

    def check(self, rank: int, world_size: int, num_workers: int) -> None:
        """Refuse to resume elsewhere.

        Raises:
            DataError: rank, world size or worker count is another one.
        """
        for name, saved, now in (
            ("world_size", self.world_size, world_size),
            ("rank", self.rank, rank),
            ("num_workers", self.num_workers, num_workers),
        ):
            if saved != now:
                raise DataError(
                    f"the data state was saved with {name} {saved}, this run has {now}: every worker reads its own "
                    "share of the paths, so resume with the same numbers"
                )
