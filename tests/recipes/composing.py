"""Runs as a program's command line composes them, without the program."""

from pathlib import Path

from hydra import compose, initialize_config_dir

from recipes import config, launch
from recipes.config import Run

CONF = Path(__file__).parents[2] / "conf"


def composed(program: str, schema: type[Run], *overrides: str) -> Run:
    """Compose ``conf/PROGRAM.yaml``, which adds the keys of ``schema`` to a run's."""
    config.register(schema)
    launch.register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        run, _ = config.load(compose(program, list(overrides)), schema)
    config.register()
    return run


def rows_in(root: Path) -> list[str]:
    """Return the overrides that take the rows of ``few_rows``, or of a copy of them in ``root``."""
    counts = [f"sources.num_used_data.{split}.vlm_sft=[{lines}]" for split, lines in (("train", 16), ("heldout", 8))]
    return [f"sources.root={root}", "sources.prepare=null", *counts]
