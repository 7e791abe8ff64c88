"""From an image file to the pixels that are encoded: upright, RGB, scaled and cut to its bucket's size."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from PIL import Image

from automodel_data.diffusion.multi_tier_bucketing import Bucket, MultiTierBucketCalculator
from automodel_data.errors import SkipSample
from automodel_data.images import EncodedImage, ImagePolicy, PillowBackend
from recipes.encode.rows import Picture

_VERSION = 1  # part of every key: raise it when pixels change
_LEAST_KEPT = 1 / 16  # of an image that is cut to its bucket; it is scaled whole before, so this bounds the memory too


_calculator = cache(MultiTierBucketCalculator)


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketedImage:
    """RGB pixels of a bucket's size, and where they were cut from."""

    image: Image.Image
    bucket_id: int
    original_size: tuple[int, int]  # width, height, upright
    crop_offset: tuple[int, int]  # left, top, after scaling

    def pixels(self) -> torch.Tensor:
        """Return float32 [3, H, W] in [-1, 1]."""
        data = torch.frombuffer(bytearray(self.image.tobytes()), dtype=torch.uint8)
        width, height = self.image.size
        return data.view(height, width, 3).permute(2, 0, 1).float() / 127.5 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Transform:
    """Choose a bucket by the nearest aspect ratio, cover it, and cut out the centre.

    Args:
        quantization: Every side is a multiple of it, in pixels.
        max_pixels: Budget of a target.
        context_max_pixels: Budget of a context; null: that of a target.
    """

    quantization: int = 64
    max_pixels: int = 1024 * 1024
    context_max_pixels: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that no bucket has.

        Raises:
            ValueError: see ``MultiTierBucketCalculator``.
        """
        _calculator(self.quantization, self.max_pixels)
        _calculator(self.quantization, self._context_max_pixels)

    @property
    def _context_max_pixels(self) -> int:
        return self.max_pixels if self.context_max_pixels is None else self.context_max_pixels

    def identity(self) -> dict[str, Any]:
        """Return what decides the pixels, as plain values."""
        return {
            "version": _VERSION,
            "quantization": self.quantization,
            "max_pixels": self.max_pixels,
            "context_max_pixels": self._context_max_pixels,
        }

    def target(self, picture: Picture) -> BucketedImage:
        """Return a target's pixels; see ``context``."""
        return self._apply(picture, self.max_pixels)

    def context(self, picture: Picture) -> BucketedImage:
        """Return a context's pixels.

        Raises:
            SkipSample: the file is no image, or broken, or so elongated that hardly anything of it would be left.
        """
        return self._apply(picture, self._context_max_pixels)

    def _apply(self, picture: Picture, max_pixels: int) -> BucketedImage:
        encoded = ImagePolicy().open(picture.content, picture.where)
        calculator = _calculator(self.quantization, max_pixels)
        bucket = calculator.get_bucket_for_image(encoded.width, encoded.height)
        _refuse_elongated(encoded, bucket)
        image = encoded.decode(PillowBackend())
        cut, offset = calculator.resize_and_crop(image, *bucket["resolution"])
        return BucketedImage(
            image=cut, bucket_id=bucket["id"], original_size=(encoded.width, encoded.height), crop_offset=offset
        )


def _refuse_elongated(encoded: EncodedImage, bucket: Bucket) -> None:
    aspects = (encoded.width / encoded.height, bucket["aspect_ratio"])
    kept = min(aspects) / max(aspects)
    if kept < _LEAST_KEPT:
        width, height = bucket["resolution"]
        raise SkipSample(
            "image too elongated",
            f"{encoded.origin}: {encoded.width}x{encoded.height}, of which its bucket {width}x{height} would keep "
            f"{kept:.2%}, less than {_LEAST_KEPT:.2%}",
        )
