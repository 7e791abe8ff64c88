"""A contact sheet of a cache: samples decoded again, contexts and target side by side, their text below.

Lengths are in pixels.
"""

import textwrap
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps

from automodel_data.diffusion.base_dataset import BaseMultiresolutionDataset
from recipes.encode.encoders.base import Encoder
from recipes.encode.layouts import Layout
from recipes.pictures.tiles import FAINT_INK, INK, PAPER, font

_GAP = 12
_FONT_SIZE = 16
_LINE = 22
_HEADER = 28
_OUTLINE = "#b9bec8"
_CHARACTERS_PER_PIXEL = 1 / 9


def draw_sheet(
    dataset: BaseMultiresolutionDataset, layout: Layout, encoder: Encoder, samples: int, width: int
) -> Image.Image:
    """Draw ``samples`` evenly spaced samples, one a row, each picture within a square of ``width``.

    Raises:
        PayloadError: a payload cannot be used.
    """
    count = min(samples, len(dataset))
    shown = [layout.shown(dataset[place * len(dataset) // count]) for place in range(count)]
    columns = max(len(one.latents) for one in shown)
    rows = []
    for one in shown:
        pictures = [_picture(encoder.decode_image(latent), width) for latent in one.latents]
        rows.append(_draw_row(pictures, one.text, columns, width))
    sheet = Image.new("RGB", (rows[0].width, _HEADER + sum(row.height for row in rows)), PAPER)
    pen = ImageDraw.Draw(sheet)
    names = ["image"] if columns == 1 else [*(f"context {i + 1}" for i in range(columns - 1)), "target"]
    for column, name in enumerate(names):
        pen.text((_left(column, width), _HEADER - 4), name, fill=FAINT_INK, font=font(_FONT_SIZE), anchor="ls")
    top = _HEADER
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def _left(column: int, width: int) -> int:
    return _GAP + column * (width + _GAP)


def _picture(pixels_CHW: torch.Tensor, width: int) -> Image.Image:
    """Return the picture fitted into a square of ``width``."""
    levels = ((pixels_CHW + 1) * 127.5).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    return ImageOps.contain(Image.fromarray(np.ascontiguousarray(levels)), (width, width), Image.Resampling.LANCZOS)


def _draw_row(pictures: Sequence[Image.Image], text: str, columns: int, width: int) -> Image.Image:
    """Draw contexts from the left, the target in the last column, and their text below."""
    row_width = _left(columns, width)
    lines = textwrap.wrap(text, max(10, int((row_width - 2 * _GAP) * _CHARACTERS_PER_PIXEL)))
    height = max(picture.height for picture in pictures)
    row = Image.new("RGB", (row_width, height + len(lines) * _LINE + 2 * _GAP), PAPER)
    pen = ImageDraw.Draw(row)
    for column, picture in zip((*range(len(pictures) - 1), columns - 1), pictures, strict=True):
        left = _left(column, width)
        row.paste(picture, (left, _GAP))
        pen.rectangle((left - 1, _GAP - 1, left + picture.width, _GAP + picture.height), outline=_OUTLINE)
    for i, line in enumerate(lines):
        pen.text((_GAP, height + _GAP + 4 + i * _LINE), line, fill=INK, font=font(_FONT_SIZE))
    return row
