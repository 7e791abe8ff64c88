import io
from dataclasses import replace
from random import Random

import pytest
from PIL import Image

from recipes.demo_data.config import BENCH, DEMO
from recipes.demo_data.pictures import Encoding, Studio, encode
from recipes.demo_data.scenes import Ground, Scene, Split, draw_scene, paint

SCENES = [Scene(ground=Ground.WHITE, shapes=draw_scene(Random(number), Split.TRAIN).shapes) for number in range(12)]


@pytest.mark.parametrize("encoding", Encoding)
def test_every_encoding_shows_the_same_scene(encoding, look):
    for scene in SCENES:
        image = paint(scene, 200, 140)
        assert look(encode(image, encoding).data) == look(image)


@pytest.mark.parametrize(
    ("encoding", "mode", "stored_size"),
    [
        (Encoding.JPEG, "RGB", (200, 140)),
        (Encoding.PNG, "RGB", (200, 140)),
        (Encoding.PALETTE_PNG, "P", (200, 140)),
        (Encoding.TRANSPARENT_PNG, "RGBA", (200, 140)),
        (Encoding.TURNED_JPEG, "RGB", (140, 200)),
    ],
)
def test_an_encoding_is_stored_as_its_name_says(encoding, mode, stored_size):
    file = encode(paint(SCENES[0], 200, 140), encoding)
    stored = Image.open(io.BytesIO(file.data))
    assert (stored.mode, stored.size) == (mode, stored_size)
    assert file.suffix == (".jpg" if stored.format == "JPEG" else ".png")


def test_without_oddities_only_plain_encodings_are_drawn():
    studio, rng = Studio(replace(DEMO, oddities=False)), Random(0)
    files = [Image.open(io.BytesIO(studio.photograph(rng, SCENES[0], (64, 64)).data)) for _ in range(60)]
    assert {(file.format, file.mode, len(file.getexif())) for file in files} == {("JPEG", "RGB", 0), ("PNG", "RGB", 0)}


def test_sizes_vary_within_the_bounds_and_are_not_always_multiples_of_a_stride():
    sizes = [Studio(DEMO).draw_size(Random(number)) for number in range(50)]
    assert all(128 <= edge <= 256 for size in sizes for edge in size)
    assert any(width % 14 and width % 16 for width, _ in sizes)


def test_grain_makes_a_large_jpeg_of_photo_like_weight():
    data = Studio(BENCH).photograph(Random(0), SCENES[0], (1024, 1024)).data
    assert Image.open(io.BytesIO(data)).format == "JPEG"
    assert 100_000 < len(data) < 600_000
