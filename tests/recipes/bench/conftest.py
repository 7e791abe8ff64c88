from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from recipes import launch
from recipes.bench import config
from recipes.bench.config import BenchConfig
from recipes.bench.measure import Contestant
from tests.recipes.parity_sources import write_sources

CONF = Path(__file__).parents[3] / "conf"
SMALL = ["sources=parity", "packing=tiny", "images=tiny", "packs=2"]


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Callable[..., BenchConfig]]:
    """Compose and check ``conf/bench.yaml`` over the parity corpora; arguments are overrides."""
    own = write_sources(tmp_path / "conf")
    config.register()
    launch.register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        searchpath = f"hydra.searchpath=[file://{own}]"
        yield lambda *overrides: config.load(compose("bench", [searchpath, *SMALL, *overrides]))[0]


@pytest.fixture
def contestant(settings: Callable[..., BenchConfig], tmp_path: Path) -> Callable[..., Contestant]:
    """Return the named contestant of a choice of data; keywords replace its fields."""

    def make(*overrides: str, name: str = "pillow", **fields: object) -> Contestant:
        return replace(config.contestants(settings(*overrides), tmp_path)[name], **fields)

    return make
