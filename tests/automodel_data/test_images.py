"""Sizes come from headers, pixels on demand; every mode becomes RGB by one rule; a broken file is skipped."""

import contextlib
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from automodel_data.errors import SkipSample
from automodel_data.images import (
    ImageBackend,
    ImagePolicy,
    PillowBackend,
    TorchvisionBackend,
)

Photo = Callable[..., Image.Image]
Encode = Callable[..., bytes]
ORIENTATION = 274


def as_array(pixels: Any) -> np.ndarray:
    return pixels.permute(1, 2, 0).numpy() if isinstance(pixels, torch.Tensor) else np.asarray(pixels)


# headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"])
def test_a_header_gives_the_size_from_bytes_from_a_path_and_from_a_uri(
    format: str, photo: Photo, encode: Encode, tmp_path: Path
) -> None:
    content = encode(photo(60, 40), format)
    path = tmp_path / f"picture {format}"
    path.write_bytes(content)
    for source in (content, str(path), f"file://{path}"):
        image = ImagePolicy().open(source, "here")
        assert (image.width, image.height, image.format, image.origin) == (60, 40, format, "here")
        assert as_array(image.decode(PillowBackend())).shape == (40, 60, 3)


def test_a_local_file_is_not_kept_in_memory(photo: Photo, encode: Encode, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(photo(64, 64)))
    assert ImagePolicy().open(str(path), "here").content == str(path)


def test_opening_decodes_nothing(photo: Photo, encode: Encode) -> None:
    content = encode(photo(64, 64), "JPEG")
    image = ImagePolicy().open(content[: len(content) // 2], "here")
    assert (image.width, image.height) == (64, 64)


# broken files -----------------------------------------------------------------------------------------------------

HTML = b"<!DOCTYPE html><html><body>403 Forbidden</body></html>"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "unreadable image"),
        (HTML, "unreadable image"),
        (b"\xff\xd8\xff\xe0", "unreadable image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "unreadable image"),
        (None, "missing image"),
        ({"bytes": b""}, "missing image"),
        ("/no/such/file.jpg", "missing image"),
        ("file:///no/such/file.jpg", "missing image"),
        ("/tmp/", "unreadable image"),
        ("nul\0byte.jpg", "unreadable image"),
    ],
)
def test_what_is_no_image_is_skipped_under_its_reason(content: Any, reason: str) -> None:
    with pytest.raises(SkipSample) as skipped:
        ImagePolicy().open(content, "row 7")
    assert skipped.value.reason == reason
    assert "row 7" in skipped.value.detail


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("cut", [0.4, 0.9, 0.999])
def test_a_truncated_jpeg_is_skipped_when_it_is_decoded(
    backend: ImageBackend, mode: str, progressive: bool, cut: float, photo: Photo, encode: Encode
) -> None:
    content = encode(photo(320, 240).convert(mode), "JPEG", progressive=progressive, quality=90)
    image = ImagePolicy().open(content[: int(len(content) * cut)], "row 7")
    with pytest.raises(SkipSample, match=r"undecodable image: row 7: .*truncated") as skipped:
        image.decode(backend)
    assert "\n" not in skipped.value.detail
    assert ".cpp" not in skipped.value.detail


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"])
def test_a_file_of_another_format_that_breaks_off_is_skipped(
    backend: ImageBackend, format: str, photo: Photo, encode: Encode
) -> None:
    content = encode(photo(160, 120), format)
    with pytest.raises(SkipSample):
        ImagePolicy().open(content[: len(content) * 2 // 3], "row 7").decode(backend)


def test_whatever_bytes_are_damaged_only_a_skip_comes_out(photo: Photo, encode: Encode) -> None:
    rng = np.random.default_rng(0)
    for format in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF"):
        content = np.frombuffer(encode(photo(48, 32), format), dtype=np.uint8)
        for _ in range(40):
            damaged = content.copy()
            damaged[rng.integers(0, min(len(content), 300), 5)] = rng.integers(0, 256, 5)
            with contextlib.suppress(SkipSample):
                image = ImagePolicy(max_pixels=10**6).open(damaged.tobytes(), "row 7")
                as_array(image.decode(TorchvisionBackend()))


@pytest.mark.parametrize("format", ["TIFF", "PNG", "GIF", "BMP"])
@pytest.mark.parametrize("value", [0, 2, 255])
def test_whichever_byte_of_a_header_is_damaged_only_a_skip_comes_out(format: str, value: int, encode: Encode) -> None:
    content = encode(Image.new("RGB", (48, 48), "red"), format)
    for at in range(min(len(content), 300)):
        damaged = content[:at] + bytes([value]) + content[at + 1 :]
        with contextlib.suppress(SkipSample):
            ImagePolicy(max_pixels=10**6).open(damaged, "row 7").decode(PillowBackend())


def test_a_file_that_has_vanished_since_is_skipped(
    backend: ImageBackend, photo: Photo, encode: Encode, tmp_path: Path
) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(encode(photo(64, 64), "JPEG"))
    image = ImagePolicy().open(str(path), "row 7")
    path.unlink()
    with pytest.raises(SkipSample, match="unreadable image: row 7"):
        image.decode(backend)


# bombs and limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(30_000, 30_000), (12_000, 12_000)])
def test_a_decompression_bomb_is_skipped_before_it_is_decoded(width: int, height: int, write_png: Encode) -> None:
    bomb = write_png(width, height, 0, 1, bytes(1000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(SkipSample, match="image too large: row 7"):
            ImagePolicy(max_pixels=100_000_000).open(bomb, "row 7")


def test_the_limit_is_that_of_the_policy(photo: Photo, encode: Encode) -> None:
    content = encode(photo(40, 30))
    assert ImagePolicy(max_pixels=1200).open(content, "here").width == 40
    with pytest.raises(SkipSample, match="image too large: here: 40x30 exceeds 1199 pixels"):
        ImagePolicy(max_pixels=1199).open(content, "here")


def test_a_bomb_of_text_is_skipped(photo: Photo, encode: Encode) -> None:
    whole = encode(photo(8, 8))
    text = b"key\0\0" + zlib.compress(bytes(2**22))
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    with pytest.raises(SkipSample):
        ImagePolicy().open(whole[:33] + chunk + whole[33:], "row 7").decode(PillowBackend())


def test_no_switch_of_pillow_is_flipped_by_importing_or_decoding(photo: Photo, encode: Encode) -> None:
    filters = list(warnings.filters)
    ImagePolicy(max_pixels=5000).open(encode(photo(64, 64), "JPEG"), "here").decode(TorchvisionBackend())
    assert (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES) == (89_478_485, False)
    assert list(warnings.filters) == filters
