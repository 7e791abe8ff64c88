"""Configuration nodes as plain values: keys and types are checked against what they build, then they are built."""

import dataclasses
import inspect
import pydoc
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from recipes.mistakes import ConfigError, advice, suggestion

_DIRECTIVES = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}


def check(config: dict[str, Any], kind: type) -> None:
    """Compare every key with the dataclass ``kind``, and below it with the signature of every ``_target_``.

    Raises:
        ConfigError: For a key that nothing reads, a value of the wrong type, or a required one that is missing.
    """
    _Checker(config).check(config, "", kind)


def build(node: object, kind: object = Any, path: str = "") -> Any:
    """Return ``node`` as an instance of the dataclass ``kind``, or with every ``_target_`` below it called.

    Raises:
        ConfigError: When a target refuses its values (``ValueError``); its message comes with the key.
    """
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: build(node[name], hints[name], _join(path, name)) for name in names})
    if not isinstance(node, dict | list):
        return node
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        if not isinstance(error.__cause__, ValueError):
            raise
        _, _, below = str(error).partition("full_key: ")
        where = f"{path}.{below}" if below else path
        raise ConfigError(f"{where}: {error.__cause__}") from error.__cause__


def overlaid(base: object, overlay: object) -> Any:
    """Return ``base`` with ``overlay`` merged over it, mapping by mapping; neither is changed."""
    if not isinstance(base, dict) or not isinstance(overlay, dict):
        return overlay
    return base | {key: overlaid(base.get(key), value) for key, value in overlay.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class _Checker:
    """Walks a config; ``root`` is the whole of it, for advice."""

    root: dict[str, Any]

    def check(self, node: object, path: str, kind: object = Any) -> None:
        match node:
            case {"_target_": str(target)}:
                self._check_call(node, path, _locate(target, path))
            case dict() if dataclasses.is_dataclass(kind):
                self._check_fields(node, path, kind)
            case dict():
                for key, value in node.items():
                    self.check(value, _join(path, key))
            case list():
                for index, value in enumerate(node):
                    self.check(value, f"{path}[{index}]")

    def _check_fields(self, node: dict[str, Any], path: str, kind: object) -> None:
        hints = typing.get_type_hints(kind)
        self._refuse_unknown(node, hints, path)
        for key, value in node.items():
            self.check(value, _join(path, key), hints[key])

    def _check_call(self, node: dict[str, Any], path: str, target: Callable[..., Any]) -> None:
        given = {key: value for key, value in node.items() if key not in _DIRECTIVES}
        parameters = inspect.signature(target).parameters
        named = {name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
        if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            self._refuse_unknown(given, named, path)
        hints = typing.get_type_hints(target) if dataclasses.is_dataclass(target) else {}
        for key, value in given.items():
            if not _fits(value, hints.get(key, Any)):
                what = "has no value; it" if value is None else f"({value!r})"
                raise ConfigError(f"{_join(path, key)} {what} must be {_spell(hints[key])}")
            self.check(value, _join(path, key))
        missing = [name for name in named if parameters[name].default is inspect.Parameter.empty and name not in given]
        if missing and not node.get("_partial_", False) and "_args_" not in node:
            raise ConfigError(f"{_join(path, missing[0])} is missing: {node['_target_']} needs it")

    def _refuse_unknown(self, given: Iterable[str], known: Iterable[str], path: str) -> None:
        for key in given:
            if key not in known:
                raise ConfigError(f"{_join(path, key)}: no such key.{advice(_join(path, key), known, self.root)}")


def _locate(target: str, path: str) -> Callable[..., Any]:
    try:
        found = pydoc.locate(target)
    except pydoc.ErrorDuringImport as error:
        raise ConfigError(f"{_join(path, '_target_')} ({target}): cannot be imported: {error.value}") from error
    if found is None:
        parent, _, name = target.rpartition(".")
        hint = suggestion(name, dir(pydoc.locate(parent))) or f" Is {parent} installed and spelled right?"
        raise ConfigError(f"{_join(path, '_target_')} ({target}): there is no such thing.{hint}")
    return found


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
