"""Pictures and their files, made anew for every test."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

Encode = Callable[..., bytes]


@pytest.fixture(scope="session")
def photo() -> Callable[..., Image.Image]:
    """Return a maker of RGB pictures with soft shapes and grain, as photographs have."""

    def make(width: int, height: int, seed: int = 0) -> Image.Image:
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8)
        soft = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
        return Image.fromarray((soft + rng.integers(-12, 13, soft.shape)).clip(0, 255).astype(np.uint8))

    return make


@pytest.fixture(scope="session")
def encode() -> Encode:
    """Return an encoder of pictures: ``encode(image, format, **options)`` gives a file's bytes."""

    def encode(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
        file = io.BytesIO()
        image.save(file, format, **options)
        return file.getvalue()

    return encode
