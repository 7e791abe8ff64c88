"""Another number of ranks or workers: what the old readers have left unread is dealt out anew.

Nothing is lost and nothing is read twice in the passes under way: every path that no old reader finished, a partly read
one from where it was left, goes to exactly one new reader, and so does every buffered sample. From the next pass on the
shares are the usual ones. (The idea is that of Megatron-Energon's and MosaicML Streaming's elastic resumption.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from automodel_data.errors import merge_counts
from automodel_data.multimodal.cursor import Cursor
from automodel_data.multimodal.plan import split_position
from automodel_data.multimodal.state import BufferedSample, LoaderState
from automodel_data.placement import Placement, Stretch, cut, left_behind, left_out
from automodel_data.randomness import Randomness


@dataclass(frozen=True, slots=True)
class _Reader:
    """An old reader of one source: ``shares`` are those of its pass number ``passes`` and the ones behind it.

    From pass ``usual_from`` on it reads its usual share, as do all of its placement.
    """

    passes: int
    shares: list[list[Stretch]]
    usual: list[Stretch]
    usual_from: int

    @classmethod
    def of(cls, placement: Placement, source: Mapping[str, Any] | None, paths: int) -> "_Reader":
        """Read a source's state; None: it had not begun."""
        cursor = Cursor() if source is None else Cursor.from_dict(source)
        usual = [Stretch.of(placement.worker_share(paths))]
        first, *others = cursor.dealt or [usual]
        unread = first if cursor.position is None else left_behind(first, *split_position(cursor.position))
        return cls(cursor.passes, [unread, *others], usual, usual_from=cursor.passes + len(cursor.dealt))

    def unread(self, number: int) -> list[Stretch]:
        """Return what it had left of pass ``number``."""
        if number < self.passes:
            return []
        ahead = number - self.passes
        return self.shares[ahead] if ahead < len(self.shares) else self.usual


def deal(states: Sequence[LoaderState], world_size: int, num_workers: int, global_seed: int) -> list[LoaderState]:
    """Return the states of ``world_size`` new ranks from those of all old ranks, in their order."""
    streams = {
        Placement(rank=state.rank, world_size=state.world_size, worker=worker, num_workers=state.num_workers): stream
        for state in states
        for worker, stream in enumerate(state.workers)
    }
    started = [stream for stream in streams.values() if stream is not None]
    fresh = [LoaderState.start(rank, world_size, num_workers) for rank in range(world_size)]
    if not started:
        return fresh
    parts = world_size * max(1, num_workers)
    groups = {name: _deal_source(name, streams, parts) for name in started[0]["groups"]}
    buffered = [
        asdict(BufferedSample.from_dict(sample).among_all_paths()) for stream in started for sample in stream["buffer"]
    ]
    drops = merge_counts(*(stream["drops"] for stream in started))
    batches = states[0].dealt_after + sum(state.batches for state in states)
    dealt = [
        {
            "yielded": 0,
            "randomness": Randomness(_seed(global_seed, batches, part)).state_dict(),
            "groups": {name: shares[part] for name, shares in groups.items()},
            "buffer": buffered[part::parts],
            "drops": drops if part == 0 else {},
        }
        for part in range(parts)
    ]
    per_rank = max(1, num_workers)
    return [
        LoaderState(
            rank=rank,
            world_size=world_size,
            num_workers=num_workers,
            batches=0,
            dealt_after=batches,
            workers=dealt[rank * per_rank : (rank + 1) * per_rank],
        )
        for rank in range(world_size)
    ]


def _deal_source(name: str, streams: Mapping[Placement, Mapping[str, Any] | None], parts: int) -> list[dict[str, Any]]:
    sources = {placement: stream["groups"][name] for placement, stream in streams.items() if stream is not None}
    known = next(iter(sources.values()))
    paths = known["paths"]
    readers = [_Reader.of(placement, sources.get(placement), paths) for placement in streams]
    first = min(reader.passes for reader in readers)
    last = max(reader.passes + len(reader.shares) for reader in readers)
    some = next(iter(streams))
    spare = left_out(paths, some.world_size, some.num_workers)
    usual_from = min(reader.usual_from for reader in readers)
    passes = [
        [stretch for reader in readers for stretch in reader.unread(number)] + (spare if number >= usual_from else [])
        for number in range(first, last)
    ]
    drops = merge_counts(*(source["drops"] for source in sources.values()))
    return [
        {
            "paths": paths,
            "order": known["order"],
            **Cursor(passes=first, dealt=[_part(share, part, parts) for share in passes]).to_dict(),
            "drops": drops if part == 0 else {},
        }
        for part in range(parts)
    ]


def _part(share: Sequence[Stretch], part: int, parts: int) -> list[Stretch]:
    total = sum(len(stretch) for stretch in share)
    start, stop = part * total // parts, (part + 1) * total // parts
    return cut(cut(share, stop)[0], start)[1]


def _seed(global_seed: int, batches: int, part: int) -> int:
    return int(np.random.SeedSequence([global_seed, batches, part]).generate_state(1)[0])
