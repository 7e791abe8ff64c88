import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recipes.bench import caches, config
from recipes.bench.config import BenchConfig
from recipes.mistakes import ConfigError
from tests.recipes.bench.test_table import cells, rendered

INPUTS = Path(__file__).parents[2] / "data/parity/inputs"

Settings = Callable[..., BenchConfig]


def overrides(kind: str) -> list[str]:
    cache = {"image_edit": "edit_cache", "t2i_cached": "t2i_cache"}[kind]
    return [f"data={kind}", f"data.cache_dir={INPUTS / cache}", "workers=[0,1]", "batch_size=2", "batches=3"]


@pytest.mark.parametrize("kind", ["image_edit", "t2i_cached"])
def test_a_loader_is_timed_beside_torch_load_of_the_same_files(settings: Settings, kind: str) -> None:
    contestants = config.cache_contestants(settings(*overrides(kind)))
    assert list(contestants) == ["0 workers", "1 workers"]
    results = {name: [caches.measure_cache(one)] for name, one in contestants.items()}
    for (measured,) in results.values():
        assert measured.samples == 5 * 6, "five passes"
        assert measured.floor.wall > 0
        assert 0 < measured.file_bytes / measured.samples < 100_000
        assert 0 < measured.idle_mib <= measured.peak_mib
        assert measured.state_bytes < 1024
    table = rendered(caches.figures_table(results))
    assert all(len(cells(table, name)) == 7 for name in results)
    content = json.loads(json.dumps(caches.as_json(results, {"batches": 3})))
    assert content["medians"]["0 workers"]["samples_per_second"] > 0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["workers=[]"], "workers is empty"),
        (["batches=0"], "batches (0) must be at least 1"),
        (["data.cache_dir=/nowhere"], "data.cache_dir (/nowhere) has no metadata.json"),
        (["+data.sed=1"], "data.sed: no such key"),
    ],
)
def test_a_mistake_is_told_with_its_key(settings: Settings, changes: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(line)):
        settings(*overrides("image_edit"), *changes)
