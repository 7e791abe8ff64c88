"""Sizes come from headers, pixels on demand; every mode becomes RGB by one rule; a broken file is skipped."""

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

from automodel_data.errors import DataError, SkipSample
from automodel_data.images import (
    DecodedImage,
    EncodedImage,
    ImageBackend,
    ImagePolicy,
    PillowBackend,
    TorchvisionBackend,
    image_backend,
    to_rgb,
)

Photo = Callable[..., Image.Image]
Encode = Callable[..., bytes]
ORIENTATION = 274


def as_array(pixels: Any) -> np.ndarray:
    return pixels.permute(1, 2, 0).numpy() if isinstance(pixels, torch.Tensor) else np.asarray(pixels)


def row(image: Image.Image) -> list[list[int]]:
    """Return the first row of pixels after a way through a backend's decoder or ``to_rgb``."""
    return np.asarray(image)[0].tolist()


@pytest.fixture(params=["pillow", "torchvision"])
def backend(request: pytest.FixtureRequest) -> ImageBackend:
    return image_backend(request.param)


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
            try:
                image = ImagePolicy(max_pixels=10**6).open(damaged.tobytes(), "row 7")
                as_array(image.decode(TorchvisionBackend()))
            except SkipSample:
                continue


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


def png(width: int, height: int, color_type: int, depth: int, pixels: bytes, transparent: bytes = b"") -> bytes:
    """Write a PNG by hand: Pillow cannot write every kind that it must read."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, 0))
    colour_key = chunk(b"tRNS", transparent) if transparent else b""
    return b"\x89PNG\r\n\x1a\n" + header + colour_key + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(30_000, 30_000), (12_000, 12_000)])
def test_a_decompression_bomb_is_skipped_before_it_is_decoded(width: int, height: int) -> None:
    bomb = png(width, height, 0, 1, bytes(1000))
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


# orientation ------------------------------------------------------------------------------------------------------

UPRIGHT = np.array([[0, 60, 120], [180, 210, 240]], dtype=np.uint8).repeat(16, axis=0).repeat(16, axis=1)
STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.T,
    6: np.rot90(UPRIGHT, 1),
    7: UPRIGHT[::-1, ::-1].T,
    8: np.rot90(UPRIGHT, -1),
}
"""How a camera stores the upright picture under each EXIF orientation."""


def stored(orientation: int, format: str, encode: Encode) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    options = {"quality": 95, "subsampling": 0} if format == "JPEG" else {"lossless": True} if format == "WEBP" else {}
    picture = Image.fromarray(np.ascontiguousarray(STORED[orientation])).convert("RGB")
    return encode(picture, format, exif=exif, **options)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright_before_its_size_is_read(
    backend: ImageBackend, orientation: int, format: str, encode: Encode
) -> None:
    image = ImagePolicy().open(stored(orientation, format, encode), "here")
    assert (image.width, image.height) == (48, 32)
    pixels = as_array(image.decode(backend)).astype(int)
    assert pixels.shape == (32, 48, 3)
    assert np.abs(pixels[8::16, 8::16, 0] - UPRIGHT[8::16, 8::16]).max() <= 3


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_picture_stays_as_stored_where_the_option_is_off(backend: ImageBackend, format: str, encode: Encode) -> None:
    image = ImagePolicy(exif_orientation=False).open(stored(6, format, encode), "here")
    assert (image.width, image.height) == (32, 48)
    pixels = as_array(image.decode(backend)).astype(int)
    assert np.abs(pixels[8::16, 8::16, 0] - STORED[6][8::16, 8::16]).max() <= 3


@pytest.mark.parametrize("value", [0, 9, 99])
def test_an_orientation_that_does_not_exist_means_upright(value: int, photo: Photo, encode: Encode) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = value
    image = ImagePolicy().open(encode(photo(48, 32), "JPEG", exif=exif), "here")
    assert (image.orientation, image.width, image.height) == (1, 48, 32)


# to RGB -----------------------------------------------------------------------------------------------------------


def through_a_file(content: bytes) -> list[list[int]]:
    return row(ImagePolicy().open(content, "here").decode(PillowBackend()))  # type: ignore[arg-type]


def rgba() -> Image.Image:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (255, 0, 0, 128)])
    return image


def palette() -> Image.Image:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])
    return image


@pytest.mark.parametrize(("format", "options"), [("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {})])
def test_alpha_is_composited_on_white(format: str, options: dict[str, Any], encode: Encode) -> None:
    assert through_a_file(encode(rgba(), format, **options)) == [[255, 0, 0], [255, 255, 255], [255, 127, 127]]


def test_grey_with_alpha_is_composited_on_white(encode: Encode) -> None:
    image = Image.new("LA", (3, 1))
    image.putdata([(76, 255), (76, 0), (76, 128)])
    assert through_a_file(encode(image)) == [[76] * 3, [255] * 3, [165] * 3]


@pytest.mark.parametrize(
    ("transparent", "wanted"),
    [
        (1, [[255, 0, 0], [255, 255, 255], [0, 0, 255]]),
        (b"\xff\x80\x00", [[255, 0, 0], [127, 255, 127], [255, 255, 255]]),
    ],
)
def test_a_transparent_palette_entry_is_composited_on_white(
    transparent: int | bytes, wanted: list[list[int]], encode: Encode
) -> None:
    assert through_a_file(encode(palette(), "PNG", transparency=transparent)) == wanted


def test_a_transparent_entry_of_a_gif_is_composited_on_white(encode: Encode) -> None:
    assert through_a_file(encode(palette(), "GIF", transparency=1)) == [[255, 0, 0], [255, 255, 255], [0, 0, 255]]


def test_a_palette_with_alpha_is_composited_on_white() -> None:
    image = Image.new("PA", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([(0, 255), (1, 0), (2, 128)])
    assert row(to_rgb(image)) == [[255, 0, 0], [255, 255, 255], [127, 127, 255]]


def test_a_transparent_colour_is_white(encode: Encode) -> None:
    image = Image.new("RGB", (3, 1))
    image.putdata([(1, 2, 3), (4, 5, 6), (7, 8, 9)])
    assert through_a_file(encode(image, transparency=(4, 5, 6))) == [[1, 2, 3], [255, 255, 255], [7, 8, 9]]


def test_a_transparent_grey_is_white(encode: Encode) -> None:
    image = Image.new("L", (3, 1))
    image.putdata([0, 100, 200])
    assert through_a_file(encode(image, transparency=100)) == [[0] * 3, [255] * 3, [200] * 3]


def test_a_transparent_black_of_two_levels_is_white(encode: Encode) -> None:
    assert through_a_file(encode(Image.new("1", (3, 1)), transparency=0)) == [[255] * 3] * 3


GREYS = np.array([[0, 100 * 257, 65535]])


@pytest.mark.parametrize(("dtype", "mode"), [("<u2", "I;16"), (">u2", "I;16B"), ("<i4", "I")])
def test_16_bit_greys_are_scaled_not_clipped(dtype: str, mode: str, encode: Encode) -> None:
    content = encode(Image.fromarray(GREYS.astype(dtype)), "TIFF")
    assert ImagePolicy().open(content, "here").mode == mode
    assert through_a_file(content) == [[0] * 3, [100] * 3, [255] * 3]


def test_a_transparent_level_of_16_bit_greys_is_white() -> None:
    greys = GREYS.astype(">u2").tobytes()
    assert through_a_file(png(3, 1, 0, 16, b"\0" + greys)) == [[0] * 3, [100] * 3, [255] * 3]
    transparent = struct.pack(">H", 100 * 257)
    assert through_a_file(png(3, 1, 0, 16, b"\0" + greys, transparent)) == [[0] * 3, [255] * 3, [255] * 3]


def test_16_bit_colours_with_alpha_are_composited_on_white() -> None:
    pixels = np.array([65535, 0, 0, 0, 0, 65535, 0, 65535], dtype=">u2").tobytes()
    assert through_a_file(png(2, 1, 6, 16, b"\0" + pixels)) == [[255, 255, 255], [0, 255, 0]]


def test_inks_become_colours(encode: Encode) -> None:
    assert through_a_file(encode(Image.new("CMYK", (1, 1), (0, 255, 0, 0)), "TIFF")) == [[255, 0, 255]]


@pytest.mark.parametrize("mode", ["L", "1", "YCbCr", "HSV", "CMYK", "RGBX"])
def test_every_other_mode_is_converted(mode: str) -> None:
    image = Image.new("RGB", (4, 3), (255, 255, 255)).convert(mode)
    assert (to_rgb(image).mode, row(to_rgb(image))) == ("RGB", [[255] * 3] * 4)


def test_an_image_that_is_decoded_already_is_taken_as_it_is() -> None:
    image = DecodedImage(rgba())
    assert (image.width, image.height) == (3, 1)
    assert row(image.decode(PillowBackend())) == [[255, 0, 0], [255, 255, 255], [255, 127, 127]]  # type: ignore[arg-type]


# backends ---------------------------------------------------------------------------------------------------------


def decode_with_both(content: bytes) -> tuple[EncodedImage, Any, Any]:
    image = ImagePolicy().open(content, "here")
    return image, image.decode(PillowBackend()), image.decode(TorchvisionBackend())


SIZES = [(640, 480), (333, 501), (97, 211), (64, 64), (200, 900)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("options", [{"quality": 75}, {"quality": 95, "subsampling": 0}, {"progressive": True}])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_torchvision_stays_within_3_levels_of_pillow(
    width: int, height: int, options: dict[str, Any], mode: str, photo: Photo, encode: Encode
) -> None:
    _, by_pillow, by_torchvision = decode_with_both(encode(photo(width, height).convert(mode), "JPEG", **options))
    assert isinstance(by_torchvision, torch.Tensor)
    for size in ((224, 224), (448, 336), (height // 28 * 14, width // 28 * 14), (height, width)):
        wanted = PillowBackend().resize(by_pillow, *size).astype(int)
        got = TorchvisionBackend().resize(by_torchvision, *size).astype(int)
        assert got.shape == wanted.shape == (*size, 3)
        assert np.abs(got - wanted).max() <= 3


@pytest.mark.parametrize(
    ("mode", "format"),
    [("RGB", "PNG"), ("RGBA", "PNG"), ("RGB", "WEBP"), ("P", "GIF"), ("CMYK", "JPEG"), ("RGB", "TIFF")],
)
def test_what_torchvision_cannot_read_goes_to_pillow(mode: str, format: str, photo: Photo, encode: Encode) -> None:
    _, by_pillow, by_torchvision = decode_with_both(encode(photo(90, 60).convert(mode), format))
    assert np.array_equal(np.asarray(by_pillow), np.asarray(by_torchvision))
    wanted, got = PillowBackend().resize(by_pillow, 28, 42), TorchvisionBackend().resize(by_torchvision, 28, 42)
    assert np.abs(wanted.astype(int) - got).max() <= 3


def test_pillow_resizes_as_pillow_does(photo: Photo, encode: Encode) -> None:
    image = photo(90, 60)
    decoded = ImagePolicy().open(encode(image), "here").decode(PillowBackend())
    wanted = np.asarray(image.resize((42, 28), Image.Resampling.BICUBIC))
    assert np.array_equal(PillowBackend().resize(decoded, 28, 42), wanted)


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"image_backend is 'opencv'; it must be one of \['pillow', 'torchvision'\]"):
        image_backend("opencv")
