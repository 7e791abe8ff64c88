"""The reference of every configuration key, read off the classes that the configuration builds.

A key's type and default come from the signature, its meaning from the ``Args:`` or
``Attributes:`` of the docstring.
"""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_object

from recipes.bench.config import BenchConfig
from recipes.config import RunConfig
from recipes.encode.config import EncodeConfig
from recipes.encode.config import PreviewConfig as SheetConfig
from recipes.preview.config import PreviewConfig
from recipes.validate.config import ValidateConfig

OURS = ("automodel_data.", "recipes.")
_HEADING = re.compile(r"^(?:Args|Attributes):\n", re.MULTILINE)
_ARGUMENT = re.compile(r"^    ?(?P<names>\w+(?:, \w+)*)(?: \([^)]*\))?: (?P<meaning>.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One configuration key."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """The keys of one class, and where in the configuration it is used."""

    title: str
    summary: str
    keys: list[Key]


def sections(conf: Path) -> list[Section]:
    """Return the run config's own sections, those of every class of ours that ``conf`` names, and other scripts'."""
    own = [_section("the top level", RunConfig)]
    hints = typing.get_type_hints(RunConfig)
    own += [_section(name, kind) for name, kind in hints.items() if dataclasses.is_dataclass(kind)]
    places: dict[str, set[str]] = {}
    for path in sorted(conf.glob("*/*.yaml")):
        for place, target in _targets(yaml.safe_load(path.read_text(encoding="utf-8")), _package(path)):
            if target.startswith(OURS):
                places.setdefault(target, set()).add(place)
    built = [
        _section(f"{', '.join(sorted(where))}: {target.rpartition('.')[2]}", get_object(target))
        for target, where in sorted(places.items(), key=lambda item: sorted(item[1]))
    ]
    return own + [section for section in built if section.keys] + _of_other_scripts()


def _of_other_scripts() -> list[Section]:
    return [
        _section("scripts/validate.py, beside a run's keys: validate", ValidateConfig),
        _section("scripts/preview.py, beside a run's keys: preview", PreviewConfig),
        _section("scripts/encode_cache.py: the top level", EncodeConfig),
        _section("scripts/encode_cache.py: preview", SheetConfig),
        _section("scripts/bench.py: the top level", BenchConfig),
    ]


def markdown(conf: Path) -> str:
    """Return the reference as a Markdown page."""
    lines = [
        "# Every configuration key",
        "",
        "Made by `python scripts/make_config_reference.py` from the classes that the configuration builds.",
        "A key is set on the command line as `path.key=value`. Groups of files are chosen as `group=file`; what a file",
        "may hold beside these keys belongs to the library that its `_target_` names (`torch.optim`, `diffusers`).",
    ]
    for section in sections(conf):
        lines += ["", f"## {section.title}", "", section.summary, ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [_row(key) for key in section.keys]
    return "\n".join(lines) + "\n"


def _row(key: Key) -> str:
    type_, default, meaning = (text.replace("|", "\\|") for text in (key.type, key.default, key.meaning))
    return f"| `{key.name}` | `{type_}` | `{default}` | {meaning} |"


def _package(path: Path) -> str:
    """Return where a file's keys come to lie: its group, or the top for files that say so."""
    return "" if "@package _global_" in path.read_text(encoding="utf-8") else path.parent.name


def _targets(node: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        if isinstance(node.get("_target_"), str):
            yield place, node["_target_"]
        for key, value in node.items():
            yield from _targets(value, f"{place}.{key}" if place else str(key))


def _section(title: str, kind: Any) -> Section:
    meanings = arguments(inspect.getdoc(kind) or "")
    keys = [
        Key(
            name=name,
            type=_spell(parameter.annotation),
            default=_default(parameter, kind),
            meaning=meanings.get(name, ""),
        )
        for name, parameter in inspect.signature(kind).parameters.items()
    ]
    return Section(title=title, summary=(inspect.getdoc(kind) or "").partition("\n")[0], keys=keys)


def arguments(docstring: str) -> Mapping[str, str]:
    """Return the meaning of a docstring's arguments by name; one line may explain several."""
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in "".join(_HEADING.split(docstring)[1:]).splitlines():
        if not line.strip():
            break
        match = _ARGUMENT.match(line)
        if match:
            names = match["names"].split(", ")
        for name in names:
            meanings[name] = f"{meanings.get(name, '')} {match['meaning'] if match else line.strip()}".strip()
    return meanings


def _default(parameter: inspect.Parameter, kind: Any) -> str:
    if parameter.default is inspect.Parameter.empty or parameter.default == "???":
        return "required"
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    made = {field.name: field.default_factory for field in fields}
    factory = made.get(parameter.name, dataclasses.MISSING)
    if factory is dataclasses.MISSING:
        return "null" if parameter.default is None else str(parameter.default)
    return "its own defaults" if dataclasses.is_dataclass(factory) else str(factory())


def _spell(annotation: object) -> str:
    """Return a type as it is written, without the modules of its parts."""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", str(annotation))
