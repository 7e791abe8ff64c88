"""Jobs of a sweep keep to themselves; whole sweeps are in tests/hydra_plugins."""

import json
from pathlib import Path

import pytest

from recipes import result
from recipes.config import RunConfig
from recipes.dispatch import confined, earlier_result
from recipes.job import Job
from recipes.mistakes import ConfigError
from recipes.result import Result
from recipes.resume import ResumeConfig

SETTINGS = {"train": {"max_steps": 4, "seed": 1}, "resume": {"path": None}}


def job(directory: Path, path: str | None = "auto", **settings: object) -> Job:
    directory.mkdir(exist_ok=True)
    return Job(config=RunConfig(resume=ResumeConfig(path=path)), resolved=SETTINGS | settings, directory=directory)


def write_checkpoint(directory: Path, step: int) -> Path:
    path = directory / f"checkpoints/step-{step:08d}"
    path.mkdir(parents=True)
    (path / "complete.json").write_text(json.dumps({}))
    return path


def test_a_job_goes_on_from_its_own_checkpoint_not_from_the_newest_of_the_sweep(tmp_path) -> None:
    own = write_checkpoint(tmp_path / "0", 2)
    write_checkpoint(tmp_path / "1", 4)
    assert confined(job(tmp_path / "0")).config.resume.path == str(own)
    assert confined(job(tmp_path / "2")).config.resume.path is None


def test_without_resume_it_starts_from_nothing(tmp_path) -> None:
    write_checkpoint(tmp_path / "0", 2)
    assert confined(job(tmp_path / "0", path=None)).config.resume.path is None


@pytest.mark.parametrize("change", [{"resume": {"path": "auto"}}, {"train": {"max_steps": 9, "seed": 1}}])
def test_more_steps_and_what_has_no_consequences_are_the_same_job(tmp_path, change: dict[str, object]) -> None:
    done = Result(step=4, objective="loss", value=1.0, settings=result.fingerprint(SETTINGS))
    one = job(tmp_path / "0", **change)
    result.write(done, one.directory)
    assert earlier_result(one) == done


def test_the_result_of_other_settings_is_refused(tmp_path) -> None:
    one = job(tmp_path / "0", train={"max_steps": 4, "seed": 2})
    result.write(Result(step=4, objective=None, value=None, settings=result.fingerprint(SETTINGS)), one.directory)
    with pytest.raises(ConfigError, match="holds the result of another job"):
        earlier_result(one)
