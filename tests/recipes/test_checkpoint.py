"""Checkpoints are whole or absent, and say why they cannot be used."""

import errno
import json
import math
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from recipes.checkpoint import CheckpointConfig, is_complete, newest
from recipes.mistakes import ConfigError
from recipes.optim import LrScheduleConfig, build_optimizer
from recipes.resume import ResumeConfig, resume
from recipes.trainer import Trainer
from tests.recipes.fakes import Setting, TwoLayers, trainer


def trained(folder: Path, **checkpoint: object) -> list[str]:
    """Train six steps; return the checkpoints that are left."""
    trainer(Setting(directory=folder, checkpoint=CheckpointConfig(**checkpoint))).fit()
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_the_end_of_a_run_is_saved(tmp_path) -> None:
    assert trained(tmp_path) == ["step-00000006"]


def test_only_the_newest_are_kept(tmp_path) -> None:
    assert trained(tmp_path, every_steps=1, keep=2) == ["step-00000005", "step-00000006"]


def test_the_best_is_kept_too(tmp_path) -> None:
    one = trainer(Setting(directory=tmp_path, checkpoint=CheckpointConfig(keep=1, best="val/loss")))
    for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0), (4, 4.0)):
        one.step, one.latest["val/loss"] = step, loss
        one.checkpoints.save(one)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000002", "step-00000004"]


def test_a_loss_that_is_no_number_is_never_the_best(tmp_path) -> None:
    one = trainer(Setting(directory=tmp_path, checkpoint=CheckpointConfig(keep=1, best="val/loss")))
    for step, loss in ((1, math.nan), (2, 2.0), (3, -math.inf), (4, 3.0)):
        one.step, one.latest["val/loss"] = step, loss
        one.checkpoints.save(one)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000002", "step-00000004"]


def test_a_metric_that_nobody_measures_is_told_with_those_there_are(tmp_path, caplog) -> None:
    trained(tmp_path, best="val/los")
    assert "checkpoint.best (val/los): no checkpoint has a finite value of it; metrics are: " in caplog.text
    assert "mse" in caplog.text.partition("metrics are: ")[2]


def test_an_asynchronous_checkpoint_holds_the_step_that_it_was_asked_at(tmp_path) -> None:
    """What is trained while it is written does not get into it."""
    one = trainer(Setting(directory=tmp_path, checkpoint=CheckpointConfig(asynchronous=True, keep=9)))
    one._batches = iter(one.loader)
    weights = {}
    for step in range(1, 4):
        one.train_step()
        weights[step] = {name: value.clone() for name, value in one.bare.state_dict().items()}
        one.checkpoints.save(one)
    one.checkpoints.wait()
    for step, expected in weights.items():
        again = trainer(Setting(directory=tmp_path / "again"))
        resume(again, ResumeConfig(path=str(tmp_path / f"checkpoints/step-{step:08d}")))
        assert again.step == step
        assert again.loader.state_dict() == {"next": step}
        assert all(torch.equal(value, expected[name]) for name, value in again.bare.state_dict().items())


def test_nothing_is_saved_where_nothing_is_wanted(tmp_path) -> None:
    trainer(Setting(directory=tmp_path, checkpoint=CheckpointConfig(at_end=False))).fit()
    assert not (tmp_path / "checkpoints").exists()


def test_a_checkpoint_records_step_config_and_versions(tmp_path) -> None:
    trained(tmp_path)
    record = json.loads((tmp_path / "checkpoints/step-00000006/run.json").read_text())
    assert (record["step"], record["world_size"], record["config"]) == (6, 1, {"name": "test"})
    assert record["versions"]["torch"] == version("torch")


def test_the_newest_complete_one_is_found(tmp_path) -> None:
    trained(tmp_path, every_steps=3)
    last, before = (tmp_path / f"checkpoints/step-0000000{step}" for step in (6, 3))
    assert newest([tmp_path / "checkpoints"]) == last
    weights = next(last.glob("*.distcp"))
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not is_complete(last)
    assert newest([tmp_path / "checkpoints"]) == before


def test_what_a_killed_save_left_behind_is_no_checkpoint(tmp_path) -> None:
    (tmp_path / "checkpoints/.step-00000003").mkdir(parents=True)
    (tmp_path / "checkpoints/step-00000004").mkdir(parents=True)
    assert newest([tmp_path / "checkpoints"]) is None


def test_auto_starts_from_nothing_where_there_is_nothing(tmp_path) -> None:
    one = trainer(Setting(directory=tmp_path / "run"))
    resume(one, ResumeConfig(path="auto"))
    assert one.step == 0


