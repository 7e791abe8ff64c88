"""The attention mask of samples as a picture: which row sees which column, computed from their splits."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageColor

from recipes.pictures.tiles import MODE_COLOURS, PAPER
from recipes.pictures.unpack import PackedSample

MODES = tuple(MODE_COLOURS)
EARLIER_COLOUR = "#c9d2e0"
UNSEEN, EARLIER = 0, len(MODES) + 1
"""Values of a cell besides 1 + the number of the mode that the row's own split attends by."""


def mask_cells(samples: Sequence[PackedSample], most: int) -> np.ndarray:
    """Return uint8 [n, n], row by column, of at most ``most`` rows: more are looked at in even steps."""
    splits = [(sample, split) for sample, packed in enumerate(samples) for split in packed.splits]
    lengths = [split.length for _, split in splits]
    size = min(sum(lengths), most)
    rows = ((np.arange(size) + 0.5) * sum(lengths) / size).astype(int)
    sample = np.repeat([sample for sample, _ in splits], lengths)[rows]
    number = np.repeat(range(len(splits)), lengths)[rows]
    mode = np.repeat([MODES.index(split.mode) for _, split in splits], lengths)[rows]
    past = (mode[:, None] != MODES.index("causal")) | (rows[None, :] <= rows[:, None])
    own = (number[:, None] == number[None, :]) & past
    earlier = (sample[:, None] == sample[None, :]) & (number[:, None] > number[None, :])
    seen_earlier = earlier & (mode[None, :] != MODES.index("noise"))
    return np.where(own, mode[:, None] + 1, np.where(seen_earlier, EARLIER, UNSEEN)).astype(np.uint8)


def draw_mask(samples: Sequence[PackedSample], most: int) -> Image.Image:
    """Draw it, a pixel a cell, in the colours of the modes."""
    picture = Image.fromarray(mask_cells(samples, most)).convert("P")
    colours = [PAPER, *MODE_COLOURS.values(), EARLIER_COLOUR]
    picture.putpalette([channel for colour in colours for channel in ImageColor.getrgb(colour)])
    return picture
