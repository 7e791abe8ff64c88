"""Every documented name is there, with its parameters in order and their defaults."""

import importlib
import inspect
import json
import logging
from pathlib import Path
from typing import Any

import pytest

DOCUMENTED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "signatures.json").read_text(encoding="utf-8")
)
ABSENT = object()


def names_of(family: str) -> list[str]:
    return [name for name in DOCUMENTED if name.startswith(f"{family}.")]


def find(name: str) -> Any:
    """Import ``family.module`` and follow the rest of the dotted name."""
    family, module, *attributes = name.split(".")
    found = importlib.import_module(f"automodel_data.{family}.{module}")
    for attribute in attributes:
        found = getattr(found, attribute)
    return found


def evaluate(default: str) -> Any:
    """Return the value of a documented default such as ``14 * 14`` or ``(0.5, 0.5)``; they are our own test data."""
    return eval(default, {"__builtins__": {}})


def parameters_of(found: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(found).parameters.values() if p.name not in ("self", "cls")]


def check(name: str) -> None:
    documented, found = DOCUMENTED[name], find(name)
    if documented["kind"] == "data":
        check_value(found, documented["value"])
        return
    assert callable(found)
    if not documented["params"]:
        return
    ours = parameters_of(found)
    for theirs, parameter in zip(documented["params"], ours, strict=False):
        assert parameter.name == theirs["name"]
        default = ABSENT if parameter.default is inspect.Parameter.empty else parameter.default
        wanted = evaluate(theirs["default"]) if "default" in theirs else ABSENT
        variadic = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        assert variadic or default == wanted, f"{name}({parameter.name}={default!r}), documented {wanted!r}"
    added = ours[len(documented["params"]) :]
    assert len(ours) >= len(documented["params"]), f"{name} lacks {documented['params'][len(ours) :]}"
    assert all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in added)


def check_value(found: Any, written: str) -> None:
    match written[0]:
        case "[":
            assert found == evaluate(written)
        case "{":
            assert isinstance(found, dict)
        case _:  # an expression
            assert isinstance(found, logging.Logger | type)


@pytest.mark.parametrize("name", names_of("diffusion"))
def test_documented_name_of_the_latent_caches_is_there(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", names_of("multimodal"))
def test_documented_name_of_the_packed_rows_is_there(name: str) -> None:
    check(name)
