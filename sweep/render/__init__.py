"""The console that prints results for people, and JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TextIO

from msgspec import Struct
from rich.console import Console

from sweep.events import Status, convert_to_json_types

STYLES: Mapping[str, str] = {
    **{Status.COMPLETED: "green", "finished": "green", Status.RUNNING: "cyan"},
    **dict.fromkeys((Status.INFEASIBLE, Status.DIVERGED, Status.OOM), "yellow"),
    **{Status.FAILED: "red", "damaged": "red"},
}


class _Console(Console):
    """A console that lets BrokenPipeError reach its caller; Rich's own console would exit the process."""

    def on_broken_pipe(self) -> None:
        """Re-raise the error that is being handled."""
        raise


def console(file: TextIO | None = None, *, soft_wrap: bool = False, draws: bool = True) -> Console:
    """Return a console that prints texts literally, without markup or emoji, and in colour if the terminal has it.

    It writes to ``file``, by default standard output. Unless ``soft_wrap``, long lines are broken at the terminal's
    width. With ``draws=False`` it writes plain lines, as to a file, whatever the terminal supports.
    """
    terminal = None if draws else False
    return _Console(
        file=file,
        soft_wrap=soft_wrap,
        markup=False,
        emoji=False,
        highlight=False,
        force_terminal=terminal,
    )


def has_blocks(encoding: str) -> bool:
    """Return whether an encoding, given by its name, has the block characters with which bars are drawn.

    Return False for an encoding that Python does not know.
    """
    try:
        "▁█".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def document(*values: object) -> str:
    """Format records, enumerations, paths and plain values as indented JSON; NaN and infinities become texts.

    Several values become one object with the fields of all records and mappings among them; a later field replaces an
    earlier one of the same name, and other values are left out. There must be at least one value. Raises TypeError for
    a value that JSON does not have.
    """
    plain = [as_plain(value) for value in values]
    content = plain[0]
    if len(plain) > 1:
        merged: dict[str, object] = {}
        for one in plain:
            if isinstance(one, dict):
                merged |= one
        content = merged
    return json.dumps(convert_to_json_types(content), indent=2)


def as_plain(value: object) -> object:
    """Convert records, enumerations and paths in ``value`` to types of JSON, at any depth.

    Records are dataclasses, and those of msgspec, whose fields have their encoded names. Keys of mappings become texts,
    tuples become lists, and all other values stay as they are, even if JSON does not have them;
    `convert_to_json_types` refuses these.
    """
    if isinstance(value, Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {encoded: as_plain(getattr(value, name)) for encoded, name in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for field in dataclasses.fields(value):
            plain[field.name] = as_plain(getattr(value, field.name))
        return plain
    if isinstance(value, Mapping):
        return {str(as_plain(name)): as_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
