"""The events of a sweep: the vocabulary of the log, and all that other parts ever hear.

The log is a list of these. Searchers and schedulers observe them, the tables and the live view are
made of them, and a sweep is resumed by observing them again. This module knows none of its users.

One event is one line of JSON, and back, exactly. Lines are standard JSON in ASCII: NaN and the infinities are the
strings "nan", "inf" and "-inf", and a string that would read as one of them gets a backslash in front. Fields at their
default are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeGuard, get_args

import msgspec
from msgspec import Struct, field

from sweep.errors import StoreError
from sweep.text import did_you_mean, shortened

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
"""What a hyperparameter can be: a YAML value."""

if TYPE_CHECKING:
    Params: TypeAlias = Mapping[str, Value]
    """A trial's hyperparameters by flat, dotted name, in the order of the sweep file."""
else:
    Params = Mapping[str, Any]  # no decoder follows a type that contains itself


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def as_floats(values: Mapping[str, float]) -> dict[str, float]:
    """Return numbers of whatever type as floats; raise ValueError that names the one which is too large."""
    floats = {}
    for name, value in values.items():
        try:
            floats[name] = float(value)
        except OverflowError as error:
            raise ValueError(f"{name} is too large for a float, expected a number up to 1.8e308") from error
    return floats


def trial_epochs(params: Params, epochs: int) -> int:
    """Return the epochs that a trial trains: its parameter of that name, in place of the sweep's ``epochs``."""
    given = params.get("epochs", epochs)
    if not isinstance(given, int):
        raise TypeError(f"epochs must be a whole number, got {given!r}")
    return given


NULL_PARAMS = "null_params"
"""The column of tables with the parameters that are null: in a parameter's own column, null also means absent."""


def names_of_nulls(params: Params) -> str | None:
    """Return the parameters whose value is null, as the column `NULL_PARAMS` has them; None where there are none."""
    names = [name for name, value in params.items() if value is None]
    return json.dumps(names, ensure_ascii=False) if names else None


class Status(StrEnum):
    """State of a trial: ``running``, then exactly one of the others."""

    RUNNING = "running"
    COMPLETED = "completed"
    INFEASIBLE = "infeasible"  # completed, and its metrics do not meet the constraints
    PRUNED = "pruned"  # stopped early, by the scheduler or by `stop --trial`
    DIVERGED = "diverged"  # loss or objective became NaN or infinite
    OOM = "oom"  # out of memory, also after smaller micro-batches
    FAILED = "failed"  # an exception in the trainable
    INTERRUPTED = "interrupted"  # stopped with the sweep: resumable


UNFINISHED = frozenset({Status.RUNNING, Status.INTERRUPTED})
"""Trials that may report another epoch."""
WHOLE = frozenset({Status.COMPLETED, Status.INFEASIBLE})
"""Trials that have trained all that they were to."""
JUDGED = WHOLE | {Status.PRUNED}
"""Trials that ended with metrics to compare them by."""
ERRORED = frozenset({Status.FAILED, Status.OOM})
"""Trials that ended with an error."""
LOST = ERRORED | {Status.DIVERGED}
"""Trials that came to nothing."""


PAUSES = "pauses: "
"""Begins the reason of each trial that is interrupted because its rule lets it pause."""


class Role(StrEnum):
    """What a trial is for."""

    SEARCH = "search"  # the searcher has chosen it
    BASELINE = "baseline"  # the author's own configuration, beside the search
    CONFIRM = "confirm"  # a fresh seed for a configuration that could still be the best, after the search


def _tag(name: str) -> str:
    return re.sub(r"\B[A-Z]", r"_\g<0>", name).lower()


class Record(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag=_tag):
    """What the log knows by the name of its class, as "trial_started". `msgspec.structs.replace` changes a copy."""


class TrialStarted(Record, frozen=True, kw_only=True):
    """A trial was chosen; from now on it counts."""

    trial: int
    trial_id: str
    params: Params
    seed: int
    repeat: int
    time: float  # seconds since 1970, UTC, as everywhere here
    driven_s: float | None = None  # seconds of this session by the driver's own clock, which never jumps
    fold: int | None = None  # of a cross-validation, from 0
    role: Role = Role.SEARCH
    parent: int | None = None  # the trial that it is a copy of, with other parameters
    parent_epoch: int | None = None  # up to which it has that one's epochs
    index: int | None = None  # its number in the search, where that is not ``trial``; None for other roles


class EpochReported(Record, frozen=True, kw_only=True):
    """One epoch of one trial, numbered from 1."""

    trial: int
    epoch: int
    metrics: Mapping[str, float]  # may hold NaN and infinities: the truth is logged
    time: float
    time_s: float  # what this epoch took
    learning_rate: float | None = None  # as applied in the epoch's last update
    examples_per_s: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)  # further columns, named with units
    memo: str | None = None  # "<sweep>/<trial>" that trained it: taken over, not trained again
    driven_s: float | None = None  # as of `TrialStarted`


class Inputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a trial has read beside its code and its data, as `sweep.read_recorder` has seen it.

    Paths that begin with ``./`` are relative to the folder in which trials begin, or to one in which modules are found.
    """

    files: Mapping[str, str] = field(default_factory=dict)  # fingerprint by path
    folders: Mapping[str, str] = field(default_factory=dict)  # digest of the names in it, by path
    environment: Mapping[str, str] = field(default_factory=dict)  # digest of the value, by name
    unknown: tuple[str, ...] = ()  # why not all that it has read can be compared later


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how a trial ran; ``None`` where nobody knows (a worker that vanished)."""

    started: float | None = None  # seconds since 1970: when training code first ran for it
    lived_s: float | None = None  # since then, by its worker's own clock; after an interruption, since it went on
    node: str | None = None
    devices: str | None = None  # "cpu:0", "gpu:0,gpu:1"; of several workers those of each: "cpu:0;cpu:0"
    strategy: str | None = None
    num_replicas: int | None = None
    precision: str | None = None
    numerics: Mapping[str, str] = field(default_factory=dict)  # how its numbers came about: tf32, cudnn ...
    train_s: float | None = None
    overhead_s: Mapping[str, float] = field(default_factory=dict)  # start, build, compile, data ...
    checkpoint: str | None = None  # relative to the results folder
    accumulate: int | None = None  # micro-batches that each batch was split into, after it did not fit
    data: str | None = None  # fingerprint of the data, where the trainable takes one
    data_reads: str | None = None  # what of its parameters these follow from, as ``structure``; None: not known
    structure: str | None = None  # what was read in building its program, by `hyperparameters.to_json`
    structures: int | None = None  # how many of them its worker holds
    reproducible: bool = True  # another trial with the same parameters and seed would give the same numbers
    extends: bool = False  # its epochs are those that a trial of more epochs would begin with
    inputs: Inputs | None = None  # what it has read beside its code and its data; None: not recorded
    other_code: tuple[str, ...] = ()  # modules that its worker imported in another version than the sweep began with


class TrialEnded(Record, frozen=True, kw_only=True):
    """A trial reached its final state, or was interrupted with its sweep."""

    trial: int
    status: Status
    reason: str  # one line, "" for a completed trial
    time: float
    error: str | None = None  # traceback of a failed trial
    memo: str | None = None  # "<sweep>/<trial>" that answered it: none of it was trained again
    at_target: bool = False  # it is complete with fewer epochs, for it reached the sweep's target
    regardless: bool = False  # it failed before it had read any parameter that differs between trials
    incompatible: bool = False  # it failed for what the file asks of this code, whatever the parameters' values
    asked: bool = False  # somebody asked that it be stopped; the sweep's own rules had no part in it
    waits: bool = False  # interrupted where it pauses, until its rule lets it go on; or pruned as it still paused there
    again: bool = False  # it has failed, and is tried again: interrupted, also where its log says failed before
    facts: Facts = field(default_factory=Facts)
    driven_s: float | None = None  # as of `TrialStarted`


class ModelTested(Record, frozen=True, kw_only=True):
    """A trial's model was evaluated on the test data, once, after everything was chosen."""

    trial: int
    metrics: Mapping[str, float]
    time: float


class SessionStarted(Record, frozen=True, kw_only=True):
    """A process began to drive the sweep: the first one, or one that resumed it."""

    time: float
    resumed: bool
    version: str


class SessionEnded(Record, frozen=True, kw_only=True):
    """The driving process ended the sweep in order; a killed one leaves no such event."""

    time: float
    reason: str  # "finished", "interrupted", "budget", ...
    driven_s: float | None = None  # as of `TrialStarted`


Event: TypeAlias = TrialStarted | EpochReported | TrialEnded | ModelTested | SessionStarted | SessionEnded


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


def _fields(source: Record | Facts | Inputs) -> dict[str, object]:
    """Return the fields that are not at their default, for JSON."""
    record: dict[str, object] = {}
    for name, default in _DEFAULTS[type(source)].items():
        value = getattr(source, name)
        if value == default:
            continue
        try:
            if isinstance(value, Facts | Inputs):
                record[name] = _fields(value)
            elif isinstance(value, tuple):
                record[name] = plain(list(value))
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


_STRUCTS: tuple[type[msgspec.Struct], ...] = (*_CLASSES.values(), Facts, Inputs)
_DEFAULTS = {cls: _defaults(cls) for cls in _STRUCTS}
