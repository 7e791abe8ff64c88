"""A user's mistake becomes one line that names the key and the way out; a programming error keeps its traceback."""

import difflib
import errno
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from automodel_data.errors import DataError

log = logging.getLogger(__name__)

EXIT_CODE = 2
_LISTED = 20  # options
_OVERLAYS = ("recipe", "experiment", "debug")
"""Groups of conf/ whose files set keys of the whole config."""
_RANK_0_TELLS_WITHIN_SECONDS = 5


class ConfigError(ValueError):
    """The configuration cannot make a run; the message names the key, the value, the rule and the way out."""


def require_at_least(lowest: float, **values: float | None) -> None:
    """Refuse a value below ``lowest``; None is taken for one that was not given.

    Raises:
        ConfigError: Naming the key; ``nodes.build`` puts the keys above it in front.
    """
    for key, value in values.items():
        if value is not None and value < lowest:
            raise ConfigError(f"{key} ({value}) must be at least {lowest}")


class SweepError(Exception):
    """Jobs of a sweep failed; why has been told as they did."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """End the process with one line on standard error when the user made a mistake or stopped it.

    Everything else passes.
    """
    try:
        yield
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr, flush=True)  # noqa: T201
        raise SystemExit(128 + signal.SIGINT) from None
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        log.debug("the mistake was found here", exc_info=error)
        leave(line, everywhere_alike=not isinstance(error, DataError | OSError))


def leave(line: str, everywhere_alike: bool) -> None:
    """Print ``line`` and exit; of a mistake that every rank makes only rank 0 speaks, the others wait to be ended."""
    rank = int(os.environ.get("RANK", "0"))
    if rank and everywhere_alike:
        time.sleep(_RANK_0_TELLS_WITHIN_SECONDS)
    else:
        print(f"error{f' (rank {rank})' if rank else ''}: {line}", file=sys.stderr, flush=True)  # noqa: T201
    raise SystemExit(EXIT_CODE)


def explain(error: BaseException) -> str | None:  # noqa: C901, PLR0911 - a table
    """Return the line for a user's mistake, None for an error of the program."""
    match error:
        case ConfigError() | DataError() | SweepError():
            return str(error)
        case yaml.MarkedYAMLError(problem=problem, problem_mark=yaml.Mark() as mark):
            return f"{mark.name}, line {mark.line + 1}, is no YAML: {problem}"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = error.filename or "to the run directory"
            return f"cannot write {where}: {error.strerror}; make room and go on with resume=auto"
        case InstantiationException():
            return _explain_instantiation(error)
        case MissingConfigException(missing_cfg_file=str(wanted)) if wanted.startswith("resume/"):
            path = wanted.removeprefix("resume/")
            return f"resume={path}: no such option; to go on from that checkpoint set resume.path={path}"
        case MissingConfigException(missing_cfg_file=str(wanted), options=[*options]):
            group, _, option = wanted.rpartition("/")
            return f"{group or 'config'}={option}: no such option.{suggestion(option, options)}"
        case ValueError() if str(error).startswith("Config group override must be"):  # by Hydra, of e.g. model=null
            return f"{_first_line(error)}: write group=option, as packing=tiny; null or a number names no option"
        case OverrideParseException():
            return f"cannot read the override {error.override!r}: {_first_line(error)}; write key=value"
        case MissingMandatoryValue():
            return f"{error.full_key} has no value; give it one: {error.full_key}=..."
        case OmegaConfBaseException():
            return _explain_value(error)
        case HydraException():
            inner = error.__cause__ or error.__context__
            return _explain_value(inner) if isinstance(inner, OmegaConfBaseException) else _first_line(error)
    return None


def suggestion(name: str, options: Iterable[Any]) -> str:
    """Return `` Did you mean ...?``, or all ``options`` where none is near and they are few."""
    options = sorted({str(option) for option in options if not str(option).startswith("_")})
    near = difflib.get_close_matches(name, options, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" There are: {', '.join(options)}." if 0 < len(options) <= _LISTED else ""


def advice(path: str, siblings: Iterable[Any], root: object) -> str:
    """Return a suggestion for the unknown key ``path``: a sibling, or a key of the same node or the whole ``root``."""
    parent, _, name = path.rpartition(".")
    siblings = [str(sibling) for sibling in siblings]
    if namesake := _namesake(path, root):
        return f" Did you mean {namesake!r}?"
    near = difflib.get_close_matches(name, siblings, n=1)
    if near:
        return f" Did you mean {path[: -len(name)] + near[0]!r}?"
    node = parent.partition(".")[0]
    elsewhere = {
        one.rpartition(".")[2]: one for one in _paths(root) if one != path and (not node or one.startswith(f"{node}."))
    }
    near = difflib.get_close_matches(name, elsewhere, n=1)
    return f" Did you mean {elsewhere[near[0]]!r}?" if near else suggestion(name, siblings)


def _namesake(path: str, root: object) -> str | None:
    """Return the key of the very name of ``path`` in another node of the root, if its own node has none."""
    node, name = path.partition(".")[0], path.rpartition(".")[2]
    found = [one for one in _paths(root) if one != path and one.rpartition(".")[2] == name]
    inside = any(one.startswith(f"{node}.") for one in found)
    return next((one for one in found if not inside and not one.startswith("validation.")), None)


def _explain_instantiation(error: InstantiationException) -> str | None:
    """Return what Hydra itself refuses, e.g. a target that could run any code; what a target raises is an error."""
    return None if error.__cause__ is not None else str(error).replace("\n", " ")


def _explain_value(error: OmegaConfBaseException) -> str:
    key = str(error.full_key or error.key)
    if not isinstance(error, AttributeError | KeyError):
        return f"{key}: {_first_line(error)}"
    if not isinstance(error.parent_node, DictConfig):
        return f"{key}: no such key."
    if key in _OVERLAYS:
        return f"{key}=...: the first line of that file must be '# @package _global_', or its keys go below {key!r}"
    root = OmegaConf.to_container(error.parent_node._get_root())
    siblings = [*error.parent_node.keys(), *(() if "." in key else _OVERLAYS)]
    return f"{key}: no such key.{advice(key, siblings, root)}"


def _paths(node: object, prefix: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _paths(value, f"{prefix}{key}.")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
