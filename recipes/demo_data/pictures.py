"""From a scene to an image file: its size, its encoding, and the grain of a photo."""

import io
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from random import Random

import numpy as np
from PIL import Image

from recipes.demo_data.config import DemoDataConfig
from recipes.demo_data.scenes import GROUND_RGB, Ground, Scene, paint

EXIF_ORIENTATION = 0x0112
CLEAR = {"quality": 90, "subsampling": 0}  # full colour resolution: small shapes keep their colour and outline
TURN_RIGHT = 6  # EXIF: the stored picture is to be turned right before it is shown


class Encoding(StrEnum):
    JPEG = "JPEG"
    PNG = "PNG"
    PALETTE_PNG = "PNG with a palette"
    TRANSPARENT_PNG = "PNG with a transparent ground"
    TURNED_JPEG = "JPEG that EXIF turns"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFile:
    """An encoded picture; ``suffix`` is its file name's ending."""

    data: bytes
    suffix: str


class Studio:
    """Makes image files as a configuration asks for."""

    def __init__(self, config: DemoDataConfig) -> None:
        self._config = config

    def draw_size(self, rng: Random) -> tuple[int, int]:
        """Draw (width, height) in pixels."""
        edges = self._config.min_edge, self._config.max_edge
        return rng.randint(*edges), rng.randint(*edges)

    def photograph(self, rng: Random, scene: Scene, size: tuple[int, int]) -> ImageFile:
        """Paint a scene and encode it; the encoding is drawn."""
        if self._config.grain:
            photo = self._roughen(rng, paint(scene, *size, oversampling=2))
            return ImageFile(data=_saved(photo, "JPEG", quality=90), suffix=".jpg")
        return encode(paint(scene, *size), self._draw_encoding(rng, scene))

    def _draw_encoding(self, rng: Random, scene: Scene) -> Encoding:
        common = [Encoding.JPEG] * 12 + [Encoding.PNG] * 6
        if not self._config.oddities:
            return rng.choice(common)
        rare = [Encoding.PALETTE_PNG, Encoding.TURNED_JPEG]
        rare += [Encoding.TRANSPARENT_PNG] if scene.ground is Ground.WHITE else []
        return rng.choice(common + rare)

    def _roughen(self, rng: Random, image: Image.Image) -> Image.Image:
        rows, columns = self._grain.shape[:2]
        top, left = rng.randint(0, rows - image.height), rng.randint(0, columns - image.width)
        grain_HWC = self._grain[top : top + image.height, left : left + image.width]
        rough_HWC = np.clip(np.asarray(image, dtype=np.int16) + grain_HWC, 0, 255)
        return Image.fromarray(rough_HWC.astype(np.uint8))

    @cached_property
    def _grain(self) -> np.ndarray:
        """Clouds and noise: [H, W, 3] int16, larger than any picture."""
        edge = self._config.max_edge * 3 // 2
        rng = np.random.default_rng(self._config.seed)
        seeds = Image.fromarray(rng.integers(0, 256, (edge // 48, edge // 48, 3), dtype=np.uint8))
        clouds_HWC = np.asarray(seeds.resize((edge, edge), Image.Resampling.BICUBIC), dtype=np.int16) - 128
        return clouds_HWC // 5 + rng.normal(0, 5, (edge, edge, 3)).astype(np.int16)


def encode(image: Image.Image, encoding: Encoding) -> ImageFile:
    """Encode an RGB picture; decoded, oriented and composited on white it looks the same again."""
    match encoding:
        case Encoding.JPEG:
            return ImageFile(data=_saved(image, "JPEG", **CLEAR), suffix=".jpg")
        case Encoding.PNG:
            return ImageFile(data=_saved(image, "PNG"), suffix=".png")
        case Encoding.PALETTE_PNG:
            return ImageFile(data=_saved(image.quantize(64), "PNG"), suffix=".png")
        case Encoding.TRANSPARENT_PNG:
            return ImageFile(data=_saved(_without_white(image), "PNG"), suffix=".png")
        case Encoding.TURNED_JPEG:
            exif = Image.Exif()
            exif[EXIF_ORIENTATION] = TURN_RIGHT
            turned_left = image.transpose(Image.Transpose.ROTATE_90)
            return ImageFile(data=_saved(turned_left, "JPEG", exif=exif, **CLEAR), suffix=".jpg")


def _without_white(image: Image.Image) -> Image.Image:
    pixels_HWC = np.asarray(image)
    is_white_HW1 = (pixels_HWC == GROUND_RGB[Ground.WHITE]).all(axis=2, keepdims=True)
    alpha_HW1 = np.where(is_white_HW1, 0, 255).astype(np.uint8)
    seen_HWC = np.where(is_white_HW1, 0, pixels_HWC)  # what lies under full transparency must not show
    return Image.fromarray(np.concatenate([seen_HWC, alpha_HW1], axis=2).astype(np.uint8))


def _saved(image: Image.Image, file_format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()
