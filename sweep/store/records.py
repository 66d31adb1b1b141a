"""One event as one line of JSON, and back, exactly.

Lines are standard JSON in ASCII: NaN and the infinities are the strings "nan", "inf" and "-inf", and a
string that would read as one of them gets a backslash in front. Fields at their default are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn, get_args

import msgspec

from sweep.errors import StoreError, did_you_mean, shortened
from sweep.events import Event, Facts, Record, Role, SessionStarted, Status

FORMAT = 1
"""Version of the log's format, written with every session; a log of a higher one is refused."""

_NON_FINITE = frozenset({"nan", "inf", "-inf"})
_DECODER = msgspec.json.Decoder(Event)
_CLASSES: dict[str, type[Record]] = {str(cls.__struct_config__.tag): cls for cls in get_args(Event)}


class NotJson(StoreError):
    """The line is not JSON at all: damaged, or the end of a record is missing."""


def encode(event: Event) -> bytes:
    """Return the line of an event, with its line feed. Raises `StoreError` for what could not be read back."""
    name = str(event.__struct_config__.tag)
    record: dict[str, object] = {"event": name}
    if isinstance(event, SessionStarted):
        record["format"] = FORMAT
    try:
        record.update(_fields(event))
    except TypeError as error:
        raise StoreError(f"{name}: {error}") from error
    line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    decode(line)
    return line


def decode(line: bytes) -> Event:
    """Return the event of a line. Raises `NotJson` for a damaged one, `StoreError` for a foreign one."""
    if b'nan"' not in line and b'inf"' not in line and line.isascii():
        with suppress(ValueError, RecursionError):  # half a surrogate pair, a number beyond floats, or a mistake
            event: Event = _DECODER.decode(line)
            if not isinstance(event, SessionStarted):  # of which the format comes first
                return event
    try:
        record = natural(_JSON.decode(line.decode("ascii")))
    except (ValueError, RecursionError) as error:
        raise NotJson(f"damaged record ({error})") from error
    if not isinstance(record, dict):
        raise StoreError(f"expected a record, found {type(record).__name__}")
    name = record.get("event")
    if not isinstance(name, str) or name not in _CLASSES:
        raise StoreError(f"unknown event {name!r}; {did_you_mean(str(name), _CLASSES)}")
    if name == "session_started":
        _check_format(record.pop("format", None), record.get("version"))
    try:
        return msgspec.convert(record, _CLASSES[name])  # type: ignore[return-value]  # one of the events
    except msgspec.ValidationError as error:
        raise StoreError(f"{name}: {_in_words(error)}") from error


def plain(value: object) -> object:
    """Return ``value`` in standard JSON's own types. Raises `TypeError` for what JSON would lose or bend."""
    if type(value) is float:
        return value if math.isfinite(value) else repr(value)
    if type(value) is str:
        return "\\" + value if _looks_non_finite(value) else value
    if type(value) is int or type(value) is bool or value is None:
        return value
    if type(value) is list:
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_text(name): plain(item) for name, item in value.items()}
    _refuse(value, "bool, int, float, str, list, mapping or None")


def natural(value: object) -> object:
    """Return the inverse of `plain`."""
    if isinstance(value, str):
        if value in _NON_FINITE:
            return float(value)
        return value[1:] if value.startswith("\\") and _looks_non_finite(value) else value
    if isinstance(value, dict):
        return {name: natural(item) for name, item in value.items()}
    if isinstance(value, list):
        return [natural(item) for item in value]
    return value


def _looks_non_finite(text: str) -> bool:
    return text.lstrip("\\") in _NON_FINITE


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not standard JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


def _check_format(number: object, version: object) -> None:
    if type(number) is not int:
        raise StoreError(f"session_started: format is {number!r}, expected a number up to {FORMAT}")
    if number > FORMAT:
        raise StoreError(
            f"written by sweep {version} in log format {number}, expected at most {FORMAT}; "
            "use that version of sweep or a newer one"
        )


def _in_words(error: msgspec.ValidationError) -> str:
    """Put "Expected `float`, got `str` - at `$.time`" in our order: the field, what it is, what was expected."""
    fault, _, place = str(error).replace("`", "").partition(" - at $.")
    fault = re.sub(r"^Expected (.+), got (.+)$", r"is of type \2, expected \1", fault)
    return f"{place}: {fault}" if place else fault


def _refuse(value: object, expected: str) -> NoReturn:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    hint = "; convert it with .item()" if kind.__module__ == "numpy" else ""
    raise TypeError(f"{shortened(repr(value), 80)} is of type {name}, expected {expected}{hint}")


def _text(value: object) -> str:
    return value if type(value) is str else _refuse(value, "str")


def _fields(source: Record | Facts) -> dict[str, object]:
    """Return the fields that are not at their default, for JSON."""
    record: dict[str, object] = {}
    for name, default in _DEFAULTS[type(source)].items():
        value = getattr(source, name)
        if value == default:
            continue
        try:
            if isinstance(value, Facts):
                record[name] = _fields(value)
            else:
                record[name] = value.value if isinstance(value, Status | Role) else plain(value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
    return record


def _defaults(cls: type[msgspec.Struct]) -> dict[str, object]:
    """Return what each field is where nothing is said; a mark that equals nothing for a required one."""
    found = msgspec.structs.fields(cls)
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in found
    }


_STRUCTS: tuple[type[msgspec.Struct], ...] = (*_CLASSES.values(), Facts)
_DEFAULTS = {cls: _defaults(cls) for cls in _STRUCTS}
