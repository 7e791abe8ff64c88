"""Where a sampler and a loader stand, and what the order of their batches depends on; plain values outside."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from automodel_data.errors import DataError

_MAY_CHANGE: Final = ("num_replicas", "batch_size")  # when the rest of an epoch is dealt out anew


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderSettings:
    """What the order of an epoch's batches depends on, besides the epoch's number.

    Args:
        buckets: A hash of which samples stand in which bucket.
        shuffle: Of buckets, and of the samples within one.
        dynamic_batch_size: The (width, height) for which ``batch_size`` is meant; None: it is meant for all.
    """

    samples: int
    buckets: str
    num_replicas: int
    batch_size: int
    seed: int
    bucket_policy: str
    bucket_order: str
    shuffle: list[bool]
    dynamic_batch_size: list[int] | None

    def refuse_changes(self, now: "OrderSettings", elastic: bool = False) -> None:
        """Refuse to resume under other settings.

        Args:
            elastic: Take other ranks and another batch size.

        Raises:
            DataError: naming what has changed.
        """
        changed = [
            f"{name} ({getattr(self, name)!r} then, {getattr(now, name)!r} now)"
            for name in (field.name for field in fields(self) if field.name != "buckets")
            if getattr(self, name) != getattr(now, name) and not (elastic and name in _MAY_CHANGE)
        ]
        if self.buckets != now.buckets:
            changed.append("other samples in the buckets")
        if changed:
            raise DataError(
                f"the position in the epoch belongs to batches in another order: {', '.join(changed)}; "
                f"go on with {'these' if len(changed) > 1 else 'this'} as before, or start a new run"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """So many batches of an epoch were read by each of so many ranks, before its rest was dealt out anew."""

    num_replicas: int
    batch_size: int
    batches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerState:
    """How far an epoch is read.

    Args:
        batches_yielded: On each rank, since the epoch began or its rest was dealt out anew.
        made_with: None in the states of older systems, which have the two fields above alone.
        stretches: What was read of the epoch before that.
    """

    epoch: int
    batches_yielded: int
    made_with: OrderSettings | None = None
    stretches: Sequence[Stretch] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        values = asdict(self)
        return values if self.stretches else {name: value for name, value in values.items() if name != "stretches"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SamplerState":
        """Read plain values.

        Raises:
            DataError: another version of this package has saved them.
        """
        return cls(
            epoch=values["epoch"],
            batches_yielded=values["batches_yielded"],
            made_with=_parse_settings(values.get("made_with")),
            stretches=[Stretch(**stretch) for stretch in values.get("stretches", ())],
        )

    def left_behind(self, now: OrderSettings) -> "SamplerState":
        """Return the state in which what this one leaves of its epoch is dealt out anew, under the settings ``now``.

        Raises:
            DataError: it does not say of how many ranks, or more has changed than their number and the batch size.
        """
        if self.made_with is None:
            raise DataError(
                "a position of epoch and batches alone, as older systems save it, does not say how many ranks read in "
                "which batch size: it can only be taken up by as many (load_state_dict)"
            )
        self.made_with.refuse_changes(now, elastic=True)
        read = Stretch(
            num_replicas=self.made_with.num_replicas,
            batch_size=self.made_with.batch_size,
            batches=self.batches_yielded,
        )
        return SamplerState(epoch=self.epoch, batches_yielded=0, stretches=[*self.stretches, read])


def _parse_settings(values: Mapping[str, Any] | None) -> OrderSettings | None:
    if values is None:
        return None
    names = {field.name for field in fields(OrderSettings)}
    if values.keys() != names:
        different = ", ".join(sorted(names ^ values.keys()))
        raise DataError(f"the position in the epoch was saved by another version of this package ({different})")
    return OrderSettings(**values)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderState:
    """Where a rank's loader stands behind the last batch handed out, and what it has lost so far."""

    sampler: Mapping[str, Any]
    drops: Mapping[str, Mapping[str, int]]
    rank: int
    world_size: int
    num_workers: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
