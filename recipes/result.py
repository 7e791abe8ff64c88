"""How a run ended, as a small file in its directory: what a sweep compares, and the mark that its job is finished."""

import dataclasses
import json
from pathlib import Path

FILE_NAME = "result.json"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The step that a run reached, and the last value of its objective; None where that was never measured."""

    step: int
    objective: str | None
    value: float | None


def write(result: Result, directory: Path) -> None:
    """Leave ``result`` in a run's ``directory``."""
    (directory / FILE_NAME).write_text(json.dumps(dataclasses.asdict(result)) + "\n")


def read(directory: Path) -> Result | None:
    """Return the result of the run in ``directory``; None while there is none."""
    path = directory / FILE_NAME
    return Result(**json.loads(path.read_text())) if path.exists() else None
