"""A contact sheet of a cache: samples decoded again, contexts and target side by side, their text below.

Lengths are in pixels.
"""

import textwrap
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from recipes.encode.encoders.base import Encoder
from recipes.encode.layouts import Layout
from recipes.pictures.tiles import INK, PAPER, font

_GAP = 12
_FONT_SIZE = 16
_LINE = 22
_CHARACTERS_PER_PIXEL = 1 / 9


def draw_sheet(
    dataset: BaseMultiresolutionDataset, layout: Layout, encoder: Encoder, samples: int, width: int
) -> Image.Image:
    """Draw ``samples`` evenly spaced samples, one a row, each picture ``width`` wide.

    Raises:
        PayloadError: a payload cannot be used.
    """
    count = min(samples, len(dataset))
    rows = []
    for place in range(count):
        shown = layout.shown(dataset[place * len(dataset) // count])
        rows.append(_draw_row([_picture(encoder.decode_image(latent), width) for latent in shown.latents], shown.text))
    sheet = Image.new("RGB", (max(row.width for row in rows), sum(row.height for row in rows)), PAPER)
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def _picture(pixels_CHW: torch.Tensor, width: int) -> Image.Image:
    levels = ((pixels_CHW + 1) * 127.5).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(np.ascontiguousarray(levels))
    return image.resize((width, max(1, round(image.height * width / image.width))), Image.Resampling.LANCZOS)


def _draw_row(pictures: Sequence[Image.Image], text: str) -> Image.Image:
    width = sum(picture.width + _GAP for picture in pictures) + _GAP
    lines = textwrap.wrap(text, max(10, int((width - 2 * _GAP) * _CHARACTERS_PER_PIXEL)))
    height = max(picture.height for picture in pictures)
    row = Image.new("RGB", (width, height + len(lines) * _LINE + 2 * _GAP), PAPER)
    left = _GAP
    for picture in pictures:
        row.paste(picture, (left, _GAP))
        left += picture.width + _GAP
    pen = ImageDraw.Draw(row)
    for i, line in enumerate(lines):
        pen.text((_GAP, height + _GAP + 4 + i * _LINE), line, fill=INK, font=font(_FONT_SIZE))
    return row
