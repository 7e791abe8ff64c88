"""``hydra/launcher=torchrun``: the jobs of a sweep, one after the other, each on ranks of its own; then their table.

Hydra imports this file in every program: what is heavy is imported at use. No ``from __future__ import annotations``
here: with a dataclass it breaks Hydra's search for plugins.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

log = logging.getLogger(__name__)


@dataclass
class TorchrunLauncherConfig:
    """Has no options: ``launch.nproc_per_node`` of a job says how many ranks it gets."""

    _target_: str = "hydra_plugins.automodel_launcher.torchrun_launcher.TorchrunLauncher"


ConfigStore.instance().store("torchrun", TorchrunLauncherConfig, group="hydra/launcher", provider="automodel_launcher")


class TorchrunLauncher(Launcher):
    """Runs jobs in turn; a failed one does not keep the others from running, but the sweep has failed in the end.

    Under torchrun all jobs run in its ranks, in one process group, and the first failure ends all ranks: left alone
    they would wait for each other in different jobs.
    """

    def __init__(self) -> None:
        self._directories: set[Path] = set()
        self._ended: dict[str, str] = {}  # how, by the name of the job's directory

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what every job needs from the sweeper."""
        self._context, self._task_function, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs of a batch, then report on the sweep so far."""
        from recipes import sweep
        from recipes.launch import is_rank_0

        setup_globals()
        jobs = [self._compose(number, overrides) for number, overrides in enumerate(job_overrides, initial_job_idx)]
        returns = [job if isinstance(job, JobReturn) else self._run(job) for job in jobs]
        self._log_for_the_sweep()
        if is_rank_0():
            sweep.report(Path(self._config.hydra.sweep.dir), self._ended)
        return returns

    def _compose(self, number: int, overrides: Sequence[str]) -> DictConfig | JobReturn:
        """Return the config of a job or, where its overrides make none, how it failed."""
        from recipes.launch import started_by_torchrun
        from recipes.mistakes import explain

        try:
            job = self._numbered(self._context.config_loader.load_sweep_config(self._config, list(overrides)), number)
        except HydraException as error:
            line = explain(error)
            if line is None or started_by_torchrun():
                raise
            log.error("job %d: %s", number, line)
            job = self._numbered(self._config, number)
            job.hydra.overrides.task = list(overrides)
            record = _directory(job) / ".hydra" / "overrides.yaml"  # where the table finds what was tried
            record.parent.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(job.hydra.overrides.task, record)
            return self._failed(job, line)
        return job

    def _numbered(self, config: DictConfig, number: int) -> DictConfig:
        from recipes.mistakes import ConfigError

        job = config.copy()
        with open_dict(job):
            job.hydra.job.id = job.hydra.job.num = number
        directory = _directory(job)
        if directory in self._directories:
            raise ConfigError(f"hydra.sweep.subdir: two jobs would share {directory}; let it hold ${{hydra.job.num}}")
        self._directories.add(directory)
        return job

    def _run(self, job: DictConfig) -> JobReturn:
        from recipes.elastic import Stopped
        from recipes.launch import started_by_torchrun
        from recipes.mistakes import explain

        self._log_for_the_sweep()
        log.info("job %d: %s", job.hydra.job.num, " ".join(job.hydra.overrides.task))
        one_fails_all_fail = started_by_torchrun()
        try:
            done = run_job(
                hydra_context=self._context,
                task_function=self._task_function,
                config=job,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
            )
        except Stopped:
            raise
        except SystemExit as left:
            if one_fails_all_fail:
                raise
            return self._failed(job, explain(left.__context__ or left) or f"exit code {left.code}")
        if done.status is JobStatus.FAILED and not one_fails_all_fail:
            log.error("job %d failed", job.hydra.job.num, exc_info=done._return_value)
            return self._failed(job, repr(done._return_value))
        _ = done.return_value  # raises what the job raised
        self._ended[_directory(job).name] = "finished"
        return done

    def _failed(self, job: DictConfig, reason: str) -> JobReturn:
        from recipes.mistakes import SweepError

        self._ended[_directory(job).name] = f"failed: {reason}"
        error = SweepError(
            f"job {job.hydra.job.num} failed: {reason}; what is missing runs with the same command and "
            f"resume=auto hydra.sweep.dir={job.hydra.sweep.dir}"
        )
        task = list(job.hydra.overrides.task)
        return JobReturn(overrides=task, cfg=job, status=JobStatus.FAILED, _return_value=error)

    def _log_for_the_sweep(self) -> None:
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)


def _directory(job: DictConfig) -> Path:
    return Path(job.hydra.sweep.dir) / str(job.hydra.sweep.subdir)
