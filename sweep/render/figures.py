"""Numbers, times and settings as people read them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime

from sweep.events import Params, Value


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


def setting(value: Value) -> str:
    """A hyperparameter's value in a table or a line."""
    if type(value) is float:
        return figure(value)
    return value if isinstance(value, str) else json.dumps(value)


def settings(params: Params, names: Iterable[str]) -> str:
    """``learning_rate=0.001 augmentation=low``: those of ``names`` that the trial has."""
    return " ".join(f"{name}={setting(params[name])}" for name in names if name in params)


def duration(seconds: float) -> str:
    """``1.9 s``, ``3 min 20 s``, ``2 h 05 min``, ``3 d 4 h``."""
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
    """A time in seconds since 1970, to the minute, in UTC as everywhere in the results."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")
