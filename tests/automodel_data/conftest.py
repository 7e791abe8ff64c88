"""Pictures and their files, made anew for every test."""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from automodel_data.images import ImageBackend, image_backend

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


@pytest.fixture(scope="session")
def write_png() -> Encode:
    """Return a writer of PNG files by hand: Pillow cannot write every kind that it must read."""

    def write(width: int, height: int, color_type: int, depth: int, pixels: bytes, transparent: bytes = b"") -> bytes:
        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, 0))
        colour_key = chunk(b"tRNS", transparent) if transparent else b""
        return b"\x89PNG\r\n\x1a\n" + header + colour_key + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")

    return write


@pytest.fixture(params=["pillow", "torchvision"])
def backend(request: pytest.FixtureRequest) -> ImageBackend:
    return image_backend(request.param)
