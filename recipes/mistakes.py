"""A user's mistake becomes one line that names the key and the way out; a programming error keeps its traceback."""

import difflib
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import Container, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from automodel_data.errors import DataError

log = logging.getLogger(__name__)

EXIT_CODE = 2
_RANK_0_TELLS_WITHIN_SECONDS = 5


class ConfigError(ValueError):
    """The configuration cannot make a run; the message names the key, the value, the rule and the way out."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """End the process with one line on standard error when the user made a mistake; pass everything else on."""
    try:
        yield
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        log.debug("the mistake was found here", exc_info=error)
        leave(line, everywhere_alike=not isinstance(error, DataError))


def leave(line: str, everywhere_alike: bool) -> None:
    """Print ``line`` and exit; of a mistake that every rank makes only rank 0 speaks, the others wait to be ended."""
    rank = int(os.environ.get("RANK", "0"))
    if rank and everywhere_alike:
        time.sleep(_RANK_0_TELLS_WITHIN_SECONDS)
    else:
        print(f"error{f' (rank {rank})' if rank else ''}: {line}", file=sys.stderr, flush=True)  # noqa: T201
    raise SystemExit(EXIT_CODE)


def explain(error: BaseException) -> str | None:  # noqa: PLR0911 - a table
    """Return the line for a user's mistake, None for an error of the program."""
    match error:
        case ConfigError() | DataError():
            return str(error)
        case InstantiationException():
            return _explain_instantiation(error)
        case MissingConfigException(missing_cfg_file=str(wanted), options=[*options]):
            group, _, option = wanted.rpartition("/")
            return f"{group or 'config'}={option}: no such option.{suggestion(option, options)}"
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
    """Return `` Did you mean ...?``, or all ``options`` where none is near."""
    options = sorted({str(option) for option in options})
    near = difflib.get_close_matches(name, options, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" There are: {', '.join(options)}." if options else ""


def _explain_instantiation(error: InstantiationException) -> str | None:
    match error.__cause__:
        case ConfigError() | DataError() | ValueError() as cause:
            where = str(error).rpartition("full_key: ")[2] if "full_key: " in str(error) else "config"
            return f"{where}: {cause}"
        case None:
            return str(error).replace("\n", " ")
    return None


def _explain_value(error: OmegaConfBaseException) -> str:
    key = str(error.full_key or error.key)
    if not isinstance(error, AttributeError | KeyError):
        return f"{key}: {_first_line(error)}"
    siblings = error.parent_node.keys() if isinstance(error.parent_node, DictConfig) else ()
    name = key.rpartition(".")[2]
    near = difflib.get_close_matches(name, [str(sibling) for sibling in siblings], n=1)
    if near:
        return f"{key}: no such key. Did you mean {key[: -len(name)] + near[0]!r}?"
    root = error.parent_node._get_root() if isinstance(error.parent_node, Container) else OmegaConf.create()
    return f"{key}: no such key.{_suggest_elsewhere(name, root) or suggestion(name, siblings)}"


def _suggest_elsewhere(name: str, root: Container) -> str:
    paths = {path.rpartition(".")[2]: path for path in _paths(OmegaConf.to_container(root))}
    near = difflib.get_close_matches(name, paths, n=1)
    return f" Did you mean {paths[near[0]]!r}?" if near else ""


def _paths(node: object, prefix: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _paths(value, f"{prefix}{key}.")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
