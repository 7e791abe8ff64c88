"""Image sizes for a pixel budget: one bucket for each aspect ratio, on a grid the model accepts."""

import logging
import math
import random
from typing import Final, TypedDict

from PIL import Image

log = logging.getLogger(__name__)

Resolution = tuple[int, int]


class Bucket(TypedDict):
    """One size: ``resolution`` is (width, height) in pixels, ``aspect_ratio`` is width / height."""

    id: int
    resolution: Resolution
    aspect_ratio: float
    pixels: int


class MultiTierBucketCalculator:
    """Choose the bucket of an image among the largest sizes within a pixel budget.

    Args:
        quantization: Every side is a multiple of it, in pixels.
        max_pixels: Budget of one image; None means 256 x 256.
        debug_mode: Log the table of buckets.

    Raises:
        ValueError: the grid is not positive, or the budget is below one square of it.
    """

    # fmt: off
    ASPECT_RATIOS: Final = (
        (1, 2), (9, 16), (2, 3), (3, 4), (4, 5), (1, 1), (5, 4),
        (4, 3), (3, 2), (16, 10), (5, 3), (16, 9), (2, 1), (21, 9),
    )
    # fmt: on
    RESOLUTION_PRESETS: Final = {f"{side}p": side * side for side in (256, 512, 768, 1024, 1536)}

    def __init__(self, quantization: int = 64, max_pixels: int | None = None, debug_mode: bool = False) -> None:
        max_pixels = self.RESOLUTION_PRESETS["256p"] if max_pixels is None else max_pixels
        if quantization < 1:
            raise ValueError(f"quantization ({quantization}) must be at least 1 pixel")
        if max_pixels < quantization**2:
            raise ValueError(f"max_pixels ({max_pixels}) must hold one square of quantization ({quantization}) pixels")
        self.quantization = quantization
        self.max_pixels = max_pixels
        self.buckets = self._make_buckets()
        self._by_resolution = {bucket["resolution"]: bucket for bucket in self.buckets}
        if debug_mode:
            for bucket in self.buckets:
                log.info("bucket %d: %s, aspect %.3f", bucket["id"], bucket["resolution"], bucket["aspect_ratio"])

    def _make_buckets(self) -> list[Bucket]:
        sizes = dict.fromkeys(self._largest_size(width / height) for width, height in self.ASPECT_RATIOS)
        ordered = sorted(sizes, key=lambda size: size[0] / size[1])
        return [
            Bucket(id=i, resolution=(width, height), aspect_ratio=width / height, pixels=width * height)
            for i, (width, height) in enumerate(ordered)
        ]

    def _largest_size(self, aspect_ratio: float) -> Resolution:
        """Return the size nearest to this ratio, its longer side shortened until it is within the budget."""
        height = self._to_grid(int(math.sqrt(self.max_pixels / aspect_ratio)))
        width = self._to_grid(int(height * aspect_ratio))
        while width * height > self.max_pixels:
            if width >= height:
                width -= self.quantization
            else:
                height -= self.quantization
        return width, height

    def _to_grid(self, side: int) -> int:
        return max(self.quantization, round(side / self.quantization) * self.quantization)

    def get_bucket_for_image(self, image_width: int, image_height: int) -> Bucket:
        """Return the bucket whose aspect ratio is nearest."""
        aspect_ratio = image_width / image_height
        return min(self.buckets, key=lambda bucket: abs(bucket["aspect_ratio"] - aspect_ratio))

    def get_bucket_by_resolution(self, width: int, height: int) -> Bucket | None:
        """Return the bucket of exactly this size, if there is one."""
        return self._by_resolution.get((width, height))

    def get_bucket_by_id(self, bucket_id: int) -> Bucket:
        """Return the bucket at this place of the table."""
        return self.buckets[bucket_id]

    def get_all_buckets(self) -> list[Bucket]:
        """Return all buckets, tallest first."""
        return self.buckets

    def resize_and_crop(
        self,
        image: Image.Image,
        target_width: int,
        target_height: int,
        crop_mode: str = "center",
        rng: random.Random | None = None,
    ) -> tuple[Image.Image, tuple[int, int]]:
        """Scale an image until it covers the target, then cut the target out of it.

        Args:
            crop_mode: ``center`` or ``random``.
            rng: Draws a random crop; None draws from a fresh, unseeded generator.

        Returns:
            The image and the (left, top) corner of the cut in the scaled image.

        Raises:
            ValueError: unknown ``crop_mode``.
        """
        scale = max(target_width / image.width, target_height / image.height)
        width = max(target_width, round(image.width * scale))
        height = max(target_height, round(image.height * scale))
        free = (width - target_width, height - target_height)
        match crop_mode:
            case "center":
                left, top = free[0] // 2, free[1] // 2
            case "random":
                rng = rng or random.Random()
                left, top = rng.randint(0, free[0]), rng.randint(0, free[1])
            case _:
                raise ValueError(f"crop_mode ({crop_mode!r}) must be 'center' or 'random'")
        scaled = image.resize((width, height), Image.Resampling.LANCZOS)
        return scaled.crop((left, top, left + target_width, top + target_height)), (left, top)

    def get_dynamic_batch_size(
        self, resolution: Resolution, base_batch_size: int = 32, base_resolution: Resolution = (512, 512)
    ) -> int:
        """Return the batch size that costs as many pixels as ``base_batch_size`` images of ``base_resolution``."""
        pixels = resolution[0] * resolution[1]
        return max(1, int(base_batch_size * (base_resolution[0] * base_resolution[1]) / pixels))

    @classmethod
    def from_preset(cls, preset: str, quantization: int = 64) -> "MultiTierBucketCalculator":
        """Make a calculator for a named budget, e.g. ``512p``.

        Raises:
            ValueError: there is no such preset.
        """
        if preset not in cls.RESOLUTION_PRESETS:
            raise ValueError(f"preset ({preset!r}) must be one of {', '.join(cls.RESOLUTION_PRESETS)}")
        return cls(quantization=quantization, max_pixels=cls.RESOLUTION_PRESETS[preset])
