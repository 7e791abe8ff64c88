"""Held-out pictures beside what the trained flow makes of the same conditions; for task=latents."""

import logging
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from recipes.callbacks.base import Callback
from recipes.mistakes import ConfigError
from recipes.models.vae import decode_latents
from recipes.tasks.flow import follow
from recipes.tasks.latents import Batch, LatentsTask
from recipes.trainer import Trainer, noise_generator

log = logging.getLogger(__name__)

FILE_NAME = "samples.png"
_CHARACTERS_A_COLUMN = 40


@dataclass(kw_only=True, slots=True)
class SampledPictures(Callback):
    """Draw ``samples.png`` in the run directory at the end: contexts, the sampled picture and the target in a row each.

    A run without held-out rows draws nothing.

    Args:
        rows: How many samples of the first held-out batches.
        steps: Euler steps from noise to picture.
        guidance: How far to go beyond the prediction without a prompt; 1 is the prediction with it.
        seed: Decides the noise that sampling starts from.
    """

    rows: int = 4
    steps: int = 20
    guidance: float = 1.0
    seed: int = 0

    def start(self, trainer: Trainer) -> None:
        """Refuse what would only fail at the end."""
        if not isinstance(trainer.task, LatentsTask):
            raise ConfigError("callbacks.sampled_pictures needs task=latents; or set it to null")

    @torch.no_grad()
    def finish(self, trainer: Trainer) -> None:
        """Sample on every rank (a sharded model needs all), draw on rank 0."""
        if trainer.heldout is None:
            return
        drawn: list[tuple[str, list[np.ndarray]]] = []
        trainer.model.eval()
        for batch in trainer.heldout():
            drawn += self._sampled(trainer, trainer.task.to(batch, trainer.world.device))
            if len(drawn) >= self.rows:
                break
        trainer.model.train()
        if trainer.world.leads:
            _draw(drawn[: self.rows], trainer.directory / FILE_NAME)
            log.info("samples: %s", trainer.directory / FILE_NAME)

    def _sampled(self, trainer: Trainer, batch: Batch) -> list[tuple[str, list[np.ndarray]]]:
        task, target = trainer.task, batch["image_latents"].float()
        generator = noise_generator(self.seed, trainer.world.rank, target.device)
        noise = torch.randn(target.shape, generator=generator, device=target.device)

        def velocity(x_BCHW: torch.Tensor, time_B: torch.Tensor) -> torch.Tensor:
            with_prompt, without = torch.ones_like(time_B), torch.zeros_like(time_B)
            guided = trainer.model(task.inputs(batch, x_BCHW, time_B, with_prompt)).float()
            if self.guidance == 1:
                return guided
            plain = trainer.model(task.inputs(batch, x_BCHW, time_B, without)).float()
            return plain + self.guidance * (guided - plain)

        made = follow(velocity, noise, task.config.times, self.steps)
        vae = task.vae()
        columns = [_pixels(decode_latents(vae, one.float())) for one in (*task.contexts(batch), made, target)]
        return [(text, list(row)) for text, *row in zip(task.texts(batch), *columns, strict=True)]


def _pixels(images_BCHW: torch.Tensor) -> list[np.ndarray]:
    """Return [H, W, 3] in [0, 1] for each image."""
    return list((images_BCHW.clamp(-1, 1) / 2 + 0.5).permute(0, 2, 3, 1).cpu().numpy())


def _draw(rows: Sequence[tuple[str, list[np.ndarray]]], png: Path) -> None:
    columns = max(len(images) for _, images in rows)
    figure = Figure(figsize=(2.2 * columns, 2.1 * len(rows)), layout="constrained", dpi=130)
    grid: Any = figure.subplots(len(rows), columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for line, (text, images) in zip(grid, rows, strict=True):
        names = [*(f"context {number + 1}" for number in range(len(images) - 2)), "sampled", "target"]
        for axes, name, image in zip(line[-len(images) :], names, images, strict=True):
            axes.imshow(image)
            axes.set_title(name, fontsize=8)
        first = line[-len(images)]
        lines = textwrap.fill(text, width=_CHARACTERS_A_COLUMN * len(images))
        label = first.text(0, -0.08, lines, fontsize=7, transform=first.transAxes, va="top")
        label.set_in_layout(False)  # it may be wider than a column
    figure.savefig(png)
