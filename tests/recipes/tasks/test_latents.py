"""Flow matching on real caches, against the formula by hand."""

import json
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig
from automodel_data.diffusion.text_to_image_dataset import TextToImageDataloaderConfig
from recipes import distributed
from recipes.mistakes import ConfigError
from recipes.models.flow import FlowInputs
from recipes.models.vae import DctVae
from recipes.tasks.base import Loader
from recipes.tasks.flow import FlowTimes, FlowWeights
from recipes.tasks.latents import LatentsTaskConfig

INPUTS = Path(__file__).parents[2] / "data/parity/inputs"
EDITS = ImageEditDataloaderConfig(str(INPUTS / "edit_cache"), num_workers=0, bucket_policy="pad")
IMAGES = TextToImageDataloaderConfig(str(INPUTS / "t2i_cache"), num_workers=0, bucket_policy="pad")
WORLD = distributed.World(rank=0, size=1, device=torch.device("cpu"))


def settings(**changes: object) -> LatentsTaskConfig:
    values = {"batch_size": 2, "times": FlowTimes(), "weights": FlowWeights(kind="linear"), "vae": DctVae}
    return LatentsTaskConfig(**values | {"pooled": None} | changes)


def batch_of(config: LatentsTaskConfig, data: object) -> dict[str, object]:
    return next(iter(config.build(None, WORLD.device).loader(data, WORLD, seed=0)))


class Remembering:
    """A model that predicts zero and keeps what it was given."""

    inputs: FlowInputs
    training = True

    def __call__(self, inputs: FlowInputs) -> torch.Tensor:
        self.inputs = inputs
        return torch.zeros_like(inputs.noisy_BCHW)


class SumsText(Remembering):
    """A model whose prediction depends on the prompt."""

    def __call__(self, inputs: FlowInputs) -> torch.Tensor:
        return inputs.text_BSD.sum((1, 2))[:, None, None, None].expand_as(inputs.noisy_BCHW)


def test_the_loss_is_the_weighed_squared_error_of_the_velocity() -> None:
    config, model = settings(text_dropout=0.0), Remembering()
    batch = batch_of(config, EDITS)
    terms = config.build(None, WORLD.device).losses(model, batch, torch.Generator().manual_seed(0))
    clean, time = batch["image_latents"].float(), model.inputs.time_B[:, None, None, None]
    noise = (model.inputs.noisy_BCHW - (1 - time) * clean) / time
    expected = ((1 + time) * (noise - clean) ** 2).sum()
    torch.testing.assert_close(terms.sums, expected[None], rtol=1e-4, atol=1e-3)
    assert terms.groups["contexts_1"].tolist() == [[terms.sums.item(), clean.numel()]]


def test_every_latent_value_counts_alike() -> None:
    for data in (EDITS, IMAGES):
        batch = batch_of(settings(), data)
        assert settings().build(None, WORLD.device).counts(batch).item() == batch["image_latents"].numel()


def test_contexts_and_mask_are_passed_on_in_order() -> None:
    config, model = settings(text_dropout=0.0, pooled="pooled"), Remembering()
    batch = batch_of(config, EDITS)
    config.build(None, WORLD.device).losses(model, batch, torch.Generator().manual_seed(0))
    for ours, theirs in zip(model.inputs.contexts, batch["context_latents"], strict=True):
        assert torch.equal(ours, theirs.float())
    assert torch.equal(model.inputs.mask_BS, batch["text_attention_mask"].bool())
    assert torch.equal(model.inputs.text_BSD, batch["text_embeddings"].float())
    assert torch.equal(model.inputs.pooled_BD, batch["conditioning_tensors"]["pooled"].float())


@pytest.mark.parametrize("name", ["pooled", "pooled_prompt_embeds"])
def test_the_pooled_prompts_of_either_kind_of_cache_are_found(name: str) -> None:
    model, vectors = Remembering(), torch.randn(2, 3)
    batch = {**batch_of(settings(), EDITS), "conditioning_tensors": {"size": torch.ones(2, 3), name: vectors}}
    task = settings(text_dropout=0.0, pooled="auto").build(None, WORLD.device)
    task.losses(model, batch, torch.Generator().manual_seed(0))
    assert torch.equal(model.inputs.pooled_BD, vectors)


def test_pooled_prompts_of_another_name_are_not_guessed_and_none_may_be_asked_for() -> None:
    batch = batch_of(settings(), EDITS)
    other = {**batch, "conditioning_tensors": {"size": torch.ones(2, 3)}}
    for asked, given in (("auto", other), (None, batch)):
        model = Remembering()
        settings(pooled=asked).build(None, WORLD.device).losses(model, given, torch.Generator().manual_seed(0))
        assert model.inputs.pooled_BD is None
        assert list(model.inputs.conditioning) == list(given["conditioning_tensors"])


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"pooled": torch.ones(2, 3), "size": torch.ones(2, 3)}, "which has pooled, size"),
        ({}, "which has none: encode it with encoder.pooled"),
    ],
)
def test_a_wrong_name_of_the_pooled_prompts_is_told_with_those_there_are(tensors: dict, says: str) -> None:
    batch = {**batch_of(settings(), EDITS), "conditioning_tensors": tensors}
    task = settings(pooled="poled").build(None, WORLD.device)
    with pytest.raises(ConfigError, match=rf"task.pooled \(poled\) must name a conditioning tensor .*, {says}"):
        task.losses(Remembering(), batch, torch.Generator().manual_seed(0))


