"""Small folders of pairs, and caches made of them in this process."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from recipes import distributed
from recipes.encode.cache import CacheWriter
from recipes.encode.encoders.demo import DemoEncoderConfig
from recipes.encode.layouts import ImageEditLayout, TextToImageLayout
from recipes.encode.sources import open_source
from recipes.encode.transform import Transform

COLOURS = ("red", "green", "blue", "white", "black", "yellow", "purple", "orange")


def png(colour: str, size: tuple[int, int] = (48, 48)) -> bytes:
    """Return a picture of one colour with a black corner, which tells its directions apart."""
    image = Image.new("RGB", size, colour)
    image.paste("black", (0, 0, size[0] // 4, size[1] // 4))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Write 6 pairs: 48 x 48 pixels, every third with two contexts and 64 x 32 pixels."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    rows, captions = [], []
    for i, colour in enumerate(COLOURS[:6]):
        size, contexts = ((64, 32), 2) if i % 3 == 2 else ((48, 48), 1)
        names = [f"{i}_{place}.png" for place in range(contexts + 1)]
        for place, name in enumerate(names):
            (folder / name).write_bytes(png(COLOURS[(i + place) % 8], size))
        rows.append({"contexts": names[:-1], "instruction": f"make it {colour}", "target": names[-1]})
        captions.append({"image": names[-1], "caption": f"a {colour} picture"})
    write_lines(folder / "pairs.jsonl", rows)
    write_lines(folder / "captions.jsonl", captions)
    return folder


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def change_row() -> Callable[..., None]:
    """Change fields of one row of a JSON-lines file."""

    def change(path: Path, number: int, **fields: Any) -> None:
        rows = read_lines(path)
        rows[number] |= fields
        write_lines(path, rows)

    return change


@pytest.fixture(scope="module")
def world() -> Iterator[distributed.World]:
    yield distributed.start(timeout_minutes=1.0)
    distributed.stop()


LAYOUTS = {"image_edit": ImageEditLayout(), "t2i": TextToImageLayout()}


@pytest.fixture
def make_writer(world: distributed.World) -> Callable[..., CacheWriter]:
    """Return a function that makes a writer of small pictures; keywords replace its fields."""

    def make(source: Path, cache_dir: Path, layout: str = "image_edit", **fields: Any) -> CacheWriter:
        encoder = DemoEncoderConfig(text_size=8).build(torch.device("cpu"))
        kind = LAYOUTS[layout]
        writer = CacheWriter(
            cache_dir=cache_dir,
            source=open_source(str(source), kind.lines_file, kind.columns),
            source_name=source.name,
            layout=kind,
            transform=Transform(quantization=16, max_pixels=32 * 32),
            encoder=encoder,
            encoder_identity=encoder.identity(),
            dtype=torch.float32,
            threads=2,
            items_per_shard=4,
            world=world,
        )
        return replace(writer, **fields)

    return make


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Return every file of a folder by its name."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return read
