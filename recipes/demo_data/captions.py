"""True captions of a scene, in several phrasings."""

from recipes.demo_data.scenes import Scene, Shape

NUMBERS = ("no", "one", "two", "three", "four", "five")


def captions(scene: Scene) -> dict[str, str]:
    """Return true captions by name, from terse to complete."""
    count = counted(len(scene.shapes), "shape")
    return {
        "names": enumerate_in_words([f"a {shape.name}" for shape in scene.shapes]),
        "count": f"{count} on a {scene.ground} background",
        "places": enumerate_in_words([f"a {shape.name} {shape.cell}" for shape in scene.shapes]),
        "full": f"on a {scene.ground} background, {enumerate_in_words([describe(s) for s in scene.shapes])}",
    }


def describe(shape: Shape) -> str:
    """Return everything there is to say about a shape."""
    return f"a {shape.size} {shape.name} {shape.cell}"


def counted(count: int, noun: str) -> str:
    """Return e.g. "two circles"."""
    return f"{NUMBERS[count]} {noun}{'' if count == 1 else 's'}"


def enumerate_in_words(items: list[str]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
