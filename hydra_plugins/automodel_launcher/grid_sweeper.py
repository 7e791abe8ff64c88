"""``hydra/sweeper=grid``: Hydra's own grid, but for a combination that cannot be composed, which the launcher gets too.

No ``from __future__ import annotations`` here: with a dataclass it breaks Hydra's search for plugins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra.core.config_store import ConfigStore

from hydra_plugins.automodel_launcher.torchrun_launcher import TorchrunLauncherConfig


@dataclass
class GridSweeperConfig(BasicSweeperConf):
    """The options of Hydra's ``basic`` sweeper."""

    _target_: str = "hydra_plugins.automodel_launcher.grid_sweeper.GridSweeper"


ConfigStore.instance().store("grid", GridSweeperConfig, group="hydra/sweeper", provider="automodel_launcher")


class GridSweeper(BasicSweeper):
    """Leaves it to ``hydra/launcher=torchrun`` what becomes of a job that cannot be composed: it runs the others."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose every job before the first is launched, where the launcher would not."""
        if self.config.hydra.launcher._target_ != TorchrunLauncherConfig._target_:
            super().validate_batch_is_legal(batch)
