"""Held-out pictures beside what the trained flow makes of the same conditions; for task=latents."""

import logging
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from recipes.callbacks.base import Callback
from recipes.mistakes import ConfigError, require_at_least
from recipes.models.vae import decode_latents
from recipes.tasks.examples import examples, require_decoder
from recipes.tasks.flow import follow
from recipes.tasks.latents import Batch, LatentsTask
from recipes.trainer import Trainer, noise_generator

log = logging.getLogger(__name__)

FILE_NAME = "samples.png"
_COLUMN_INCHES, _ROW_INCHES, _LINE_INCHES = 2.2, 2.1, 0.14
_CHARACTERS_A_COLUMN = 36

Row = tuple[str, list[np.ndarray]]
"""A prompt; and its contexts, the sampled picture and the target, [H, W, 3] in [0, 1]."""


@dataclass(kw_only=True, slots=True)
class SampledPictures(Callback):
    """Draw ``samples.png`` in the run directory at the end: contexts, the sampled picture and the target in a row each.

    The rows are held-out samples of different buckets and numbers of contexts, as far as there are; a run without
    held-out rows draws nothing.

    Args:
        rows: How many samples.
        steps: Euler steps from noise to picture.
        guidance: How far to go beyond the prediction without a prompt; 1 is the prediction with it.
        seed: Decides the noise that sampling starts from.
    """

    rows: int = 4
    steps: int = 20
    guidance: float = 1.0
    seed: int = 0
    _examples: list[Batch] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Refuse to draw nothing; to have no pictures set the callback to null."""
        require_at_least(1, rows=self.rows, steps=self.steps)

    def start(self, trainer: Trainer) -> None:
        """Read what will be drawn, and refuse what would only fail at the end."""
        if not isinstance(trainer.task, LatentsTask):
            raise ConfigError("callbacks.sampled_pictures needs task=latents; or set it to null")
        if trainer.heldout is None:
            return
        dataset = trainer.heldout().dataset
        self._examples = examples(dataset, self.rows)
        require_decoder(trainer.task.config.vae, dataset, self._examples)

    @torch.no_grad()
    def finish(self, trainer: Trainer) -> None:
        """Sample on every rank (a sharded model needs all), draw on rank 0."""
        if not self._examples:
            return
        trainer.model.eval()
        vae = trainer.task.vae()
        rows = [self._row(trainer, vae, number, one) for number, one in enumerate(self._examples)]
        trainer.model.train()
        if trainer.world.leads:
            _draw(rows, trainer.directory / FILE_NAME)
            log.info("samples: %s", trainer.directory / FILE_NAME)

    def _row(self, trainer: Trainer, vae: torch.nn.Module, number: int, example: Batch) -> Row:
        task = trainer.task
        batch = task.to(example, trainer.world.device)
        target = batch["image_latents"].float()
        generator = noise_generator(self.seed, number, target.device)
        noise = torch.randn(target.shape, generator=generator, device=target.device)

        def velocity(x_BCHW: torch.Tensor, time_B: torch.Tensor) -> torch.Tensor:
            with_prompt, without = torch.ones_like(time_B), torch.zeros_like(time_B)
            guided = trainer.model(task.inputs(batch, x_BCHW, time_B, with_prompt)).float()
            if self.guidance == 1:
                return guided
            plain = trainer.model(task.inputs(batch, x_BCHW, time_B, without)).float()
            return plain + self.guidance * (guided - plain)

        made = follow(velocity, noise, task.config.times, self.steps)
        pictures = [_pixels(decode_latents(vae, one.float())) for one in (*task.contexts(batch), made, target)]
        return task.texts(batch)[0], pictures


def _pixels(images_1CHW: torch.Tensor) -> np.ndarray:
    """Return [H, W, 3] in [0, 1]."""
    return (images_1CHW[0].clamp(-1, 1) / 2 + 0.5).permute(1, 2, 0).cpu().numpy()


def _draw(rows: Sequence[Row], png: Path) -> None:
    """Draw a row of pictures each, and below it its prompt in a strip of its own."""
    columns = max(len(images) for _, images in rows)
    prompts = [textwrap.wrap(text, _CHARACTERS_A_COLUMN * len(images)) for text, images in rows]
    heights = [height for lines in prompts for height in (_ROW_INCHES, _LINE_INCHES * (len(lines) + 1))]
    figure = Figure(figsize=(_COLUMN_INCHES * columns, sum(heights)), layout="constrained", dpi=130)
    grid = figure.add_gridspec(2 * len(rows), columns, height_ratios=heights)
    for number, ((_, images), lines) in enumerate(zip(rows, prompts, strict=True)):
        first = columns - len(images)
        names = [*(f"context {place + 1}" for place in range(len(images) - 2)), "sampled", "target"]
        for column, (name, image) in enumerate(zip(names, images, strict=True), first):
            axes = figure.add_subplot(grid[2 * number, column])
            axes.imshow(image)
            axes.set_title(name, fontsize=8)
            axes.axis("off")
            axes.set_anchor("S")  # upon the prompt
        strip = figure.add_subplot(grid[2 * number + 1, first:])
        strip.axis("off")
        strip.text(0, 1, "\n".join(lines), fontsize=7, va="top").set_in_layout(False)
    figure.savefig(png)
