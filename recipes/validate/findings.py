"""What was found: problems, which fail the validation, and warnings, which do not."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    PROBLEM = "problem"
    WARNING = "warning"


class Check(StrEnum):
    """What was looked at."""

    OPEN = "open"
    FILES = "files"
    COLUMNS = "columns"
    ROW_GROUPS = "row groups"
    DIALECT = "dialect"
    ROWS = "rows"
    BUDGET = "budget"
    SHARES = "shares"
    PACKS = "packs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing found in ``source``, which is named ``train/GROUP/DATASET`` or shorter."""

    severity: Severity
    check: Check
    source: str
    message: str


def problem(check: Check, source: str, message: str) -> Finding:
    """Return a finding that fails the validation."""
    return Finding(severity=Severity.PROBLEM, check=check, source=source, message=message)


def warning(check: Check, source: str, message: str) -> Finding:
    """Return a finding that does not."""
    return Finding(severity=Severity.WARNING, check=check, source=source, message=message)
