import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from automodel_data.errors import SkipSample
from recipes.encode.rows import Picture
from recipes.encode.transform import Transform

SMALL = Transform(quantization=16, max_pixels=32 * 32)


def picture(image: Image.Image, kind: str = "PNG", **options: Any) -> Picture:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Picture.of(buffer.getvalue(), f"x.{kind}")


def centre(image: Image.Image) -> tuple[int, ...]:
    return image.getpixel((image.width // 2, image.height // 2))


def test_an_image_is_scaled_and_cut_to_its_bucket() -> None:
    made = SMALL.target(picture(Image.new("RGB", (100, 60))))
    assert made.image.size == (32, 16)
    assert made.original_size == (100, 60)
    assert made.crop_offset == (0, 1)
    assert made.pixels().shape == (3, 16, 32)


def test_pixels_lie_between_minus_one_and_one() -> None:
    image = Image.new("RGB", (32, 32), (255, 0, 128))
    assert SMALL.target(picture(image)).pixels()[:, 0, 0].tolist() == pytest.approx(
        [1.0, -1.0, 128 / 127.5 - 1], abs=1e-6
    )


def test_contexts_may_have_a_budget_of_their_own() -> None:
    transform = Transform(quantization=16, max_pixels=32 * 32, context_max_pixels=64 * 64)
    image = picture(Image.new("RGB", (50, 50)))
    assert transform.target(image).image.size == (32, 32)
    assert transform.context(image).image.size == (64, 64)


def test_a_turned_photo_is_set_upright_before_its_bucket_is_chosen() -> None:
    image = Image.new("RGB", (64, 32), "red")
    image.paste("blue", (0, 0, 32, 32))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the left edge is the top
    made = SMALL.target(picture(image, "JPEG", exif=exif, quality=95))
    assert made.original_size == (32, 64)
    width, height = made.image.size
    assert height > width
    top, bottom = made.image.getpixel((width // 2, 2)), made.image.getpixel((width // 2, height - 3))
    assert top[2] > 200 > top[0]
    assert bottom[0] > 200 > bottom[2]


@pytest.mark.parametrize(
    ("image", "colour"),
    [
        (Image.new("RGBA", (32, 32), (0, 0, 0, 0)), (255, 255, 255)),
        (Image.new("LA", (32, 32), (0, 0)), (255, 255, 255)),
        (Image.new("LA", (32, 32), (0, 255)), (0, 0, 0)),
        (Image.new("L", (32, 32), 77), (77, 77, 77)),
        (Image.fromarray(np.full((32, 32), 32896, dtype=np.uint16)), (128, 128, 128)),
    ],
    ids=["RGBA", "LA", "LA opaque", "L", "16 bit"],
)
def test_modes_become_rgb_as_people_see_them(image: Image.Image, colour: tuple[int, ...]) -> None:
    assert centre(SMALL.target(picture(image)).image) == colour


def test_cmyk_becomes_rgb() -> None:
    made = SMALL.target(picture(Image.new("CMYK", (32, 32), (0, 255, 255, 0)), "JPEG", quality=95))
    red, green, blue = centre(made.image)
    assert red > 200
    assert max(green, blue) < 60


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no image", "unreadable image"), (b"", "unreadable image")], ids=["text", "empty"]
)
def test_a_file_that_is_no_image_is_a_loss(content: bytes, reason: str) -> None:
    with pytest.raises(SkipSample) as caught:
        SMALL.target(Picture.of(content, "x"))
    assert caught.value.reason == reason


def test_a_truncated_image_is_a_loss() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    whole = picture(noise).content
    with pytest.raises(SkipSample, match="undecodable image"):
        SMALL.target(Picture.of(whole[: len(whole) // 2], "x"))


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1)])
def test_an_image_of_which_hardly_anything_would_be_kept_is_a_loss(size: tuple[int, int]) -> None:
    with pytest.raises(
        SkipSample, match=f"x.PNG: {size[0]}x{size[1]}, of which its bucket .* would keep 0.0"
    ) as caught:
        Transform().target(picture(Image.new("RGB", size)))
    assert caught.value.reason == "image too elongated"


@pytest.mark.parametrize(
    ("size", "kept"), [((320, 10), True), ((330, 10), False), ((10, 320), True), ((10, 330), False)]
)
def test_a_sixteenth_of_an_image_is_enough(size: tuple[int, int], kept: bool) -> None:
    image = picture(Image.new("RGB", size))
    if kept:
        assert SMALL.target(image).image.size in ((32, 16), (16, 32))
    else:
        with pytest.raises(SkipSample, match="too elongated"):
            SMALL.context(image)


def test_a_turned_photo_is_elongated_as_it_is_seen() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    made = SMALL.target(picture(Image.new("RGB", (300, 10)), "JPEG", exif=exif))
    assert made.image.size == (16, 32)
    assert made.original_size == (10, 300)
