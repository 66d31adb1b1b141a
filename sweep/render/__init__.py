"""Format numbers, times and settings for people and results as JSON for programs; make the console that prints them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TextIO

from msgspec import Struct
from rich.console import Console

from sweep.events import Params, Status, Value, plain


def figure(value: float) -> str:
    """Four significant digits, without an exponent for numbers of everyday size."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e4 and abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}"


def score(value: float) -> str:
    """Four significant digits with their zeros, so that a column of results can be compared at a glance."""
    return f"{value:#.4g}" if math.isfinite(value) and 1e-4 <= abs(value) < 1e4 else figure(value)


def money(amount: float) -> str:
    """Return an amount to the hundredth, and what is below one with two digits."""
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.2g}"


def setting(value: Value) -> str:
    """Return a hyperparameter's value in a table or a line."""
    if type(value) is float:
        return figure(value)
    return value if isinstance(value, str) else json.dumps(value)


def settings(params: Params, names: Iterable[str]) -> str:
    """Return ``learning_rate=0.001 augmentation=low``: those of ``names`` that the trial has."""
    return " ".join(f"{name}={setting(params[name])}" for name in names if name in params)


def duration(seconds: float) -> str:
    """Return ``1.9 s``, ``3 min 20 s``, ``2 h 05 min``, ``3 d 4 h``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    return f"{hours // 24} d {hours % 24} h"


def moment(time: float) -> str:
    """Return a time in seconds since 1970, to the minute, in UTC as everywhere in the results."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


STYLES: Mapping[str, str] = {
    **{Status.COMPLETED: "green", "finished": "green", Status.RUNNING: "cyan"},
    **dict.fromkeys((Status.INFEASIBLE, Status.DIVERGED, Status.OOM), "yellow"),
    **{Status.FAILED: "red", "damaged": "red"},
}


def console(file: TextIO | None = None, *, soft_wrap: bool = False, draws: bool = True) -> Console:
    """Return a console that takes texts as they are: no markup, no emoji, colour only where the terminal has it.

    ``draws=False``: it writes lines alone, as into a file, whatever the terminal can do.
    """
    terminal = None if draws else False
    return Console(file=file, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False, force_terminal=terminal)


def document(value: object) -> str:
    """Return indented JSON of records, enumerations, paths and plain values; NaN and infinities are texts."""
    return json.dumps(plain(_simple(value)), indent=2)


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
