"""The findings of the doctor and their severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding; an error means that some sweeps cannot run on this machine."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist: what was checked, the result, and what to do about it."""

    check: str
    level: Severity
    found: str
    todo: str = ""
