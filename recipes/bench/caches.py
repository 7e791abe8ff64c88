"""The benchmark of latent caches: how fast a loader is, and how near to what ``torch.load`` alone takes."""

import gc
import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from automodel_data.diffusion.loader import LatentDataloader
from recipes import nodes
from recipes.bench import table
from recipes.bench.measure import forget_peak, resident_mib, state_bytes
from recipes.bench.seconds import Seconds, Stopwatch

_PASSES = 5  # over the same batches, in turn with their floor: what else the machine does falls on both


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheContestant:
    """A loader's config as plain values; ``batches`` of one epoch are timed, all if there are fewer."""

    node: Mapping[str, Any]
    batch_size: int
    batches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheMeasurement:
    """What one loader took.

    Args:
        first_batch_seconds: From the config to the first batch, with the start of the workers.
        idle_mib: Resident memory before the loader is built.
        peak_mib: Most resident memory since then; that of workers is not in it.
        floor: Seconds for ``torch.load`` of the same files in the same order, without workers.
    """

    samples: int
    file_bytes: int
    seconds: Seconds
    first_batch_seconds: float
    idle_mib: float
    peak_mib: float
    state_bytes: int
    floor: Seconds


Results = Mapping[str, Sequence[CacheMeasurement]]

FIGURES: dict[str, table.Figure[CacheMeasurement]] = {
    "samples_per_second": lambda one: one.samples / one.seconds.wall,
    "floor_share": lambda one: one.floor.wall / one.seconds.wall,
    "mib_per_sample": lambda one: one.file_bytes / one.samples / 2**20,
    "peak_mib": lambda one: one.peak_mib,
    "peak_mib_over_idle": lambda one: one.peak_mib - one.idle_mib,
    "state_bytes": lambda one: one.state_bytes,
    "first_batch_seconds": lambda one: one.first_batch_seconds,
}


def measure_cache(contestant: CacheContestant) -> CacheMeasurement:
    """Read the batches once, which starts workers and fills the file cache; then time them and the floor in turn."""
    torch.set_num_threads(1)  # as in a worker
    multiprocessing.set_start_method(None, force=True)  # workers start as in training, not as this process did
    config = nodes.build(contestant.node)
    gc.collect()
    idle_mib = resident_mib("VmRSS")
    forget_peak()
    with Stopwatch() as until_first:
        loader = config.build(dp_rank=0, dp_world_size=1, batch_size=contestant.batch_size).dataloader
        next(iter(loader))
    _read(loader, contestant.batches)
    peak_mib = resident_mib("VmHWM")
    state = loader.state_dict()
    indices = chain.from_iterable(islice(loader.sampler, contestant.batches))
    files = [loader.dataset.metadata[index]["cache_file"] for index in indices]
    seconds = floor = Seconds(wall=0.0, cpu=0.0)
    for _ in range(_PASSES):
        with Stopwatch() as stopwatch:
            _read(loader, contestant.batches)
        seconds += stopwatch.seconds
        floor += _floor(files)
    return CacheMeasurement(
        samples=_PASSES * len(files),
        file_bytes=_PASSES * sum(Path(file).stat().st_size for file in files),
        seconds=seconds,
        first_batch_seconds=until_first.seconds.wall,
        idle_mib=idle_mib,
        peak_mib=peak_mib,
        state_bytes=state_bytes(state),
        floor=floor,
    )


def _read(loader: LatentDataloader, batches: int) -> None:
    for _ in islice(loader, batches):
        pass


def _floor(files: Sequence[str]) -> Seconds:
    with Stopwatch() as stopwatch:
        for file in files:
            torch.load(file, map_location="cpu", weights_only=True)
    return stopwatch.seconds


def figures_table(results: Results) -> Table:
    """Return the medians as a table, a contestant a row."""
    rounds = len(next(iter(results.values())))
    columns = ("samples/s", "times torch.load", "MiB a sample", "peak MiB (over idle)", "state", "first batch")
    figures = table.titled(f"median of {rounds} rounds", columns)
    for name, one in table.medians(results, FIGURES).items():
        figures.add_row(
            name,
            f"{one['samples_per_second']:,.0f}",
            f"{one['floor_share']:.2f}",
            f"{one['mib_per_sample']:.2g}",
            f"{one['peak_mib']:,.0f} ({one['peak_mib_over_idle']:,.0f})",
            table.spell_bytes(one["state_bytes"]),
            f"{one['first_batch_seconds']:.2f} s",
        )
    return figures


def as_json(results: Results, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, the machine, the medians and every single measurement."""
    return {
        "machine": table.machine(),
        "config": config,
        "medians": table.medians(results, FIGURES),
        "rounds": {name: [asdict(one) for one in rounds] for name, rounds in results.items()},
    }
