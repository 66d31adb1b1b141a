"""What a check found: the words of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters; an error makes the machine unfit for some sweep."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist: what was looked at, what was found, and what to do about it."""

    check: str
    level: Level
    found: str
    todo: str = ""
