"""Time the data alone, without a model: ``python scripts/bench.py data=bagel``, or ``data=image_edit`` for a cache.

An installed implementation of the same interface is timed beside it, on the same rows and seeds, when its config is
named: ``python scripts/bench.py data=bagel peer._target_=package.module.BagelDatasetConfig``.
"""

import json
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig
from rich.console import Console

from recipes import launch, nodes
from recipes.bench import caches, config, contest, measure, table

console = Console(width=120)  # also where the output is a file


@hydra.main(version_base="1.3", config_path="../conf", config_name="bench")
def bench(composed: DictConfig) -> None:
    """Measure what Hydra composed, print the tables and write the JSON."""
    settings, plain = config.load(composed)
    directory = launch.run_directory()
    if settings.is_cached:
        bench_cache(settings, plain, directory / "bench.json")
    else:
        bench_packs(settings, plain, directory / "bench.json")
    console.print(f"everything: {directory / 'bench.json'}", soft_wrap=True)


def bench_cache(settings: config.BenchConfig, plain: dict[str, Any], path: Path) -> None:
    """Measure a latent cache with every number of workers."""
    results = contest.hold(config.cache_contestants(settings), settings.rounds, caches.measure_cache)
    path.write_text(json.dumps(caches.as_json(results, plain), indent=2) + "\n", encoding="utf-8")
    console.print(caches.figures_table(results))


def bench_packs(settings: config.BenchConfig, plain: dict[str, Any], path: Path) -> None:
    """Measure packs of every contestant, and of a peer if there is one."""
    if settings.sources.prepare is not None:
        nodes.build(settings.sources.prepare)()
    results = contest.hold(config.contestants(settings, path.parent), settings.rounds, measure.measure)
    peer = config.PEER if settings.has_peer else None
    table.write_json(path, results, plain, peer)
    console.print(table.figures_table(results))
    if peer is not None:
        console.print(table.ratios_table(results, peer))


if __name__ == "__main__":
    config.register()
    launch.main(bench)
