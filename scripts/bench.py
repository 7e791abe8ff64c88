"""Time the data alone, without a model: ``python scripts/bench.py data=bagel``.

An installed implementation of the same interface is timed beside it, on the same rows and seeds, when its config is
named: ``python scripts/bench.py data=bagel peer._target_=package.module.BagelDatasetConfig``.
"""

import hydra
from omegaconf import DictConfig
from rich.console import Console

from recipes import launch, nodes
from recipes.bench import config, contest, table


@hydra.main(version_base="1.3", config_path="../conf", config_name="bench")
def bench(composed: DictConfig) -> None:
    """Measure what Hydra composed, print the tables and write the JSON."""
    settings, plain = config.load(composed)
    directory = launch.run_directory()
    if settings.sources.prepare is not None:
        nodes.build(settings.sources.prepare)()
    results = contest.hold(config.contestants(settings, directory), settings.rounds)
    peer = config.PEER if settings.has_peer else None
    table.write_json(directory / "bench.json", results, plain, peer)
    console = Console(width=120)  # also where the output is a file
    console.print(table.figures_table(results))
    if peer is not None:
        console.print(table.ratios_table(results, peer))
    console.print(f"everything: {directory / 'bench.json'}")


if __name__ == "__main__":
    config.register()
    launch.main(bench)
