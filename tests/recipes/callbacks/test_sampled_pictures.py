"""Sampled edits are drawn beside their contexts and targets, at the end of a run on a cache made here."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLQwenImage
from hydra import compose, initialize_config_dir
from PIL import Image

from automodel_data.diffusion.image_edit_dataset import ImageEditDataloaderConfig
from recipes import config, distributed, launch
from recipes.callbacks import sampled_pictures
from recipes.callbacks.sampled_pictures import SampledPictures
from recipes.job import Job, build_trainer
from recipes.mistakes import ConfigError
from recipes.models.flow import FlowInputs
from recipes.models.vae import DctVae, decode_latents, encode_latents
from recipes.tasks.flow import FlowTimes, FlowWeights
from recipes.tasks.latents import LatentsTaskConfig
from recipes.trainer import Trainer, noise_generator
from tests.recipes.caches import write_edits

CONF = Path(__file__).parents[3] / "conf"
WORLD = distributed.World(rank=0, size=1, device=torch.device("cpu"))
BLACK, RED, GREEN, BLUE = (-1, -1, -1), (0.5, -0.5, -0.5), (-0.5, 0.5, -0.5), (-0.5, -0.5, 0.5)


def trainer_of(root: Path, *more: str) -> Trainer:
    """Build a run of two steps on the caches below ``root``."""
    config.register()
    launch.register_resolvers()
    overrides = {
        "sources.train_cache": root / "train",
        "sources.heldout_cache": root / "heldout",
        "train.max_steps": 2,
        "lr_schedule.warmup_steps": 1,
        "data.num_workers": 0,
        "task.batch_size": 2,
        "callbacks.sampled_pictures.steps": 2,
        "callbacks.watchdog": "null",
    }
    listed = ["recipe=image_edit", *(f"{key}={value}" for key, value in overrides.items()), *more]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        settings, resolved = config.load(compose("train", listed))
    world = distributed.start(timeout_minutes=1)
    return build_trainer(Job(config=settings, resolved=resolved, directory=root), world)


def edits(channels: int = 16, number: int = 4) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    return [(torch.randn(channels, 4, 6), [torch.randn(channels, 4, 4)]) for _ in range(number)]


@pytest.fixture
def caches(tmp_path: Path) -> Path:
    for split in ("train", "heldout"):
        write_edits(tmp_path / split / "image_edit", edits())
    return tmp_path


@pytest.mark.parametrize("name", ["rows", "steps"])
def test_a_picture_of_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"callbacks.sampled_pictures: {name} \(0\) must be at least 1"):
        trainer_of(tmp_path, f"callbacks.sampled_pictures.{name}=0")


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_run_on_edits_ends_with_samples(caches: Path, guidance: float) -> None:
    metrics = trainer_of(caches, f"callbacks.sampled_pictures.guidance={guidance}").fit()
    assert metrics["val/loss"] == metrics["val/mse"]
    assert (caches / "samples.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def qwen_caches(tmp_path: Path) -> Path:
    """Return a folder with caches of 4 channels, and with a pipeline's VAE that has as many."""
    for split in ("train", "heldout"):
        write_edits(tmp_path / split / "image_edit", edits(channels=4), encoder={"name": "QwenImageEditPipeline"})
    vae = AutoencoderKLQwenImage(base_dim=8, z_dim=4, num_res_blocks=1, latents_mean=[0.0] * 4, latents_std=[1.0] * 4)
    vae.save_pretrained(tmp_path / "pipeline" / "vae")
    return tmp_path


SMALL_QWEN = ("model.transformer.in_channels=16", "model.transformer.out_channels=4")


def test_latents_of_qwen_images_vae_are_drawn_by_it(qwen_caches: Path) -> None:
    vae = f"{{_target_: recipes.models.vae.load_vae, _partial_: true, path: {qwen_caches}/pipeline/vae}}"
    trainer_of(qwen_caches, *SMALL_QWEN, f"task.vae={vae}").fit()
    assert (qwen_caches / "samples.png").exists()


@pytest.mark.parametrize("model", ["qwen_image", "flux"])
def test_a_model_from_a_folder_takes_the_vae_beside_its_transformer(tmp_path: Path, model: str) -> None:
    config.register()
    launch.register_resolvers()
    folder = f"model.transformer.pretrained_model_name_or_path={tmp_path}"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        settings, _ = config.load(compose("train", ["recipe=image_edit", f"model={model}", folder]))
    with pytest.raises(ConfigError, match=f"no VAE in {tmp_path}/vae"):
        settings.task.build(settings.model, WORLD.device).vae()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("task.vae=null", r"task.vae has no value, and latents of .*heldout/image_edit are to be decoded"),
        ("name=x", r"task.vae \(DctVae\) must be the AutoencoderKLQwenImage of the encoder \(QwenImageEditPipeline\)"),
    ],
)
def test_a_vae_that_does_not_go_with_the_cache_is_refused_before_the_first_step(
    qwen_caches: Path, override: str, says: str
) -> None:
    trainer = trainer_of(qwen_caches, *SMALL_QWEN, override)
    with pytest.raises(ConfigError, match=says):
        trainer.fit()
    assert trainer.step == 0


def test_a_cache_that_does_not_name_its_encoder_is_judged_by_its_channels(tmp_path: Path) -> None:
    cache = write_edits(tmp_path / "cache", edits(channels=4))
    with pytest.raises(ConfigError, match=r"\(DctVae\) decodes latents of 16 channels, and .* holds 4"):
        SampledPictures().start(around(cache, still))


