"""Look at a run's data before a GPU is touched, with the overrides of train.py: ``scripts/validate.py recipe=bagel``.

``validate.rows=all`` reads every row, ``validate.world_size=8`` shares the data out as for 8 ranks. The exit code is 0
where all is well, 1 where there are problems, 2 where the command itself is wrong.
"""

import os
from pathlib import Path

import hydra
from omegaconf import DictConfig

from recipes import config, launch
from recipes.validate import tables
from recipes.validate.config import ValidateRun, check
from recipes.validate.run import validate

PROBLEMS_FOUND = 1


@hydra.main(version_base="1.3", config_path="../conf", config_name="validate")
def main(composed: DictConfig) -> None:
    """Look, print tables and findings, and write the JSON; of torchrun's ranks one does."""
    if os.environ.get("RANK", "0") != "0":
        return
    with launch.refusals_told():
        run, _ = config.load(composed, ValidateRun)
        check(run.validate)
        report = validate(run)
    path = Path(run.validate.report or launch.run_directory() / "validate.json")
    report.write(path)
    tables.show(report)
    print(f"everything: {path}")
    if report.problems:
        raise SystemExit(PROBLEMS_FOUND)


if __name__ == "__main__":
    launch.main(main, ValidateRun)
