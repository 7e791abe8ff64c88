"""What ``scripts/validate.py`` adds to a run's config."""

import os
from dataclasses import dataclass, field

from recipes.config import RunConfig
from recipes.mistakes import ConfigError, require_at_least

ALL = "all"


@dataclass(kw_only=True, slots=True)
class ValidateConfig:
    """How closely to look.

    Args:
        rows: Of each dataset, spread over its files; ``all``: every row.
        packs: Drawn without a model.
        world_size: Ranks that share the paths; null: those that this command would start.
        max_lost: Share of a dataset's rows that may be lost before that is a problem.
        report: A JSON file; null: ``validate.json`` in the run directory.
    """

    rows: int | str = 100
    packs: int = 16
    world_size: int | None = None
    max_lost: float = 0.05
    report: str | None = None

    @property
    def row_limit(self) -> int | None:
        """Rows to look at in each dataset, None for all."""
        return None if self.rows == ALL else int(self.rows)


@dataclass(kw_only=True, slots=True)
class ValidateRun(RunConfig):
    """A run as for training, and how closely to look at its data."""

    validate: ValidateConfig = field(default_factory=ValidateConfig)

    @property
    def world_size(self) -> int:
        """Ranks that will share the data."""
        started = self.launch.nproc_per_node or int(os.environ.get("WORLD_SIZE", "1"))
        return self.validate.world_size or started


def check(config: ValidateConfig) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        ConfigError: Naming the key and its value.
    """
    if config.rows != ALL and not (isinstance(config.rows, int) and config.rows >= 1):
        raise ConfigError(f"validate.rows ({config.rows}) must be a number of at least 1, or {ALL}")
    require_at_least(1, **{"validate.packs": config.packs})
    if config.world_size is not None and config.world_size < 1:
        raise ConfigError(f"validate.world_size ({config.world_size}) must be at least 1, or null")
    if not 0 <= config.max_lost <= 1:
        raise ConfigError(f"validate.max_lost ({config.max_lost}) must lie between 0 and 1")
