"""Where a job runs: in this process, on ranks of its own, or not at all because its sweep has it already.

                    one job                                  each job of a sweep (-m)
python              here; launch.nproc_per_node=N: N ranks   ranks of its own, 1 or launch.nproc_per_node
torchrun            here, one of its ranks                   here, one of its ranks, in one process group
"""

import dataclasses
import logging

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from recipes import elastic, result
from recipes.checkpoint import newest
from recipes.job import Job, run
from recipes.launch import started_by_torchrun
from recipes.mistakes import ConfigError

log = logging.getLogger(__name__)


def carry_out(job: Job, script: str) -> float | None:
    """Run ``job`` where it belongs and return the value of its objective; ``script`` is what its ranks are to run.

    Raises:
        SystemExit: It failed on ranks of its own, or was asked to stop.
    """
    in_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    if in_sweep:
        done = earlier_result(job)
        if done is not None and job.config.resume.path is not None and done.step >= job.config.train.max_steps:
            log.info("finished already, %s %s: %s", done.objective, done.value, job.directory)
            return done.value
        job = confined(job)
    ranks = job.config.launch.nproc_per_node
    if started_by_torchrun() or (ranks is None and not in_sweep):
        return run(job)
    resume = elastic.override("resume.path", job.config.resume.path)
    elastic.run(script, [*elastic.arguments_of_this_job(), resume], ranks or 1)
    done = result.read(job.directory)
    return None if done is None else done.value


def earlier_result(job: Job) -> result.Result | None:
    """Return what this job of a sweep came to before; None if it has not ended yet.

    Raises:
        ConfigError: The result in its directory is that of other settings.
    """
    done = result.read(job.directory)
    if done is not None and done.settings != result.fingerprint(job.resolved):
        raise ConfigError(
            f"hydra.sweep.dir: {job.directory} holds the result of another job, with other settings; "
            "give this sweep a directory of its own"
        )
    return done


def confined(job: Job) -> Job:
    """Return ``job`` resuming from its own newest checkpoint, if at all: the newest of the sweep is another job's."""
    own = newest([job.directory / "checkpoints"]) if job.config.resume.path is not None else None
    resume = dataclasses.replace(job.config.resume, path=None if own is None else str(own))
    return dataclasses.replace(job, config=dataclasses.replace(job.config, resume=resume))
