"""One pack as a picture: a bar to scale, then every sample with its texts and images in place. Lengths in pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from automodel_data.multimodal.collate_fns import SimpleCustomBatch
from recipes.pictures.tiles import (
    FAINT_INK,
    INK,
    LOSS_COLOUR,
    MODE_COLOURS,
    PAPER,
    Tile,
    Tokenizer,
    font,
    tile_of,
)
from recipes.pictures.unpack import Pack, PackedSample, Split, unpack

PAGE_WIDTH = 2000
MARGIN = 48
LABELS = 220  # the column that names the samples
TILE_GAP = 8
SAMPLE_GAP = 30
BAR_TOP, BAR_HEIGHT = 112, 40
HEAD = 290  # above the first sample
LEGEND = {
    "causal": "causal: sees what came before",
    "full": "full: also sees itself whole",
    "noise": "noise: like full, unseen by others",
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Band:
    """One sample's tiles in rows below each other; ``top`` is that of the first row."""

    sample: PackedSample
    origin: str
    rows: list[list[Tile]]
    top: int

    @property
    def height(self) -> int:
        return sum(max(tile.height for tile in row) + TILE_GAP for row in self.rows) - TILE_GAP


def draw_pack(batch: SimpleCustomBatch, origins: Sequence[str], tokenizer: Tokenizer, png: Path) -> None:
    """Draw a packed batch (on the CPU) with its splits coloured by attention mode and its losses underlined.

    Args:
        origins: File and row of each sample, as ``Loader.origins`` names them.
    """
    pack = unpack(batch)
    bands: list[Band] = []
    top = HEAD
    for sample, origin in zip(pack.samples, origins, strict=True):
        bands.append(Band(sample=sample, origin=origin, rows=_wrap(sample, tokenizer), top=top))
        top += bands[-1].height + SAMPLE_GAP
    page = Image.new("RGB", (PAGE_WIDTH, top + MARGIN - SAMPLE_GAP), PAPER)
    _paint_head(page, pack)
    for number, band in enumerate(bands, 1):
        _paint_band(page, number, band)
    page.save(png)


def _wrap(sample: PackedSample, tokenizer: Tokenizer) -> list[list[Tile]]:
    room = PAGE_WIDTH - 2 * MARGIN - LABELS
    rows: list[list[Tile]] = [[]]
    used = 0
    for split in sample.splits:
        tile = tile_of(split, tokenizer, room)
        if rows[-1] and used + tile.width > room:
            rows.append([])
            used = 0
        rows[-1].append(tile)
        used += tile.width + TILE_GAP
    return rows


def _paint_band(page: Image.Image, number: int, band: Band) -> None:
    pen = ImageDraw.Draw(page)
    line = band.top - SAMPLE_GAP // 2
    pen.line((MARGIN, line, PAGE_WIDTH - MARGIN, line), fill="#dcdfe5", width=2)
    pen.text((MARGIN, band.top + 2), f"{number}  {band.sample.dataset}", font=font(21, bold=True), fill=INK)
    file, _, place = band.origin.rpartition("/")[2].partition(", ")
    labels = (f"{band.sample.length:,} tokens", file, place)
    for number, text in enumerate(labels):
        pen.text((MARGIN, band.top + 34 + 26 * number), _shortened(text), font=font(18), fill=FAINT_INK)
    top = band.top
    for row in band.rows:
        left = MARGIN + LABELS
        for tile in row:
            tile.paint(page, left, top)
            left += tile.width + TILE_GAP
        top += max(tile.height for tile in row) + TILE_GAP


def _shortened(text: str) -> str:
    """Return the end of a text that is too long for the column of labels."""
    shown = text
    while font(18).getlength(shown) > LABELS - TILE_GAP:
        text = text[1:]
        shown = f"…{text}"
    return shown


def _paint_head(page: Image.Image, pack: Pack) -> None:
    pen = ImageDraw.Draw(page)
    room = f", {pack.length / pack.capacity:.0%} of {pack.capacity:,}" if pack.capacity else ""
    title = f"One pack: {pack.length:,} tokens in {len(pack.samples)} samples{room}"
    pen.text((MARGIN, MARGIN), title, font=font(34, bold=True), fill=INK, anchor="lt")
    _paint_bar(pen, pack)
    _paint_legend(pen, BAR_TOP + BAR_HEIGHT + 76)


def _paint_bar(pen: ImageDraw.ImageDraw, pack: Pack) -> None:
    """Paint the whole pack to scale: splits, under them where a loss is, under that the samples' numbers."""
    scale = (PAGE_WIDTH - 2 * MARGIN) / (pack.capacity or pack.length)
    pen.rectangle((MARGIN, BAR_TOP, PAGE_WIDTH - MARGIN, BAR_TOP + BAR_HEIGHT), fill="#eceef2")
    for number, sample in enumerate(pack.samples, 1):
        start, end = sample.splits[0].start, sample.splits[0].start + sample.length
        for split in sample.splits:
            _paint_split(pen, split, scale)
        left, right = MARGIN + start * scale, MARGIN + end * scale
        pen.line((right, BAR_TOP - 8, right, BAR_TOP + BAR_HEIGHT + 18), fill=INK, width=2)
        middle = ((left + right) / 2, BAR_TOP + BAR_HEIGHT + 18)
        pen.text(middle, str(number), font=font(18), fill=FAINT_INK, anchor="mt")


def _paint_split(pen: ImageDraw.ImageDraw, split: Split, scale: float) -> None:
    def stretch(row: int, count: int, top: int, bottom: int, colour: str) -> None:
        left, right = MARGIN + row * scale, MARGIN + (row + count) * scale
        pen.rectangle((left, top, max(left, right - 1), bottom), fill=colour)

    bottom = BAR_TOP + BAR_HEIGHT
    stretch(split.start, split.length, BAR_TOP, bottom, MODE_COLOURS[split.mode])
    for token in split.texts:
        if token.label is not None:
            stretch(token.row, 1, bottom + 4, bottom + 11, LOSS_COLOUR)
    for image in split.images:
        if image.time_logit is not None:
            stretch(image.first_row, image.tokens, bottom + 4, bottom + 11, LOSS_COLOUR)


def _paint_legend(pen: ImageDraw.ImageDraw, top: int) -> None:
    left = MARGIN
    for mode, text in LEGEND.items():
        pen.rounded_rectangle((left, top, left + 26, top + 26), radius=6, fill=MODE_COLOURS[mode])
        pen.text((left + 36, top + 13), text, font=font(19), fill=INK, anchor="lm")
        left += 36 + round(font(19).getlength(text)) + 44
    pen.rectangle((left, top + 11, left + 34, top + 16), fill=LOSS_COLOUR)
    pen.text((left + 44, top + 13), "predicted here: has a loss", font=font(19), fill=INK, anchor="lm")