class Flow:
    """A model whose velocity is known."""

    def __init__(self, velocity: Callable[[FlowInputs], torch.Tensor]) -> None:
        self.velocity = velocity

    def __call__(self, inputs: FlowInputs) -> torch.Tensor:
        return self.velocity(inputs)

    def eval(self) -> None: ...

    def train(self) -> None: ...


def still(inputs: FlowInputs) -> torch.Tensor:
    return torch.zeros_like(inputs.noisy_BCHW)


def around(cache: Path, velocity: Callable[[FlowInputs], torch.Tensor]) -> SimpleNamespace:
    """Return what the callback sees of a trainer: held-out rows, a model, a place to write."""
    task = LatentsTaskConfig(batch_size=2, times=FlowTimes(), weights=FlowWeights(), vae=DctVae, pooled=None)
    task = task.build(None, WORLD.device)
    data = ImageEditDataloaderConfig(str(cache), num_workers=0, bucket_policy="pad")
    parts = {"task": task, "world": WORLD, "model": Flow(velocity), "directory": cache}
    return SimpleNamespace(heldout=lambda: task.loader(data, WORLD, seed=0), **parts)


def flat(colour: Sequence[float], height: int = 32, width: int = 32) -> torch.Tensor:
    """Return the latents [16, H / 8, W / 8] of a picture of one colour."""
    picture = torch.tensor(colour, dtype=torch.float32).view(1, 3, 1, 1).expand(1, 3, height, width)
    return encode_latents(DctVae(), picture)[0]


def drawn(trainer: SimpleNamespace, **settings: object) -> np.ndarray:
    """Return the picture that the callback draws, [H, W, 3] in [-1, 1]."""
    callback = SampledPictures(**settings)
    callback.start(trainer)
    callback.finish(trainer)
    return np.asarray(Image.open(trainer.directory / "samples.png").convert("RGB")) / 127.5 - 1


def places(picture: np.ndarray, colour: Sequence[float]) -> np.ndarray:
    """Return rows and columns [N, 2] of the pixels of a colour."""
    return np.argwhere(np.abs(picture - np.array(colour)).max(axis=2) < 0.02)


@pytest.mark.parametrize(("guidance", "ends_at"), [(1.0, 1.0), (3.0, 3.0), (0.0, 0.0)])
def test_the_sampled_picture_goes_from_the_one_without_prompt_by_guidance_to_and_past_the_one_with_it(
    tmp_path: Path, guidance: float, ends_at: float
) -> None:
    cache = write_edits(tmp_path / "cache", [(flat(GREEN), [flat(RED)])])
    plain, guided = (-0.2, -0.2, 0.1), (-0.1, -0.2, 0.2)

    def straight(inputs: FlowInputs) -> torch.Tensor:
        data = flat(guided if inputs.text_BSD.any() else plain)
        return (inputs.noisy_BCHW - data) / inputs.time_B.view(-1, 1, 1, 1)  # Euler steps reach it at time 0

    picture = drawn(around(cache, straight), steps=3, guidance=guidance)
    expected = [there + ends_at * (with_prompt - there) for there, with_prompt in zip(plain, guided, strict=True)]
    columns = [places(picture, colour)[:, 1] for colour in (RED, expected, GREEN)]
    assert [len(found) > 1000 for found in columns] == [True] * 3
    assert columns[0].max() < columns[1].min() <= columns[1].max() < columns[2].min()


def test_sampling_starts_from_noise_of_unit_variance_that_the_seed_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = write_edits(tmp_path / "cache", [(flat(GREEN), [flat(RED)])] * 2)
    rows: list[list[sampled_pictures.Row]] = []
    monkeypatch.setattr(sampled_pictures, "_draw", lambda drawn, png: rows.append(drawn))
    for seed in (5, 5, 6):
        callback, trainer = SampledPictures(rows=2, seed=seed, steps=2), around(cache, still)
        callback.start(trainer)
        callback.finish(trainer)
    made = [[pictures[1] for _, pictures in one] for one in rows]
    noise = torch.randn((1, 16, 4, 4), generator=noise_generator(5, 1, WORLD.device))
    expected = (decode_latents(DctVae(), noise)[0].clamp(-1, 1) / 2 + 0.5).permute(1, 2, 0)
    np.testing.assert_allclose(made[0][1], expected.numpy(), atol=1e-5)
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])
    assert not np.array_equal(made[0][0], made[0][1])


def test_a_prompt_of_any_length_keeps_its_distance_from_the_next_row(tmp_path: Path) -> None:
    picture = np.zeros((32, 32, 3))
    for name, text in (("short", "one line"), ("long", "word " * 200)):
        sampled_pictures._draw([(text, [picture] * 3), ("one line", [picture] * 3)], tmp_path / f"{name}.png")
    short, long = (np.asarray(Image.open(tmp_path / f"{name}.png").convert("L")) for name in ("short", "long"))
    assert len(long) > len(short) + 100
    for image in (short, long):
        inked = (image < 128).any(axis=1)
        black = np.flatnonzero((image < 10).mean(axis=1) > 0.3)
        second = black[np.flatnonzero(np.diff(black) > 1)[0] + 1]  # where the second row of pictures starts
        heading = second - 1 - np.flatnonzero(inked[:second][::-1])[0]
        above = np.flatnonzero(~inked[:heading][::-1])[0]  # rows of its letters
        gap = np.flatnonzero(inked[: heading - above][::-1])[0]
        assert gap > 10, "pixels between the prompt and the next heading"
