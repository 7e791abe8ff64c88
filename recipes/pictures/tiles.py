"""Tiles: one split of a pack as a box, coloured by its attention mode, texts or images inside. Lengths in pixels."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from recipes.pictures.unpack import PackedImage, Split, TextToken

MODE_COLOURS = {"causal": "#3f6fb5", "full": "#2c8a6c", "noise": "#d77f1f"}
MODE_TINTS = {"causal": "#e8eff9", "full": "#e3f3ed", "noise": "#fcefdf"}
LOSS_COLOUR = "#c2185b"
INK, FAINT_INK, PAPER = "#1d1f24", "#8a8f99", "#ffffff"

HEADER = 30
PADDING = 10
LINE = 36
CHIP = 30
CHIP_GAP = 3
TEXT_WIDTHS = (210, 290, 380, 480, 600, 760)
IMAGE_HEIGHT = 5 * LINE - 6
TILE_HEIGHT = HEADER + 5 * LINE + 2 * PADDING
MARKERS = {"<|im_start|>": "bos", "<|im_end|>": "eos", "<|vision_start|>": "soi", "<|vision_end|>": "eoi"}


class Tokenizer(Protocol):
    def decode(self, token_ids: list[int]) -> str: ...


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the sans-serif font that comes with matplotlib."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"DejaVuSans{'-Bold' if bold else ''}.ttf", size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """One token's text at ``left``, in line ``line`` of a tile."""

    text: str
    left: int
    line: int
    width: int
    loss: bool
    marker: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tile:
    """A split as a box of ``width`` x ``height``."""

    mode: str
    title: str
    width: int
    height: int
    chips: list[Chip]
    images: list[tuple[PackedImage, Image.Image]]

    def paint(self, page: Image.Image, left: int, top: int) -> None:
        """Paint the tile with its upper left corner at (left, top)."""
        pen = ImageDraw.Draw(page)
        box = (left, top, left + self.width, top + self.height)
        pen.rounded_rectangle(box, radius=8, fill=MODE_TINTS[self.mode])
        header = (left, top, left + self.width, top + HEADER)
        pen.rounded_rectangle(header, radius=8, fill=MODE_COLOURS[self.mode], corners=(True, True, False, False))
        pen.text((left + PADDING, top + HEADER / 2), self.title, font=font(17), fill=PAPER, anchor="lm")
        for chip in self.chips:
            _paint_chip(pen, chip, left + PADDING + chip.left, top + HEADER + PADDING + chip.line * LINE)
        inside = sum(thumbnail.width + PADDING for _, thumbnail in self.images) - PADDING
        x, y = left + (self.width - inside) // 2, top + HEADER + PADDING
        for image, thumbnail in self.images:
            page.paste(thumbnail, (x, y))
            pen.rectangle((x - 1, y - 1, x + thumbnail.width, y + thumbnail.height), outline="#b9bec8")
            if image.time_logit is not None:
                pen.rectangle(
                    (x, y + thumbnail.height + 2, x + thumbnail.width - 1, y + thumbnail.height + 7), fill=LOSS_COLOUR
                )
            x += thumbnail.width + PADDING


def tile_of(split: Split, tokenizer: Tokenizer, max_width: int) -> Tile:
    """Lay a split out in a tile of at most ``max_width``; a very long text makes it higher."""
    return _image_tile(split, max_width) if split.images else _text_tile(split, tokenizer, max_width)


def _image_tile(split: Split, max_width: int) -> Tile:
    room = max_width - PADDING
    natural = [_thumbnail(image, IMAGE_HEIGHT) for image in split.images]
    shrink = min(1.0, room / sum(thumbnail.width + PADDING for thumbnail in natural))
    thumbnails = [_thumbnail(image, int(IMAGE_HEIGHT * shrink)) for image in split.images]
    title = ", ".join(dict.fromkeys(_image_title(image) for image in split.images)) + f" · {split.length} tokens"
    width = max(sum(t.width + PADDING for t in thumbnails) + PADDING, _title_width(title))
    return Tile(
        mode=split.mode,
        title=title,
        width=width,
        height=TILE_HEIGHT,
        chips=[],
        images=list(zip(split.images, thumbnails, strict=True)),
    )


def _image_title(image: PackedImage) -> str:
    time = "" if image.time is None else f" · t = {image.time:.2f}"
    return f"{image.tower} {image.grid[0]} × {image.grid[1]}{time}"


def _thumbnail(image: PackedImage, height: int) -> Image.Image:
    picture = Image.fromarray(image.pixels_HWC)
    width = max(1, round(picture.width * height / picture.height))
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def _text_tile(split: Split, tokenizer: Tokenizer, max_width: int) -> Tile:
    spelled = [(token, *_spell(token, tokenizer)) for token in split.texts]
    title = f"text · {split.length} tokens"
    for width in (*(width for width in TEXT_WIDTHS if width < max_width), max_width):
        chips = _break_lines(spelled, width - 2 * PADDING)
        lines = chips[-1].line + 1
        if lines <= 5:
            break
    used = max(chip.left + chip.width for chip in chips) + 2 * PADDING
    return Tile(
        mode=split.mode,
        title=title,
        width=max(used, _title_width(title)),
        height=max(TILE_HEIGHT, HEADER + lines * LINE + 2 * PADDING),
        chips=chips,
        images=[],
    )


def _title_width(title: str) -> int:
    return round(font(17).getlength(title)) + 2 * PADDING


def _spell(token: TextToken, tokenizer: Tokenizer) -> tuple[str, bool]:
    """Return a token's text, and whether it is one of the packed format's markers."""
    text = tokenizer.decode([token.id])
    return MARKERS.get(text, text.replace("\n", "⏎")), text in MARKERS


def _break_lines(spelled: list[tuple[TextToken, str, bool]], width: int) -> list[Chip]:
    chips: list[Chip] = []
    left = line = 0
    for token, text, marker in spelled:
        chip_width = round(font(16 if marker else 20).getlength(text)) + 10
        if left + chip_width > width and left > 0:
            left, line = 0, line + 1
        loss = token.label is not None
        chips.append(Chip(text=text, left=left, line=line, width=chip_width, loss=loss, marker=marker))
        left += chip_width + CHIP_GAP
    return chips


def _paint_chip(pen: ImageDraw.ImageDraw, chip: Chip, left: int, top: int) -> None:
    pen.rounded_rectangle((left, top, left + chip.width, top + CHIP), radius=5, fill=PAPER)
    face, ink = (font(16), FAINT_INK) if chip.marker else (font(20), INK)
    pen.text((left + 5, top + CHIP / 2), chip.text, font=face, fill=ink, anchor="lm")
    if chip.loss:
        pen.rectangle((left + 2, top + CHIP - 3, left + chip.width - 2, top + CHIP + 1), fill=LOSS_COLOUR)
