"""How a run ended, as a small file in its directory: what a sweep compares, and the mark that its job is finished."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_NAME = "result.json"
OF_NO_CONSEQUENCE = ("resume", "output_dir", "logger", "callbacks", "checkpoint", "launch")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a run came to.

    Args:
        step: The step that it reached.
        objective: The metric that it is judged by.
        value: The last value of that; None where it was never measured.
        settings: The fingerprint of its config.
    """

    step: int
    objective: str | None
    value: float | None
    settings: str


def write(result: Result, directory: Path) -> None:
    """Leave ``result`` in a run's ``directory``."""
    (directory / FILE_NAME).write_text(json.dumps(dataclasses.asdict(result)) + "\n")


def read(directory: Path) -> Result | None:
    """Return the result of the run in ``directory``; None while there is none."""
    path = directory / FILE_NAME
    return Result(**json.loads(path.read_text())) if path.exists() else None


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return a short text that tells configs apart, by all that has consequences for a step."""
    kept = {key: value for key, value in config.items() if key not in OF_NO_CONSEQUENCE}
    kept["train"] = {key: value for key, value in config["train"].items() if key != "max_steps"}
    return hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=8).hexdigest()
