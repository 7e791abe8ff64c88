"""From pairs to a trained model: caches of encode_cache's own making, trained on by one and by two processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from recipes import config, distributed, launch
from recipes.callbacks.base import Callback
from recipes.demo_data import DemoDataConfig, ensure_demo_data
from recipes.encode import config as encode_config
from recipes.encode.run import run as encode
from recipes.job import Job, build_trainer
from recipes.resume import ResumeConfig, resume
from recipes.trainer import Trainer

CONF = Path(__file__).parents[2] / "conf"
SPLITS = ("train", "heldout")
RECIPES = {"image_edit": "image_edit", "t2i_cached": "t2i"}  # and what they are encoded with
STEPS = 6
STOPS = (2, 3, 5)


def write_caches(root: Path) -> None:
    """Draw a few pairs and encode them as scripts/encode_cache.py does, small."""
    few = DemoDataConfig(
        t2i_rows=16, edit_rows=16, vlm_rows=16, pairs=24, heldout_rows=8, min_edge=64, max_edge=96, oddities=False
    )
    ensure_demo_data(root, few)
    encode_config.register()
    launch.register_resolvers()
    for split in SPLITS:
        for kind in RECIPES.values():
            overrides = [
                f"source={root / split}/pairs",
                f"cache_dir={root}/cache/{split}/{kind}",
                f"encode={kind}",
                "encoder=demo",
            ]
            with initialize_config_dir(str(CONF), version_base="1.3"):
                composed = compose("encode_cache", [*overrides, "transform.max_pixels=4096"])
            assert encode(encode_config.load(composed)) == 0


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("caches") / "demo"
    write_caches(root)
    return root


class Diary(Callback):
    """Writes down samples and losses of every step; asks to stop at one."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.pages: list[tuple[Any, list[float]]] = []
        self.heldout: list[float] = []

    def start(self, trainer: Trainer) -> None:
        self._ask(trainer)

    def after_step(self, trainer: Trainer) -> None:
        samples = [trainer.loader.origins(batch) for batch in trainer.report.batches]
        self.pages.append((samples, [sums.tolist() for sums in trainer.report.sums]))
        self._ask(trainer)

    def log(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        if "val/loss" in metrics:
            self.heldout.append(metrics["val/loss"])

    def _ask(self, trainer: Trainer) -> None:
        """Ask as a signal does, which is heard in the next step."""
        trainer.stop_requested = self.stop_at is not None and trainer.step + 1 >= self.stop_at


def make(root: Path, recipe: str, folder: Path, *more: str) -> Trainer:
    """Build the recipe's trainer over the caches in ``root``."""
    config.register()
    launch.register_resolvers()
    few = ["task.batch_size=2", "data.num_workers=0", "lr_schedule.warmup_steps=2", f"train.max_steps={STEPS}"]
    overrides = [f"recipe={recipe}", f"sources.root={root}", "sources.prepare=null", "callbacks=none", *few, *more]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        settings, resolved = config.load(compose("train", ["logger=none", "objective=null", *overrides]))
    world = distributed.start(timeout_minutes=1)
    folder.mkdir(parents=True, exist_ok=True)
    return build_trainer(Job(config=settings, resolved=resolved, directory=folder), world)


def train(trainer: Trainer, diary: Diary) -> None:
    trainer.callbacks = [*trainer.callbacks, diary]
    resume(trainer, ResumeConfig(path="auto"))
    trainer.fit()


def trained_whole_and_in_parts(root: Path, recipe: str, folder: Path) -> dict[str, Any]:
    """Train without a stop, and with three; return the pages and weights of both."""
    whole, all_pages = make(root, recipe, folder / "whole" / "run"), Diary()
    train(whole, all_pages)
    pages: list[Any] = []
    for stop in (*STOPS, None):
        part, diary = make(root, recipe, folder / "parts" / "run"), Diary(stop)
        train(part, diary)
        assert part.step == (stop or STEPS)
        pages += diary.pages
    weights = [{name: value.clone() for name, value in one.bare.state_dict().items()} for one in (whole, part)]
    return {"pages": (all_pages.pages, pages), "weights": weights}


def assert_same(result: dict[str, Any]) -> None:
    expected, pages = result["pages"]
    assert len(expected) == STEPS
    assert pages == expected
    whole, parts = result["weights"]
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_training_stopped_three_times_is_the_uninterrupted_one(caches: Path, tmp_path: Path, recipe: str) -> None:
    assert_same(trained_whole_and_in_parts(caches, recipe, tmp_path))


def on_two_ranks(folder: Path) -> dict[str, dict[str, Any]]:
    """What either rank runs; they share the encoding too."""
    write_caches(folder / "demo")
    return {recipe: trained_whole_and_in_parts(folder / "demo", recipe, folder / recipe) for recipe in RECIPES}


def test_two_ranks_encode_train_stop_and_go_on_alike(on_ranks) -> None:
    ranks = on_ranks(on_two_ranks)
    for recipe in RECIPES:
        first, second = (rank[recipe] for rank in ranks)
        assert_same(first)
        assert_same(second)
        assert all(torch.equal(ours, second["weights"][0][name]) for name, ours in first["weights"][0].items())
        assert first["pages"][0] != second["pages"][0]


def first_steps_on_two_ranks(folder: Path) -> tuple[str, list[Any]]:
    """Encode, take two steps of an epoch and save; return the folder and this rank's samples."""
    write_caches(folder / "demo")
    diary = Diary(stop_at=2)
    train(make(folder / "demo", "image_edit", folder / "runs" / "run", "data.bucket_policy=partial"), diary)
    return str(folder), diary.pages


def samples_of(pages: list[Any]) -> list[str]:
    return [sample for batches, _ in pages for batch in batches for sample in batch]


def test_another_number_of_ranks_reads_the_rest_of_the_epoch_and_nothing_twice(on_ranks) -> None:
    (folder, first), (_, second) = on_ranks(first_steps_on_two_ranks)
    root, partial = Path(folder), "data.bucket_policy=partial"
    alone, diary = make(root / "demo", "image_edit", root / "runs" / "run", partial, "train.max_steps=40"), Diary()
    alone.callbacks = [diary]
    resume(alone, ResumeConfig(path="auto", elastic=True))
    assert alone.step == 2
    alone.fit()
    before, after = samples_of([*first, *second]), samples_of(diary.pages)
    pairs = set(before + after)
    assert len(pairs) == 24
    rest = len(pairs) - len(before)
    assert 0 < rest < 24
    assert sorted(before + after[:rest]) == sorted(pairs)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_held_out_loss_falls(caches: Path, tmp_path: Path, recipe: str) -> None:
    validation = "recipes.callbacks.validation.Validation"
    more = [f"+callbacks.validation={{_target_: {validation}, every_steps: 1000, batches: 2, seed: 0}}"]
    more += ["task.batch_size=8", "optimizer.lr=3e-3", "train.max_steps=30", "checkpoint.at_end=false"]
    trainer, diary = make(caches, recipe, tmp_path / "run", *more), Diary()
    train(trainer, diary)
    assert diary.heldout[-1] < 0.85 * diary.heldout[0]
