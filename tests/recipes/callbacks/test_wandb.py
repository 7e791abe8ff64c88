"""Weights & Biases without a network."""

from recipes.callbacks.json_lines import JsonLines
from recipes.callbacks.loss_curve import LossCurve
from recipes.callbacks.lost_samples import LostSamples
from recipes.callbacks.wandb import Wandb
from recipes.resume import ResumeConfig, resume
from tests.recipes.fakes import Setting, trainer


def test_an_offline_run_keeps_its_id_when_it_is_resumed(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    trainer(Setting(directory=tmp_path, max_steps=2, callbacks=[Wandb(project="test")])).fit()
    first = (tmp_path / "wandb_id.txt").read_text()
    one = trainer(Setting(directory=tmp_path, max_steps=4, callbacks=[Wandb(project="test")]))
    resume(one, ResumeConfig(path="auto"))
    one.fit()
    assert (tmp_path / "wandb_id.txt").read_text() == first
    runs = list((tmp_path / "wandb").glob(f"offline-run-*-{first}"))
    assert len(runs) == 2


def test_pictures_and_the_table_of_lost_samples_go_along(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    callbacks = [Wandb(project="test"), JsonLines(), LostSamples(), LossCurve()]
    trainer(Setting(directory=tmp_path, max_steps=2, callbacks=callbacks)).fit()
    media = tmp_path.glob("wandb/offline-run-*/files/media/*/*")
    assert sorted(path.name.partition("_2_")[0] for path in media) == ["loss_curve", "lost"]
