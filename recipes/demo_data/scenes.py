"""Scenes of coloured shapes on a 3 x 3 grid: typed, drawn at random, and painted with soft edges."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from PIL import Image, ImageDraw


class Kind(StrEnum):
    CIRCLE = "circle"
    SQUARE = "square"
    TRIANGLE = "triangle"
    STAR = "star"


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"
    YELLOW = "yellow"
    PURPLE = "purple"


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Ground(StrEnum):
    WHITE = "white"
    GREY = "grey"
    BLACK = "black"


class Cell(StrEnum):
    """A place of the grid, row by row; the value completes "a red circle ..."."""

    TOP_LEFT = "at the top left"
    TOP = "at the top"
    TOP_RIGHT = "at the top right"
    LEFT = "on the left"
    CENTRE = "in the centre"
    RIGHT = "on the right"
    BOTTOM_LEFT = "at the bottom left"
    BOTTOM = "at the bottom"
    BOTTOM_RIGHT = "at the bottom right"

    @property
    def row(self) -> int:
        return list(Cell).index(self) // 3

    @property
    def column(self) -> int:
        return list(Cell).index(self) % 3

    @property
    def middle(self) -> tuple[float, float]:
        """Return (x, y) as fractions of the picture's edges."""
        return (self.column + 0.5) / 3, (self.row + 0.5) / 3


class Split(StrEnum):
    TRAIN = "train"
    HELDOUT = "heldout"


COLOUR_RGB = {
    Colour.RED: (214, 48, 49),
    Colour.GREEN: (39, 158, 84),
    Colour.BLUE: (45, 98, 214),
    Colour.YELLOW: (246, 200, 40),
    Colour.PURPLE: (140, 72, 190),
}
GROUND_RGB = {Ground.WHITE: (255, 255, 255), Ground.GREY: (188, 192, 198), Ground.BLACK: (24, 26, 32)}
RADIUS_IN_CELLS = {Size.SMALL: 0.26, Size.LARGE: 0.44}
HELDOUT_SHARE = 8  # one scene in so many is held out


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One shape; in a scene no other has its colour and kind, so "the red circle" means this one."""

    kind: Kind
    colour: Colour
    size: Size
    cell: Cell

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Shapes in different cells of one ground, in reading order."""

    ground: Ground
    shapes: tuple[Shape, ...]

    @property
    def split(self) -> Split:
        """Return the split that owns this scene: a scene never appears in both."""
        code = "|".join([self.ground, *(f"{s.size} {s.name} {s.cell}" for s in self.shapes)])
        return Split.HELDOUT if zlib.crc32(code.encode()) % HELDOUT_SHARE == 0 else Split.TRAIN

    @property
    def free_cells(self) -> list[Cell]:
        taken = {shape.cell for shape in self.shapes}
        return [cell for cell in Cell if cell not in taken]

    @property
    def free_names(self) -> list[tuple[Colour, Kind]]:
        """Return the colours and kinds that no shape here combines."""
        taken = {(shape.colour, shape.kind) for shape in self.shapes}
        return [(colour, kind) for colour in Colour for kind in Kind if (colour, kind) not in taken]

    def with_shapes(self, *shapes: Shape) -> "Scene":
        """Return the scene with these shapes instead, in reading order."""
        order = list(Cell)
        return Scene(ground=self.ground, shapes=tuple(sorted(shapes, key=lambda shape: order.index(shape.cell))))


def draw_until(draw: Callable[[], Scene], split: Split) -> Scene:
    """Repeat ``draw`` until its scene belongs to ``split``."""
    scene = draw()
    while scene.split is not split:
        scene = draw()
    return scene


def draw_scene(rng: Random, split: Split, max_shapes: int = 4) -> Scene:
    """Draw a scene of one to ``max_shapes`` shapes that belongs to ``split``."""
    return draw_until(lambda: _draw_any_scene(rng, max_shapes), split)


def draw_shape(rng: Random, scene: Scene) -> Shape:
    """Draw a shape that ``scene`` can take: a free cell, and a colour and kind not yet combined."""
    colour, kind = rng.choice(scene.free_names)
    return Shape(kind=kind, colour=colour, size=rng.choice(list(Size)), cell=rng.choice(scene.free_cells))


def _draw_any_scene(rng: Random, max_shapes: int) -> Scene:
    scene = Scene(ground=rng.choice(list(Ground)), shapes=())
    for _ in range(rng.randint(1, max_shapes)):
        scene = scene.with_shapes(*scene.shapes, draw_shape(rng, scene))
    return scene


def paint(scene: Scene, width: int, height: int, oversampling: int = 3) -> Image.Image:
    """Paint a scene as an RGB picture of ``width`` x ``height`` pixels.

    Args:
        oversampling: Painted so many times larger, then averaged, which softens the edges.
    """
    canvas = Image.new("RGB", (width * oversampling, height * oversampling), GROUND_RGB[scene.ground])
    for shape in scene.shapes:
        stamp(canvas, shape, shape.cell.middle)
    return canvas.reduce(oversampling)


def stamp(canvas: Image.Image, shape: Shape, middle: tuple[float, float]) -> None:
    """Paint one shape onto ``canvas`` around ``middle``, given as fractions of its edges."""
    x, y = middle[0] * canvas.width, middle[1] * canvas.height
    radius = RADIUS_IN_CELLS[shape.size] * min(canvas.size) / 3
    fill, pen = COLOUR_RGB[shape.colour], ImageDraw.Draw(canvas)
    match shape.kind:
        case Kind.CIRCLE:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
        case Kind.SQUARE:
            pen.rectangle((x - radius, y - radius, x + radius, y + radius), fill=fill)
        case Kind.TRIANGLE:
            pen.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], fill=fill)
        case Kind.STAR:
            pen.polygon(_star(x, y, radius * 1.1), fill=fill)


def _star(x: float, y: float, radius: float) -> list[tuple[float, float]]:
    reach = [radius if point % 2 == 0 else radius * 0.42 for point in range(10)]
    turn = [math.pi * (point / 5 - 0.5) for point in range(10)]
    return [(x + r * math.cos(angle), y + r * math.sin(angle)) for r, angle in zip(reach, turn, strict=True)]
