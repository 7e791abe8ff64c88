"""A reader of demo pictures that knows nothing of how they were made: it looks at pixels only."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from recipes.demo_data import ensure_demo_data

SHAPE_RGB = {
    "red": (214, 48, 49),
    "green": (39, 158, 84),
    "blue": (45, 98, 214),
    "yellow": (246, 200, 40),
    "purple": (140, 72, 190),
}
GROUND_RGB = {"white": (255, 255, 255), "grey": (188, 192, 198), "black": (24, 26, 32)}
CELLS = [
    *("at the top left", "at the top", "at the top right"),
    *("on the left", "in the centre", "on the right"),
    *("at the bottom left", "at the bottom", "at the bottom right"),
]
NUMBERS = ("no", "one", "two", "three", "four", "five")
NAME = r"(red|green|blue|yellow|purple) (circle|square|triangle|star)"
PLACE = "|".join(sorted(CELLS, key=len, reverse=True))


@dataclass(frozen=True)
class Seen:
    """One shape as it looks."""

    size: str
    colour: str
    kind: str
    cell: str

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"

    @property
    def column(self) -> int:
        return CELLS.index(self.cell) % 3

    @property
    def row(self) -> int:
        return CELLS.index(self.cell) // 3


@dataclass(frozen=True)
class View:
    """What a picture shows."""

    ground: str
    shapes: frozenset[Seen]

    def one(self, **wanted: str) -> Seen:
        """Return the only shape that looks like this."""
        (found,) = [
            shape for shape in self.shapes if all(getattr(shape, key) == value for key, value in wanted.items())
        ]
        return found


def _look(image: Image.Image | bytes) -> View:
    if isinstance(image, bytes):
        image = Image.open(io.BytesIO(image))
    image = ImageOps.exif_transpose(image)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    pixels = np.asarray(image.convert("RGB"), dtype=np.int16)
    ground = min(GROUND_RGB, key=lambda name: np.abs(pixels[0, 0] - GROUND_RGB[name]).sum())
    height, width = pixels.shape[:2]
    shapes = set()
    for index, cell in enumerate(CELLS):
        row, column = divmod(index, 3)
        part = pixels[row * height // 3 : (row + 1) * height // 3, column * width // 3 : (column + 1) * width // 3]
        shapes |= {seen} if (seen := _look_at(part, np.int16(GROUND_RGB[ground]), cell)) else set()
    return View(ground, frozenset(shapes))


def _look_at(pixels: np.ndarray, ground: np.ndarray, cell: str) -> Seen | None:
    from_ground = np.abs(pixels - ground).sum(axis=2)
    if (from_ground > 100).mean() < 0.01:
        return None
    typical = np.median(pixels[from_ground > 100], axis=0)
    colour = min(SHAPE_RGB, key=lambda name: np.abs(typical - SHAPE_RGB[name]).sum())
    mask = from_ground > 0.5 * np.abs(ground - np.int16(SHAPE_RGB[colour])).sum()
    ys, xs = np.nonzero(mask)
    tall, wide = np.ptp(ys) + 1, np.ptp(xs) + 1
    filled = mask.sum() / (tall * wide)
    kind = "star" if filled < 0.465 else "triangle" if filled < 0.65 else "circle" if filled < 0.9 else "square"
    size = "large" if max(tall, wide) > 0.7 * min(pixels.shape[:2]) else "small"
    return Seen(size, colour, kind, cell)


def _judge_caption(view: View, caption: str) -> bool:
    """Tell whether a caption is true of a view and, where it lists shapes, leaves none out."""
    if count := re.fullmatch(r"(\w+) shapes? on a (\w+) background", caption):
        return NUMBERS.index(count[1]) == len(view.shapes) and count[2] == view.ground
    if ground := re.match(r"on a (\w+) background, ", caption):
        caption = caption[ground.end() :]
        if ground[1] != view.ground:
            return False
    said = re.findall(rf"a (?:(small|large) )?{NAME}(?: ({PLACE}))?", caption)
    held = [
        any(
            all(
                not word or word == trait for word, trait in zip(words, (s.size, s.colour, s.kind, s.cell), strict=True)
            )
            for s in view.shapes
        )
        for words in said
    ]
    return len(said) == len(view.shapes) and all(held)


def _follow(view: View, instruction: str) -> View:
    """Return the view that the instruction asks for."""
    rest = re.sub(r"^(make|paint|change|move|put|remove|take away|delete|add|draw) ", "", instruction)
    if new := re.fullmatch(rf"a (small|large) {NAME} ({PLACE})", rest):
        return View(view.ground, view.shapes | {Seen(*new.groups())})
    parts = re.fullmatch(rf"the {NAME}(?: should be| to| so that it is)? ?(.*)", rest)
    assert parts, instruction
    old = view.one(colour=parts[1], kind=parts[2])
    others = view.shapes - {old}
    match parts[3]:
        case "":
            return View(view.ground, others)
        case cell if cell in CELLS:
            assert all(shape.cell != cell for shape in others)
            return View(view.ground, others | {Seen(old.size, old.colour, old.kind, cell)})
        case colour if colour in SHAPE_RGB:
            return View(view.ground, others | {Seen(old.size, colour, old.kind, old.cell)})
        case size:
            size = {"larger": "large", "smaller": "small"}.get(size, size)
            assert size != old.size
            return View(view.ground, others | {Seen(size, old.colour, old.kind, old.cell)})


def _answer(view: View, question: str) -> str:
    """Answer a question about one picture by looking at it."""
    match question.rstrip("?").split():
        case ["How", "many", "shapes", "are", "there"]:
            return _there_are(len(view.shapes), "shape")
        case ["How", "many", "shapes", "are", colour]:
            return _there_are(sum(shape.colour == colour for shape in view.shapes), f"{colour} shape")
        case ["What", "is", *cell]:
            found = [shape for shape in view.shapes if shape.cell == " ".join(cell)]
            return f"There is a {found[0].size} {found[0].name}." if found else "There is nothing."
        case ["Is", *statement]:
            return "Yes." if _holds(view, statement) else "No."
        case words:
            return f"It is {_trait(view, words)}."


def _trait(view: View, question: list[str]) -> str:
    match question:
        case ["What", "colour", "is", "the", "background"]:
            return view.ground
        case ["What", "colour", "is", "the", kind, *cell]:
            return view.one(kind=kind, cell=" ".join(cell)).colour
        case ["Where", "is", "the", colour, kind]:
            return view.one(colour=colour, kind=kind).cell
    raise AssertionError(f"a question that no test understands: {question}")


def _holds(view: View, statement: list[str]) -> bool:
    match statement:
        case ["there", "a", colour, kind]:
            return any(shape.name == f"{colour} {kind}" for shape in view.shapes)
        case ["the", colour, kind, "left", "of", "the", *other]:
            return view.one(colour=colour, kind=kind).column < view.one(colour=other[0], kind=other[1]).column
        case ["the", colour, kind, "above", "the", *other]:
            return view.one(colour=colour, kind=kind).row < view.one(colour=other[0], kind=other[1]).row
    raise AssertionError(f"a statement that no test understands: {statement}")


def _there_are(count: int, noun: str) -> str:
    return f"There is one {noun}." if count == 1 else f"There are {NUMBERS[count]} {noun}s."


@pytest.fixture(scope="session")
def look() -> Callable[[Image.Image | bytes], View]:
    return _look


@pytest.fixture(scope="session")
def judge_caption() -> Callable[[View, str], bool]:
    return _judge_caption


@pytest.fixture(scope="session")
def follow() -> Callable[[View, str], View]:
    return _follow


@pytest.fixture(scope="session")
def answer() -> Callable[[View, str], str]:
    return _answer


@pytest.fixture(scope="session")
def demo_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the whole demo data, made once for all tests."""
    return ensure_demo_data(tmp_path_factory.mktemp("data") / "demo")
