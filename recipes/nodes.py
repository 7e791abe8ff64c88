"""Configuration nodes as plain values: keys and types are checked against what they build, then they are built."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from hydra.utils import get_object, instantiate

from recipes.mistakes import ConfigError, suggestion

_DIRECTIVES = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}


def check(node: object, path: str = "", kind: object = Any) -> None:
    """Compare every key below ``node`` with the dataclass ``kind`` or with the signature of its ``_target_``.

    Raises:
        ConfigError: For a key that nothing reads, a value of the wrong type, or a required one that is missing.
    """
    match node:
        case {"_target_": str(target)}:
            _check_call(node, path, _locate(target, path))
        case dict() if dataclasses.is_dataclass(kind):
            _check_fields(node, path, kind)
        case dict():
            for key, value in node.items():
                check(value, _join(path, key))
        case list():
            for index, value in enumerate(node):
                check(value, f"{path}[{index}]")


def build(node: object, kind: object = Any) -> Any:
    """Return ``node`` as an instance of the dataclass ``kind``, or with every ``_target_`` below it called."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: build(node[field.name], hints[field.name]) for field in dataclasses.fields(kind)})
    return instantiate(node, _convert_="all") if isinstance(node, dict | list) else node


def overlaid(base: object, overlay: object) -> Any:
    """Return ``base`` with ``overlay`` merged over it, mapping by mapping; neither is changed."""
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    return base | {key: overlaid(base.get(key), value) for key, value in overlay.items()}


def _check_fields(node: dict[str, Any], path: str, kind: object) -> None:
    hints = typing.get_type_hints(kind)
    _refuse_unknown(node, hints, path, "the run config")
    for key, value in node.items():
        check(value, _join(path, key), hints[key])


def _check_call(node: dict[str, Any], path: str, target: Callable[..., Any]) -> None:
    given = {key: value for key, value in node.items() if key not in _DIRECTIVES}
    parameters = inspect.signature(target).parameters
    named = {name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        _refuse_unknown(given, named, path, node["_target_"])
    hints = typing.get_type_hints(target) if dataclasses.is_dataclass(target) else {}
    for key, value in given.items():
        if not _fits(value, hints.get(key, Any)):
            raise ConfigError(f"{_join(path, key)} ({value!r}) must be {_spell(hints[key])}")
        check(value, _join(path, key))
    missing = [name for name in named if parameters[name].default is inspect.Parameter.empty and name not in given]
    if missing and not node.get("_partial_", False) and "_args_" not in node:
        raise ConfigError(f"{_join(path, missing[0])} is missing: {node['_target_']} needs it")


def _locate(target: str, path: str) -> Callable[..., Any]:
    try:
        return get_object(target)
    except ImportError as error:
        raise ConfigError(f"{_join(path, '_target_')} ({target}) cannot be imported: {error}") from error


def _refuse_unknown(given: Iterable[str], known: Iterable[str], path: str, reader: str) -> None:
    for key in given:
        if key not in known:
            raise ConfigError(f"{_join(path, key)}: no such key in {reader}.{suggestion(str(key), known)}")


def _fits(value: object, hint: object) -> bool:
    """Judge plain values by plain annotations; anything richer is the target's own business."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    return value is not None or hint in (Any, object)


def _spell(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
