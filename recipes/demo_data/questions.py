"""True questions and answers about scenes, about two scenes, and about none."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from recipes.demo_data.captions import counted, describe, enumerate_in_words
from recipes.demo_data.edits import Add, Edit, Move, Recolour, Remove, Resize
from recipes.demo_data.scenes import Cell, Colour, Kind, Scene

SYSTEM_TEXT = "You look at pictures of shapes and answer in short sentences."


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A question and its true answer."""

    question: str
    answer: str


def ask_count(rng: Random, scene: Scene) -> Turn:
    return Turn(question="How many shapes are there?", answer=_there_are(len(scene.shapes), "shape"))


def ask_count_of_colour(rng: Random, scene: Scene) -> Turn:
    colour = rng.choice(list(Colour))
    count = sum(shape.colour is colour for shape in scene.shapes)
    return Turn(question=f"How many shapes are {colour}?", answer=_there_are(count, f"{colour} shape"))


def ask_colour(rng: Random, scene: Scene) -> Turn:
    shape = rng.choice(scene.shapes)
    return Turn(question=f"What colour is the {shape.kind} {shape.cell}?", answer=f"It is {shape.colour}.")


def ask_background(rng: Random, scene: Scene) -> Turn:
    return Turn(question="What colour is the background?", answer=f"It is {scene.ground}.")


def ask_place(rng: Random, scene: Scene) -> Turn:
    shape = rng.choice(scene.shapes)
    return Turn(question=f"Where is the {shape.name}?", answer=f"It is {shape.cell}.")


def ask_what(rng: Random, scene: Scene) -> Turn:
    """Ask about a place: half the time one that holds a shape."""
    cell = rng.choice(scene.shapes).cell if rng.random() < 0.5 else rng.choice(list(Cell))
    found = [f"a {shape.size} {shape.name}" for shape in scene.shapes if shape.cell is cell]
    return Turn(question=f"What is {cell}?", answer=f"There is {found[0] if found else 'nothing'}.")


def ask_whether(rng: Random, scene: Scene) -> Turn:
    """Ask about a colour and kind: half the time one that is there."""
    names = [(shape.colour, shape.kind) for shape in scene.shapes]
    colour, kind = rng.choice(names) if rng.random() < 0.5 else (rng.choice(list(Colour)), rng.choice(list(Kind)))
    return Turn(question=f"Is there a {colour} {kind}?", answer="Yes." if (colour, kind) in names else "No.")


def ask_order(rng: Random, scene: Scene) -> Turn:
    """Ask whether one shape is left of, or above, another one."""
    if len(scene.shapes) == 1:
        return ask_whether(rng, scene)
    one, other = rng.sample(scene.shapes, 2)
    if rng.random() < 0.5:
        side, holds = "left of", one.cell.column < other.cell.column
    else:
        side, holds = "above", one.cell.row < other.cell.row
    return Turn(question=f"Is the {one.name} {side} the {other.name}?", answer="Yes." if holds else "No.")


ABOUT_ONE: tuple[Callable[[Random, Scene], Turn], ...] = (
    ask_count,
    ask_count_of_colour,
    ask_colour,
    ask_background,
    ask_place,
    ask_what,
    ask_whether,
    ask_order,
)

ABOUT_NONE = (
    Turn(question="How many sides does a triangle have?", answer="It has three sides."),
    Turn(question="How many sides does a square have?", answer="It has four sides."),
    Turn(question="How many points does a star have?", answer="It has five points."),
    Turn(question="Does a circle have corners?", answer="No."),
    Turn(question="Which shapes do you know?", answer=f"I know {enumerate_in_words([f'the {k}' for k in Kind])}."),
    Turn(question="Which colours do you know?", answer=f"I know {enumerate_in_words(list(Colour))}."),
)


def ask(rng: Random, scene: Scene, turns: int) -> list[Turn]:
    """Draw ``turns`` different kinds of question about one scene."""
    return [question(rng, scene) for question in rng.sample(ABOUT_ONE, turns)]


def ask_which_has_more(first: Scene, second: Scene) -> Turn:
    """Compare two scenes by their number of shapes."""
    one, two = len(first.shapes), len(second.shapes)
    answer = "They have the same number." if one == two else f"The {'first' if one > two else 'second'} one."
    return Turn(question="Which picture has more shapes?", answer=answer)


def ask_what_changed(edit: Edit) -> Turn:
    """Ask for the edit that made the second scene of the first."""
    return Turn(question="What changed?", answer=_change(edit))


def _change(edit: Edit) -> str:
    name = edit.shape.name
    match edit:
        case Recolour(colour=colour):
            return f"The {name} became {colour}."
        case Move(cell=cell):
            return f"The {name} is now {cell}."
        case Resize(size=size):
            return f"The {name} is now {size}."
        case Add(shape=shape):
            return f"There is now {describe(shape)}."
        case Remove():
            return f"The {name} is gone."


def _there_are(count: int, noun: str) -> str:
    return f"There {'is' if count == 1 else 'are'} {counted(count, noun)}."
