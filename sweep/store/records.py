"""One event as one line of JSON, and back, exactly.

Lines are standard JSON in ASCII: NaN and the infinities are the strings "nan", "inf" and "-inf", and a
string that would read as one of them gets a backslash in front. Fields at their default are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import NoReturn, TypeAlias

from sweep.errors import StoreError, did_you_mean, shortened
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    ModelTested,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)

FORMAT = 1
"""Version of the log's format, written with every session; a log of a higher one is refused."""

_Read: TypeAlias = Callable[[object], object]
_NON_FINITE = frozenset({"nan", "inf", "-inf"})


class NotJson(StoreError):
    """The line is not JSON at all: damaged, or the end of a record is missing."""


def encode(event: Event) -> bytes:
    """The line of an event, with its line feed. Raises `StoreError` for what could not be read back."""
    cls = type(event)
    record: dict[str, object] = {"event": _NAMES[cls]}
    if cls is SessionStarted:
        record["format"] = FORMAT
    try:
        record.update(_as_record(event))
    except TypeError as error:
        raise StoreError(f"{_NAMES[cls]}: {error}") from error
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(line: bytes) -> Event:
    """The event of a line. Raises `NotJson` for a damaged one, `StoreError` for a foreign one."""
    try:
        record = natural(_JSON.decode(line.decode("ascii")))
    except (ValueError, RecursionError) as error:
        raise NotJson(f"damaged record ({error})") from error
    if not isinstance(record, dict):
        raise StoreError(f"expected a record, found {type(record).__name__}")
    name = record.pop("event", None)
    if name == "session_started":
        _check_format(record.pop("format", None), record.get("version"))
    cls = _CLASSES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise StoreError(f"unknown event {name!r}; {did_you_mean(str(name), _CLASSES)}")
    try:
        return _from_record(cls, record)  # type: ignore[return-value]  # an event of that class
    except TypeError as error:
        raise StoreError(f"{name}: {error}") from error


def plain(value: object) -> object:
    """``value`` in standard JSON's own types. Raises `TypeError` for what JSON would lose or bend."""
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
    """The inverse of `plain`."""
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


# Fields. A reader checks a value in both directions, so that nothing is written which is refused when read.


def _refuse(value: object, expected: str) -> NoReturn:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    hint = "; convert it with .item()" if kind.__module__ == "numpy" else ""
    raise TypeError(f"{shortened(repr(value), 80)} is of type {name}, expected {expected}{hint}")


def _number(value: object) -> float:
    if type(value) is float:
        return value
    return float(value) if type(value) is int else _refuse(value, "float")


def _integer(value: object) -> int:
    return value if type(value) is int else _refuse(value, "int")


def _text(value: object) -> str:
    return value if type(value) is str else _refuse(value, "str")


def _boolean(value: object) -> bool:
    return value if type(value) is bool else _refuse(value, "bool")


def _status(value: object) -> str:
    try:
        return Status(value)  # type: ignore[arg-type]  # raises ValueError for no text
    except ValueError:
        _refuse(value, " or ".join(Status))


def _role(value: object) -> str:
    try:
        return Role(value)  # type: ignore[arg-type]  # raises ValueError for no text
    except ValueError:
        _refuse(value, " or ".join(Role))


def _numbers(value: object) -> dict[str, float]:
    return {_text(name): _number(number) for name, number in _mapping(value).items()}


def _texts(value: object) -> dict[str, str]:
    return {_text(name): _text(one) for name, one in _mapping(value).items()}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else _refuse(value, "mapping")


def _facts(value: object) -> Facts:
    if isinstance(value, Facts):
        return value
    return _from_record(Facts, dict(_mapping(value)))  # type: ignore[return-value]  # Facts


def _optional(read: _Read) -> _Read:
    return lambda value: None if value is None else read(value)


_READERS: dict[str, _Read] = {  # by the annotation, as it stands in the source of the events
    "int": _integer,
    "float": _number,
    "str": _text,
    "bool": _boolean,
    "int | None": _optional(_integer),
    "float | None": _optional(_number),
    "str | None": _optional(_text),
    "Mapping[str, float]": _numbers,
    "Mapping[str, str]": _texts,
    "Params": _mapping,
    "Status": _status,
    "Role": _role,
    "Facts": _facts,
}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    read: _Read
    default: object  # MISSING for a required one


def _fields(cls: type) -> dict[str, _Field]:
    return {
        item.name: _Field(
            item.name,
            _READERS[str(item.type)],
            item.default if item.default_factory is MISSING else item.default_factory(),
        )
        for item in fields(cls)
    }


_CLASSES: dict[str, type] = {
    "session_started": SessionStarted,
    "session_ended": SessionEnded,
    "trial_started": TrialStarted,
    "epoch_reported": EpochReported,
    "trial_ended": TrialEnded,
    "model_tested": ModelTested,
}
_NAMES = {cls: name for name, cls in _CLASSES.items()}
_FIELDS = {cls: _fields(cls) for cls in (*_CLASSES.values(), Facts)}


def _as_record(source: object) -> dict[str, object]:
    record: dict[str, object] = {}
    for field in _FIELDS[type(source)].values():
        value = getattr(source, field.name)
        if value == field.default:
            continue
        try:
            value = field.read(value)
            if isinstance(value, Facts):
                record[field.name] = _as_record(value)
            else:
                record[field.name] = value.value if isinstance(value, Status | Role) else plain(value)
        except TypeError as error:
            raise TypeError(f"{field.name}: {error}") from error
    return record


def _from_record(cls: type, record: dict[str, object]) -> object:
    known = _FIELDS[cls]
    values = {}
    for name, value in record.items():
        if name not in known:
            raise TypeError(f"unknown field {name!r}; {did_you_mean(name, known)}")
        try:
            values[name] = known[name].read(value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
    return cls(**values)  # a missing field raises TypeError and is named by it
