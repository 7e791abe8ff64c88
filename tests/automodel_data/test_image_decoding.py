"""Pictures are turned upright, every mode becomes RGB by one rule, and both backends agree within three levels."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from automodel_data.errors import DataError
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


def row(image: Any) -> list[list[int]]:
    """Return the first row of pixels."""
    return np.asarray(image)[0].tolist()


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
    return row(ImagePolicy().open(content, "here").decode(PillowBackend()))


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


def test_a_transparent_level_of_16_bit_greys_is_white(write_png: Encode) -> None:
    greys = GREYS.astype(">u2").tobytes()
    assert through_a_file(write_png(3, 1, 0, 16, b"\0" + greys)) == [[0] * 3, [100] * 3, [255] * 3]
    transparent = struct.pack(">H", 100 * 257)
    assert through_a_file(write_png(3, 1, 0, 16, b"\0" + greys, transparent)) == [[0] * 3, [255] * 3, [255] * 3]


def test_16_bit_colours_with_alpha_are_composited_on_white(write_png: Encode) -> None:
    pixels = np.array([65535, 0, 0, 0, 0, 65535, 0, 65535], dtype=">u2").tobytes()
    assert through_a_file(write_png(2, 1, 6, 16, b"\0" + pixels)) == [[255, 255, 255], [0, 255, 0]]


def test_inks_become_colours(encode: Encode) -> None:
    assert through_a_file(encode(Image.new("CMYK", (1, 1), (0, 255, 0, 0)), "TIFF")) == [[255, 0, 255]]


@pytest.mark.parametrize("mode", ["L", "1", "YCbCr", "HSV", "CMYK", "RGBX"])
def test_every_other_mode_is_converted(mode: str) -> None:
    image = Image.new("RGB", (4, 3), (255, 255, 255)).convert(mode)
    assert (to_rgb(image).mode, row(to_rgb(image))) == ("RGB", [[255] * 3] * 4)


def test_an_image_that_is_decoded_already_is_taken_as_it_is() -> None:
    image = DecodedImage(rgba())
    assert (image.width, image.height) == (3, 1)
    assert row(image.decode(PillowBackend())) == [[255, 0, 0], [255, 255, 255], [255, 127, 127]]


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
