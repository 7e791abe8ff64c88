"""Edits of a scene, what they make of it, and true instructions for them; chains of edits."""

from dataclasses import dataclass, replace
from random import Random

from recipes.demo_data.captions import describe
from recipes.demo_data.scenes import Cell, Colour, Scene, Shape, Size, Split, draw_scene, draw_shape

MAX_SHAPES = 4
TRIES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Recolour:
    shape: Shape
    colour: Colour


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    shape: Shape
    cell: Cell


@dataclass(frozen=True, kw_only=True, slots=True)
class Resize:
    shape: Shape
    size: Size


@dataclass(frozen=True, kw_only=True, slots=True)
class Add:
    shape: Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Remove:
    shape: Shape


Edit = Recolour | Move | Resize | Add | Remove


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """Scenes in the order in which the edits made them: one edit fewer than scenes."""

    scenes: tuple[Scene, ...]
    edits: tuple[Edit, ...]


def apply(edit: Edit, scene: Scene) -> Scene:
    """Return the scene after the edit."""
    others = [shape for shape in scene.shapes if shape != edit.shape]
    match edit:
        case Recolour():
            return scene.with_shapes(*others, replace(edit.shape, colour=edit.colour))
        case Move():
            return scene.with_shapes(*others, replace(edit.shape, cell=edit.cell))
        case Resize():
            return scene.with_shapes(*others, replace(edit.shape, size=edit.size))
        case Add():
            return scene.with_shapes(*others, edit.shape)
        case Remove():
            return scene.with_shapes(*others)


def phrasings(edit: Edit) -> list[str]:
    """Return instructions that each ask for exactly this edit."""
    name = edit.shape.name
    match edit:
        case Recolour(colour=colour):
            return [f"make the {name} {colour}", f"paint the {name} {colour}", f"change the {name} to {colour}"]
        case Move(cell=cell):
            return [f"put the {name} {cell}", f"move the {name} so that it is {cell}"]
        case Resize(size=size):
            change = "smaller" if size is Size.SMALL else "larger"
            return [f"make the {name} {change}", f"the {name} should be {size}"]
        case Add(shape=shape):
            return [f"add {describe(shape)}", f"draw {describe(shape)}"]
        case Remove():
            return [f"remove the {name}", f"take away the {name}", f"delete the {name}"]


def draw_chain(rng: Random, split: Split, images: int) -> Chain:
    """Draw a chain of ``images`` scenes that all belong to ``split``."""
    scenes: list[Scene] = [draw_scene(rng, split)]
    edits: list[Edit] = []
    while len(scenes) < images:
        tries = (draw_edit(rng, scenes[-1]) for _ in range(TRIES))
        step = next((edit for edit in tries if apply(edit, scenes[-1]).split is split), None)
        if step is None:  # a dead end: every edit leads into the other split
            return draw_chain(rng, split, images)
        scenes.append(apply(step, scenes[-1]))
        edits.append(step)
    return Chain(scenes=tuple(scenes), edits=tuple(edits))


def draw_edit(rng: Random, scene: Scene) -> Edit:
    """Draw an edit that leaves one to ``MAX_SHAPES`` shapes, no two alike in colour and kind."""
    draws = [_recolour, _move, _resize]
    draws += [_add] if len(scene.shapes) < MAX_SHAPES else []
    draws += [_remove] if len(scene.shapes) > 1 else []
    return rng.choice(draws)(rng, scene)


def _recolour(rng: Random, scene: Scene) -> Edit:
    shape = rng.choice(scene.shapes)
    return Recolour(shape=shape, colour=rng.choice([colour for colour, kind in scene.free_names if kind is shape.kind]))


def _move(rng: Random, scene: Scene) -> Edit:
    return Move(shape=rng.choice(scene.shapes), cell=rng.choice(scene.free_cells))


def _resize(rng: Random, scene: Scene) -> Edit:
    shape = rng.choice(scene.shapes)
    return Resize(shape=shape, size=Size.LARGE if shape.size is Size.SMALL else Size.SMALL)


def _add(rng: Random, scene: Scene) -> Edit:
    return Add(shape=draw_shape(rng, scene))


def _remove(rng: Random, scene: Scene) -> Edit:
    return Remove(shape=rng.choice(scene.shapes))
