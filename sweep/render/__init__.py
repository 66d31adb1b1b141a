"""Make the console that prints results for people, and results as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TextIO

from msgspec import Struct
from rich.console import Console

from sweep.events import Status, plain

STYLES: Mapping[str, str] = {
    **{Status.COMPLETED: "green", "finished": "green", Status.RUNNING: "cyan"},
    **dict.fromkeys((Status.INFEASIBLE, Status.DIVERGED, Status.OOM), "yellow"),
    **{Status.FAILED: "red", "damaged": "red"},
}


class _Console(Console):
    """A console of which whoever prints hears that nobody reads on; by itself it ends the process."""

    def on_broken_pipe(self) -> None:
        """Raise the error that is being handled."""
        raise


def console(file: TextIO | None = None, *, soft_wrap: bool = False, draws: bool = True) -> Console:
    """Return a console that takes texts as they are: no markup, no emoji, colour only where the terminal has it.

    ``draws=False``: it writes lines alone, as into a file, whatever the terminal can do.
    """
    terminal = None if draws else False
    return _Console(file=file, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False, force_terminal=terminal)


def has_blocks(encoding: str) -> bool:
    """Return whether an encoding has the characters that bars are drawn with."""
    try:
        "▁█".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def document(*values: object) -> str:
    """Return indented JSON of records, enumerations, paths and plain values; NaN and infinities are texts.

    Of several records or mappings it is one of all their fields.
    """
    told = [_simple(value) for value in values]
    merged = {name: item for one in told if isinstance(one, dict) for name, item in one.items()}
    return json.dumps(plain(merged if len(told) > 1 else told[0]), indent=2)


def _simple(value: object) -> object:
    """Return ``value`` in the types of JSON; what is none of its types stays, for `plain` to refuse."""
    if isinstance(value, Struct):
        return {name: _simple(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _simple(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(_simple(name)): _simple(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_simple(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
