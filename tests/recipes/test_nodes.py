"""Nodes are checked against what they build."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from recipes import nodes
from recipes.mistakes import ConfigError


@dataclass(kw_only=True)
class Engine:
    power: float
    fuel: str | None = None
    valves: int = 4

    def __post_init__(self) -> None:
        if self.power < 0:
            raise ValueError(f"power ({self.power}) must not be negative")


@dataclass(kw_only=True)
class Car:
    name: str = "car"
    engine: Any = None
    wheels: list[Any] = field(default_factory=list)


def engine(**values: object) -> dict[str, object]:
    return {"_target_": "tests.recipes.test_nodes.Engine", **values}


def test_a_typed_node_is_built_with_everything_below_it() -> None:
    plain = {"name": "kit", "engine": engine(power=3), "wheels": [1, 2]}
    nodes.check(plain, Car)
    car = nodes.build(plain, Car)
    assert (type(car).__name__, type(car.engine).__name__, car.engine.power, car.wheels) == ("Car", "Engine", 3, [1, 2])


@pytest.mark.parametrize(
    ("plain", "line"),
    [
        ({"nam": "kit"}, "nam: no such key. Did you mean 'name'?"),
        ({"engine": engine(power=1, valve=2)}, "engine.valve: no such key. Did you mean 'engine.valves'?"),
        ({"engine": engine(power="much")}, "engine.power ('much') must be float"),
        ({"engine": engine(power=1, valves=None)}, "engine.valves has no value; it must be int"),
        ({"engine": engine(power=True)}, "engine.power (True) must be float"),
        ({"engine": engine(fuel="oil")}, "engine.power is missing: tests.recipes.test_nodes.Engine needs it"),
        ({"wheels": [engine(power=1, valve=2)]}, "wheels[0].valve: no such key. Did you mean 'wheels[0].valves'?"),
        (
            {"engine": {"_target_": "nowhere.Engine"}},
            "engine._target_ (nowhere.Engine): there is no such thing. Is nowhere",
        ),
    ],
)
def test_what_nothing_reads_or_fits_is_refused(plain: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        nodes.check(plain, Car)
    assert str(refusal.value).startswith(line)


def test_a_partial_target_may_lack_values() -> None:
    nodes.check({"engine": {"_partial_": True, **engine(fuel="oil")}}, Car)


def test_a_value_that_the_target_refuses_is_the_users_mistake() -> None:
    with pytest.raises(ConfigError, match=r"engine: power \(-1\) must not be negative"):
        nodes.build({"name": "kit", "engine": engine(power=-1), "wheels": []}, Car)


def test_an_error_inside_a_target_stays_an_error() -> None:
    with pytest.raises(Exception, match="TypeError") as caught:
        nodes.build({"name": "kit", "engine": engine(power="1"), "wheels": []}, Car)
    assert not isinstance(caught.value, ConfigError)


def test_an_overlay_changes_only_what_it_names() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert nodes.overlaid(base, {"a": {"c": 3}, "d": [2, 3]}) == {"a": {"b": 1, "c": 3}, "d": [2, 3]}
    assert base == {"a": {"b": 1, "c": 2}, "d": [1]}