def test_auto_finds_the_newest_of_the_runs_of_the_same_name(tmp_path) -> None:
    trained(tmp_path / "monday")
    one = trainer(Setting(directory=tmp_path / "tuesday"))
    resume(one, ResumeConfig(path="auto"))
    assert one.step == 6


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(tmp_path, monkeypatch, asynchronous) -> None:
    trained(tmp_path)
    one = trainer(Setting(directory=tmp_path, checkpoint=CheckpointConfig(asynchronous=asynchronous)))
    one.step = 7

    really_open = Path.open

    def full(self: Path, *arguments: Any, **options: Any) -> Any:
        if tmp_path in self.parents:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return really_open(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", full)
    line = r"cannot write the checkpoint .*step-00000007 \(.* MiB are free there\): .*No space left on device"
    with pytest.raises(ConfigError, match=line):
        one.checkpoints.save_last(one)
    monkeypatch.undo()
    assert newest([tmp_path / "checkpoints"]).name == "step-00000006"


def test_what_was_changed_since_is_told(tmp_path, caplog) -> None:
    trained(tmp_path)
    one = trainer(Setting(directory=tmp_path))
    one.checkpoints.resolved = {"name": "other", "resume": "auto"}
    resume(one, ResumeConfig(path="auto"))
    assert "the config is not the checkpoint's: name ('test' then, 'other' now)" in caplog.text


def resumed(folder: Path, was: dict[str, Any], now: dict[str, Any], **optimizer: Any) -> Trainer:
    """Train six steps under one record of the config, and resume under another with a changed optimizer."""
    first = trainer(Setting(directory=folder))
    first.checkpoints.resolved = {"optimizer": was}
    first.fit()
    one = trainer(Setting(directory=folder))
    one.optimizer = build_optimizer(lambda groups: torch.optim.AdamW(groups, **{"lr": 0.05} | optimizer), one.bare)
    one.schedule = LrScheduleConfig(warmup_steps=12).build(one.optimizer, max_steps=12)
    one.checkpoints.resolved = {"optimizer": now}
    resume(one, ResumeConfig(path="auto"))
    return one


def test_an_option_of_the_optimizer_that_was_changed_holds_from_the_resumed_step_on(tmp_path) -> None:
    was, now = {"lr": 0.05, "weight_decay": 0.01}, {"lr": 0.6, "weight_decay": 0.3}
    one = resumed(tmp_path, was, now, **now)
    assert [group["weight_decay"] for group in one.optimizer.param_groups] == [0.3, 0.0]  # vectors never decay
    for step in (6, 7):
        assert [group["lr"] for group in one.optimizer.param_groups] == pytest.approx([0.6 * (step + 1) / 12] * 2)
        one.optimizer.step()
        one.schedule.step()


def test_an_option_that_was_not_changed_stays_as_it_was_saved(tmp_path) -> None:
    same = {"lr": 0.05, "weight_decay": 0.01}
    one = resumed(tmp_path, same, same, betas=(0.5, 0.6))
    assert one.schedule.base_lrs == [0.05, 0.05]
    assert all(group["betas"] == (0.9, 0.999) for group in one.optimizer.param_groups)
    assert one.optimizer.state_dict()["state"][0]["step"] == 6


def test_a_finished_run_says_that_nothing_is_left_and_still_knows_its_metrics(tmp_path, caplog) -> None:
    first = trainer(Setting(directory=tmp_path))
    metrics = dict(first.fit())
    one = trainer(Setting(directory=tmp_path))
    with caplog.at_level("INFO"):
        resume(one, ResumeConfig(path="auto"))
    assert "nothing to do: train.max_steps is 6; raise it to train on" in caplog.text
    assert one.fit() == metrics
    assert "mse" in metrics


def test_an_incomplete_checkpoint_is_refused_by_name(tmp_path) -> None:
    one = trainer(Setting(directory=tmp_path))
    with pytest.raises(ConfigError, match=r"resume\.path \(.*nowhere\): not a complete checkpoint"):
        resume(one, ResumeConfig(path=str(tmp_path / "nowhere")))


def written_by_two_ranks(folder: Path) -> Path:
    """Make a run's checkpoint look like one of two ranks."""
    trained(folder)
    record = folder / "checkpoints/step-00000006/run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"world_size": 2}))
    shutil.copy(record.with_name("rank-00000.json"), record.with_name("rank-00001.json"))
    marker = record.with_name("complete.json")
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"run.json": record.stat().st_size}))
    return record.parent


def test_another_number_of_ranks_is_refused_with_both_numbers_and_the_way_out(tmp_path) -> None:
    path = written_by_two_ranks(tmp_path)
    one = trainer(Setting(directory=tmp_path))
    way_out = r"launch as many as then; or set resume\.elastic=true"
    with pytest.raises(ConfigError, match=rf"written by 2 ranks, this run has 1: {way_out}"):
        resume(one, ResumeConfig(path=str(path)))


def test_with_elastic_another_number_of_ranks_gets_the_states_of_all(tmp_path) -> None:
    path = written_by_two_ranks(tmp_path)
    one = trainer(Setting(directory=tmp_path))
    resume(one, ResumeConfig(path=str(path), elastic=True))
    assert one.step == 6
    assert one.loader.state_dict() == {"next": 12}


def test_the_checkpoint_of_another_model_is_refused(tmp_path, monkeypatch) -> None:
    trained(tmp_path)
    init = TwoLayers.__init__

    def wider(self: TwoLayers) -> None:
        init(self)
        self.head = torch.nn.Linear(4, 3)

    monkeypatch.setattr(TwoLayers, "__init__", wider)
    one = trainer(Setting(directory=tmp_path))
    with pytest.raises(ConfigError, match="does not fit this model"):
        resume(one, ResumeConfig(path="auto"))


@pytest.mark.parametrize(("settings", "key"), [({"every_steps": 0}, "every_steps"), ({"keep": 0}, "keep")])
def test_settings_that_mean_nothing_are_refused(settings, key) -> None:
    with pytest.raises(ConfigError, match=rf"checkpoint.{key} \(0\) must be at least 1"):
        CheckpointConfig(**settings).check()
