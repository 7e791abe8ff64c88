"""Train: ``python scripts/train.py recipe=bagel``, or ``torchrun --nproc-per-node 2 scripts/train.py recipe=bagel``."""

import hydra
from omegaconf import DictConfig
from torch.distributed.elastic.multiprocessing.errors import record

from recipes import config, launch
from recipes.dispatch import carry_out
from recipes.job import Job


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@record
def train(composed: DictConfig) -> float | None:
    """Run the job that Hydra composed; torchrun reports what a rank raises."""
    with launch.refusals_told():
        settings, resolved = config.load(composed)
        job = Job(config=settings, resolved=resolved, directory=launch.run_directory())
        return carry_out(job, script=__file__)


if __name__ == "__main__":
    launch.main(train)