def test_prompts_are_dropped_by_the_sample() -> None:
    model, dropped = Remembering(), 0
    config = settings(text_dropout=0.5, pooled="pooled")
    batch = batch_of(config, EDITS)
    task = config.build(None, WORLD.device)
    for seed in range(100):
        task.losses(model, batch, torch.Generator().manual_seed(seed))
        gone = (model.inputs.text_BSD == 0).all((1, 2))
        assert torch.equal(gone, (model.inputs.pooled_BD == 0).all(1))
        dropped += int(gone.sum())
    assert 70 < dropped < 130


def test_the_loss_of_a_model_that_is_not_training_does_not_depend_on_text_dropout() -> None:
    batch, losses = batch_of(settings(), EDITS), []
    for text_dropout, training in ((0.0, True), (0.0, False), (1.0, False), (1.0, True)):
        model = SumsText()
        model.training = training
        task = settings(text_dropout=text_dropout).build(None, WORLD.device)
        losses.append(task.losses(model, batch, torch.Generator().manual_seed(0)).sums.item())
    assert losses[0] == losses[1] == losses[2] != losses[3]


def test_every_sample_of_a_batch_has_a_time_and_noise_of_its_own() -> None:
    model, task = Remembering(), settings(text_dropout=0.0).build(None, WORLD.device)
    batch = batch_of(settings(), EDITS)
    batch = {**batch, "image_latents": batch["image_latents"][:1].expand(2, -1, -1, -1)}
    task.losses(model, batch, torch.Generator().manual_seed(0))
    first, second = model.inputs.time_B.tolist()
    assert abs(first - second) > 1e-3
    time = model.inputs.time_B[:, None, None, None]
    noise = (model.inputs.noisy_BCHW - (1 - time) * batch["image_latents"].float()) / time
    assert (noise[0] - noise[1]).abs().mean() > 0.1
    assert noise.flatten(1).std(1).sub(1).abs().max() < 0.3


def test_a_text_to_image_batch_has_no_contexts() -> None:
    model, config = Remembering(), settings()
    batch = batch_of(config, IMAGES)
    task = config.build(None, WORLD.device)
    terms = task.losses(model, batch, torch.Generator().manual_seed(0))
    assert list(terms.groups) == ["text_to_image"]
    assert model.inputs.contexts == []
    assert task.texts(batch) == batch["metadata"]["prompts"]
    assert task.loader(IMAGES, WORLD, seed=0).origins(batch) == batch["metadata"]["image_paths"]


def test_epochs_follow_each_other_without_end_in_a_new_order() -> None:
    task = settings().build(None, WORLD.device)
    loader = task.loader(EDITS, WORLD, seed=0)
    length = len(EDITS.build(0, 1, 2).dataloader)
    rows = [loader.origins(batch) for batch in islice(loader, 2 * length)]
    assert rows[:length] != rows[length:]
    assert {row for part in rows[:length] for row in part} == {row for part in rows[length:] for row in part}


@pytest.mark.parametrize("stop", [3, 21, 22, 23, 30])
def test_the_stream_goes_on_behind_a_saved_state_twice(stop: int) -> None:
    task = settings().build(None, WORLD.device)

    def rows(loader: Loader, count: int) -> list[list[str]]:
        return [loader.origins(batch) for batch in islice(loader, count)]

    expected = rows(task.loader(EDITS, WORLD, seed=0), stop + 8)
    first = task.loader(EDITS, WORLD, seed=0)
    seen = rows(first, stop)
    for count in (4, 4):
        state = json.loads(json.dumps(first.state_dict()))
        first = task.loader(EDITS, WORLD, seed=0)
        first.load_state_dict(state)
        seen += rows(first, count)
    assert seen == expected


@pytest.mark.parametrize(
    ("changes", "line"),
    [({"batch_size": 0}, r"task.batch_size \(0\) must be at least 1"), ({"text_dropout": 2.0}, r"task.text_dropout")],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        settings(**changes).check(SimpleNamespace(model=None, data=EDITS, validation=SimpleNamespace(data=None)))


def test_data_that_is_no_cache_is_refused() -> None:
    class Packs:
        def build(self, tokenizer: object) -> None: ...

    with pytest.raises(ConfigError, match=r"data \(Packs\) does not feed task=latents: its build\(\) takes tokenizer"):
        settings().check(SimpleNamespace(model=None, data=Packs(), validation=SimpleNamespace(data=None)))


def test_what_two_ranks_left_of_an_epoch_is_dealt_to_one() -> None:
    data = ImageEditDataloaderConfig(str(INPUTS / "edit_cache"), num_workers=0, bucket_policy="partial")
    task = settings().build(None, WORLD.device)
    loaders = [task.loader(data, distributed.World(rank=rank, size=2, device=WORLD.device), seed=0) for rank in (0, 1)]
    seen = [row for loader in loaders for batch in islice(loader, 3) for row in loader.origins(batch)]
    alone = task.loader(data, WORLD, seed=0)
    alone.load_elastic([loader.state_dict() for loader in loaders])
    for batch in alone:
        if alone.state_dict()["sampler"]["epoch"] == 1:
            break
        seen += alone.origins(batch)
    assert len(seen) == len(set(seen)) == 43
