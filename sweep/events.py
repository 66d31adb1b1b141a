"""The events of a sweep, which make up its log and are all that other parts learn about it.

Searchers and schedulers observe events, and the tables and the live view are made from them. To resume a sweep, its
events are observed again. This module does not depend on any of its users.

Each event is one line of JSON and is restored exactly. Lines are standard JSON in ASCII: NaN and the infinities are the
strings "nan", "inf" and "-inf", and a string that would be read as one of these gets a backslash in front. Fields with
their default value are left out.
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
"""Type of a hyperparameter: any YAML value."""

if TYPE_CHECKING:
    Params: TypeAlias = Mapping[str, Value]
    """A trial's hyperparameters by flat, dotted name, in the order of the sweep file."""
else:
    Params = Mapping[str, Any]  # msgspec cannot decode a recursive type


STEERED_COLUMNS = ("space_version", "enqueued_by", "starred", "note")
"""Columns of the table of trials that exist only if a person has steered the sweep."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether ``value`` is a finite int or float that a float can hold; booleans are not.

    Of NumPy's numbers, only a float64 is one, because its class is derived from float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int above 1.8e308
        return False


def as_floats(values: Mapping[str, float]) -> dict[str, float]:
    """Return a new mapping with the values, numbers of any type, as floats by the same names.

    NaN and infinities stay. Raises ValueError naming the first one that is too large for a float.
    """
    floats = {}
    for name, value in values.items():
        try:
            floats[name] = float(value)
        except OverflowError as error:
            raise ValueError(
                f"{name} is too large for a float, expected a number up to 1.8e308"
            ) from error
    return floats


def trial_epochs(params: Params, epochs: int) -> int:
    """Return the epochs that a trial trains: its parameter ``epochs`` if it has one, else the sweep's ``epochs``.

    Raises TypeError if the parameter is there and no int, such as 2.0 or None.
    """
    given = params.get("epochs", epochs)
    if not isinstance(given, int):
        raise TypeError(f"epochs must be a whole number, got {given!r}")
    return given


NULL_PARAMS = "null_params"
"""Column that lists the parameters that are null; in a parameter's own column, null may also mean absent."""


def names_of_nulls(params: Params) -> str | None:
    """Return the names of the parameters that are None as a JSON list, such as ``["decay"]``; None if there are none.

    They are in the order of ``params``, for the column `NULL_PARAMS` of the table of trials.
    """
    names = []
    for name, value in params.items():
        if value is None:
            names.append(name)
    if not names:
        return None
    return json.dumps(names, ensure_ascii=False)


class Status(StrEnum):
    """Status of a trial: ``running`` at first, then one of the others."""

    RUNNING = "running"
    COMPLETED = "completed"
    INFEASIBLE = "infeasible"  # completed, and its metrics do not meet the constraints
    PRUNED = "pruned"  # stopped early, by the scheduler or by `stop --trial`
    DIVERGED = "diverged"  # loss or objective became NaN or infinite
    OOM = "oom"  # out of memory, also after smaller micro-batches
    FAILED = "failed"  # an exception in the trainable
    INTERRUPTED = "interrupted"  # stopped before its end; can be resumed


UNFINISHED = frozenset({Status.RUNNING, Status.INTERRUPTED})
"""Statuses of trials that may report another epoch."""
WHOLE = frozenset({Status.COMPLETED, Status.INFEASIBLE})
"""Statuses of trials that were trained to their end."""
JUDGED = WHOLE | {Status.PRUNED}
"""Statuses of trials that ended with metrics that can be compared."""
ERRORED = frozenset({Status.FAILED, Status.OOM})
"""Statuses of trials that ended with an error."""
LOST = ERRORED | {Status.DIVERGED}
"""Statuses of trials that ended without a usable result."""


PAUSES = "pauses: "
"""Prefix of the reason of a trial that is interrupted because the scheduler or population paused it."""


ON_REQUEST = "stopped on request"
"""Reason of a session or a trial that a user has stopped."""


AT_ONCE_ON_REQUEST = "stopped at once on request"
"""Reason of a session that a user has stopped without waiting for the running epochs."""


TRIED_AGAIN = "tried again"
"""Reason of a failed trial that is tried again; after an error, it follows: "ValueError: no; tried again, 1 of 3"."""


def describe_status(status: Status, reason: str) -> str:
    """Return the status of a trial in words; ``reason`` is that of its end (`TrialEnded.reason`).

    It is ``stopped by hand`` for a pruned trial that a user has stopped, ``failed, tried again`` for an interrupted
    trial that is retried after a failure, and otherwise the status itself.
    """
    if status is Status.PRUNED and reason == ON_REQUEST:
        return "stopped by hand"
    # after an error, the reason is like "ValueError: no; tried again, 1 of 3"
    if status is Status.INTERRUPTED and (reason == TRIED_AGAIN or f"; {TRIED_AGAIN}, " in reason):
        return "failed, tried again"
    return status.value


FAILED = "failed: "
"""Prefix of the reason of a session that ended because every trial would fail."""


class Role(StrEnum):
    """Why a trial is trained."""

    SEARCH = "search"  # chosen by the searcher
    BASELINE = "baseline"  # the author's own configuration, trained for comparison
    CONFIRM = "confirm"  # a fresh seed for a finalist, after the search


def _make_tag(name: str) -> str:
    """Return the name of an event in the log: "trial_started" for `TrialStarted`."""
    return re.sub(r"\B[A-Z]", r"_\g<0>", name).lower()


class Record(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag=_make_tag):
    """Base class of events. The log names the class in snake case, such as "trial_started".

    Records are immutable; `msgspec.structs.replace` returns a changed copy.
    """


class TrialStarted(Record, frozen=True, kw_only=True):
    """A trial has been chosen and has started; the sweep counts it from now on."""

    trial: int
    trial_id: str
    params: Params
    seed: int
    repeat: int
    time: float  # seconds since 1970, UTC, as everywhere in this module
    # duration of this session so far, by the driver's monotonic clock
    driven_s: float | None = None
    fold: int | None = None  # number of the fold in a cross-validation, from 0
    role: Role = Role.SEARCH
    parent: int | None = None  # the trial that this one is a copy of, with other parameters
    parent_epoch: int | None = None  # last epoch that it takes over from its parent
    # its number in the search, if that is not ``trial``; None for other roles
    index: int | None = None
    enqueued_by: str | None = None  # who added its configuration; None if sweep has chosen it
    space_version: int = 0  # how often the space had been changed when its configuration was chosen


class EpochReported(Record, frozen=True, kw_only=True):
    """A trial has reported one epoch; epochs are numbered from 1."""

    trial: int
    epoch: int
    metrics: Mapping[str, float]  # may contain NaN and infinities, which are logged as they are
    time: float
    time_s: float  # duration of this epoch
    learning_rate: float | None = None  # as applied in the epoch's last update
    examples_per_s: float | None = None
    # further columns, whose names include their units
    measures: Mapping[str, float] = field(default_factory=dict)
    memo: str | None = None  # "<sweep>/<trial>" whose result was used instead of training
    driven_s: float | None = None  # see `TrialStarted`


class Inputs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All files, folders and environment variables that a trial has read, as recorded by `sweep.read_recorder`.

    Modules of the author's that drew numbers when they were imported are named as well (`sweep.state.imports`). The
    trial's code and its data are not included. Paths that begin with ``./`` are relative to the working folder at the
    start of a trial, or to a folder on the import path.
    """

    files: Mapping[str, str] = field(default_factory=dict)  # fingerprint by path
    # digest of the names in each folder, by path
    folders: Mapping[str, str] = field(default_factory=dict)
    # digest of the value, by name of the variable
    environment: Mapping[str, str] = field(default_factory=dict)
    # seed under which it was imported, by name of the module, of those that drew numbers then
    drawn: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # why some of what it has read cannot be compared later


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts about where and how a trial ran; None for anything unknown, as after a lost worker."""

    started: float | None = None  # seconds since 1970: when training code first ran for the trial
    # seconds since then by its worker's clock; since it was resumed, if it was
    lived_s: float | None = None
    node: str | None = None
    # "cpu:0", "gpu:0,gpu:1"; with several workers separated by ";", as in "cpu:0;cpu:0"
    devices: str | None = None
    strategy: str | None = None
    num_replicas: int | None = None
    precision: str | None = None
    # settings that its numbers depend on: tf32, cudnn ...
    numerics: Mapping[str, str] = field(default_factory=dict)
    train_s: float | None = None
    overhead_s: Mapping[str, float] = field(default_factory=dict)  # start, build, compile, data ...
    checkpoint: str | None = None  # relative to the results folder
    # number of micro-batches for each batch, after a whole batch did not fit
    accumulate: int | None = None
    data: str | None = None  # fingerprint of the data, if the trainable computes one
    # parameters that the data depend on, written like ``structure``; None: not known
    data_reads: str | None = None
    # hyperparameters read while building its program, by `hyperparameters.to_json`
    structure: str | None = None
    structures: int | None = None  # number of structures that its worker holds
    # another trial with the same parameters and seed would have the same numbers
    reproducible: bool = True
    extends: bool = False  # a trial of more epochs would begin with exactly these epochs
    inputs: Inputs | None = None  # what it has read besides its code and data; None: not recorded
    # its function has read `report.trial`, so its results may follow from that
    by_number: bool = False
    # modules that its worker imported in a version other than the sweep's first
    other_code: tuple[str, ...] = ()


class TrialEnded(Record, frozen=True, kw_only=True):
    """A trial ended with its final status, or was interrupted."""

    trial: int
    status: Status
    reason: str  # one line, "" for a completed trial
    time: float
    error: str | None = None  # traceback of a failed trial
    # "<sweep>/<trial>" whose result was used: nothing was trained in this sweep
    memo: str | None = None
    # completed before its last epoch, because it reached the sweep's target
    at_target: bool = False
    regardless: bool = False  # failed before it had read any parameter that differs between trials
    # failed because the code cannot do what the file asks, whatever the values
    incompatible: bool = False
    asked: bool = False  # stopped by a user's request, not by the sweep's own rules
    worker_lost: bool = False  # failed because its workers were lost too often
    waits: bool = False  # interrupted because it pauses until its rule lets it continue; or pruned while it was paused
    # failed and is tried again: interrupted, even if the log said failed before
    again: bool = False
    facts: Facts = field(default_factory=Facts)
    driven_s: float | None = None  # see `TrialStarted`

    @property
    def pauses(self) -> bool:
        """Whether the trial only pauses: it was interrupted by its rule and may continue in this session."""
        return self.waits and self.status is Status.INTERRUPTED


class ModelTested(Record, frozen=True, kw_only=True):
    """A trial's model was evaluated on the test data, once, after all choices were made."""

    trial: int
    metrics: Mapping[str, float]
    time: float


class OutputPrinted(Record, frozen=True, kw_only=True):
    """A trial has printed something, or a library has in its process; searchers and schedulers never see this event."""

    trial: int
    text: str  # without terminal escape sequences; ends with a line feed unless the last line is incomplete
    time: float
    driven_s: float | None = None  # see `TrialStarted`


class SessionStarted(Record, frozen=True, kw_only=True):
    """A process has started or resumed the sweep."""

    time: float
    resumed: bool
    version: str


class SessionEnded(Record, frozen=True, kw_only=True):
    """The process that ran the sweep has ended regularly; a killed process writes no such event."""

    time: float
    reason: str  # "finished", "interrupted", "budget", ...
    # nothing was left to do, or a limit was reached; None in logs of early releases
    finished: bool | None = None
    driven_s: float | None = None  # see `TrialStarted`


class NoteWritten(Record, frozen=True, kw_only=True):
    """A person has written a note on a trial or on the sweep; it replaces the earlier note, and "" removes it."""

    trial: int | None = None  # None: the note is on the sweep
    text: str
    request: str  # identifies the command that asked for it, so that nothing is done twice
    by: str = ""  # name of the user
    time: float
    # see `TrialStarted`; None if no session was running, as in the events below
    driven_s: float | None = None


class TrialStarred(Record, frozen=True, kw_only=True):
    """A person has given a trial a star, or has removed it."""

    trial: int
    starred: bool = True
    request: str
    by: str = ""
    time: float
    driven_s: float | None = None


class ConfigurationsEnqueued(Record, frozen=True, kw_only=True):
    """A person has added configurations; they are tried before those that the searcher suggests."""

    configurations: tuple[Params, ...]
    request: str
    by: str = ""
    time: float
    driven_s: float | None = None


class SweepChanged(Record, frozen=True, kw_only=True):
    """A person has changed keys of the sweep file; the new values are used from this event on."""

    # the new values of the changed top-level keys of the resolved file; None: removed
    settings: Mapping[str, Any]
    # added configurations that have not started and are not in the new space
    dropped: tuple[Params, ...] = ()
    request: str
    by: str = ""
    time: float
    driven_s: float | None = None


SteeringEvent: TypeAlias = NoteWritten | TrialStarred | ConfigurationsEnqueued | SweepChanged
"""What a person does with a sweep while it runs or afterwards."""

Event: TypeAlias = (
    TrialStarted
    | EpochReported
    | TrialEnded
    | ModelTested
    | OutputPrinted
    | SessionStarted
    | SessionEnded
    | NoteWritten
    | TrialStarred
    | ConfigurationsEnqueued
    | SweepChanged
)


FORMAT = 1
"""Version of the log's format, written with every session; logs with a higher version are refused."""

_NON_FINITE = frozenset({"nan", "inf", "-inf"})
_DECODER = msgspec.json.Decoder(Event)
_CLASSES: dict[str, type[Record]] = {str(cls.__struct_config__.tag): cls for cls in get_args(Event)}


class NotJson(StoreError):
    """A line of the log is not JSON, because it is damaged or was cut off."""


def encode(event: Event) -> bytes:
    """Return an event as a line of the log: JSON in ASCII, including the line feed.

    Fields with their default value are left out.

    Raises:
        StoreError: if JSON would lose or change a value, or if the line could not be read back.
    """
    name = str(event.__struct_config__.tag)
    record: dict[str, object] = {"event": name}
    if isinstance(event, SessionStarted):
        record["format"] = FORMAT
    try:
        record.update(_collect_fields(event))
    except TypeError as error:
        raise StoreError(f"{name}: {error}") from error
    line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    decode(line)  # raises StoreError now rather than when the sweep is resumed
    return line


def decode(line: bytes) -> Event:
    """Return the event in a line of the log, which may end with a line feed.

    Raises:
        NotJson: if the line is damaged: no standard JSON in ASCII.
        StoreError: if the line is valid JSON but no event that this version knows, or begins a session in a format
            that this version cannot read.
    """
    # The fast way, for nearly all lines: there is no text such as "nan" that has to be converted back to a number.
    if b'nan"' not in line and b'inf"' not in line and line.isascii():
        # half a surrogate pair, a huge number or a damaged line: the slower way below tells them apart
        with suppress(ValueError, RecursionError):
            event: Event = _DECODER.decode(line)
            # the format of a session is checked first, below
            if not isinstance(event, SessionStarted):
                return event
    try:
        record = convert_from_json_types(_JSON.decode(line.decode("ascii")))
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
        raise StoreError(f"{name}: {_describe_validation_error(error)}") from error


def convert_to_json_types(value: object) -> object:
    """Return ``value`` as standard JSON types, at any depth: mappings as dicts, NaN and infinities as strings.

    A string that would be read as one of these gets a backslash in front. Lists and mappings are copied. Raises
    TypeError for values that JSON would lose or change, such as tuples, NumPy numbers, members of an enumeration and
    keys that are not strings: except for mappings, the type must be exactly one of JSON's.
    """
    # `type` rather than `isinstance`: NumPy's float64 is a float, too, and would be read back as another type
    if type(value) is float:
        return value if math.isfinite(value) else repr(value)
    if type(value) is str:
        if _looks_non_finite(value):
            return "\\" + value
        return value
    if type(value) is int or type(value) is bool or value is None:
        return value
    if type(value) is list:
        return [convert_to_json_types(item) for item in value]
    if isinstance(value, Mapping):
        return {_check_text(name): convert_to_json_types(item) for name, item in value.items()}
    _refuse_type(value, "bool, int, float, str, list, mapping or None")


def convert_from_json_types(value: object) -> object:
    """Return the value that `convert_to_json_types` has converted to ``value``, with mappings as dicts.

    The texts "nan", "inf" and "-inf" become floats, at any depth, and a backslash in front of such a text is removed.
    """
    if isinstance(value, str):
        if value in _NON_FINITE:
            return float(value)
        if value.startswith("\\") and _looks_non_finite(value):
            return value[1:]
        return value
    if isinstance(value, dict):
        return {name: convert_from_json_types(item) for name, item in value.items()}
    if isinstance(value, list):
        return [convert_from_json_types(item) for item in value]
    return value


def _looks_non_finite(text: str) -> bool:
    """Return whether a text is "nan", "inf" or "-inf", or one of them with any number of backslashes in front."""
    return text.lstrip("\\") in _NON_FINITE


def _refuse_constant(constant: str) -> NoReturn:
    """Raise ValueError for ``NaN``, ``Infinity`` or ``-Infinity``, which are not JSON.

    Python's decoder calls this for each of them, and would accept them otherwise.
    """
    raise ValueError(f"{constant} is not standard JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _check_format(number: object, version: object) -> None:
    """Raise StoreError if the format ``number`` of a log is not a number, or is higher than this release can read.

    ``version`` is the version of sweep that wrote the log, for the message.
    """
    if type(number) is not int:
        raise StoreError(f"session_started: format is {number!r}, expected a number up to {FORMAT}")
    if number > FORMAT:
        raise StoreError(
            f"written by sweep {version} in log format {number}, expected at most {FORMAT}; "
            "use that version of sweep or a newer one"
        )


def _describe_validation_error(error: msgspec.ValidationError) -> str:
    """Return a validation error of msgspec in words, such as ``time: is of type str, expected float``.

    The message of msgspec is "Expected `float`, got `str` - at `$.time`". The path of the field is left out if the
    message has none.
    """
    fault, _, place = str(error).replace("`", "").partition(" - at $.")
    fault = re.sub(r"^Expected (.+), got (.+)$", r"is of type \2, expected \1", fault)
    return f"{place}: {fault}" if place else fault


def _refuse_type(value: object, expected: str) -> NoReturn:
    """Raise TypeError, because JSON would lose or change a value of this type.

    The message has the value, cut to 80 characters, its type, and ``expected``, which names the types it may have.
    """
    kind = type(value)
    if kind.__module__ == "builtins":
        name = kind.__name__
    else:
        name = f"{kind.__module__}.{kind.__name__}"
    if kind.__module__ == "numpy":
        hint = "; convert it with .item()"
    else:
        hint = ""
    raise TypeError(f"{shortened(repr(value), 80)} is of type {name}, expected {expected}{hint}")


def _check_text(value: object) -> str:
    """Return ``value``, a key of a mapping; raise TypeError if its type is not exactly `str`."""
    if type(value) is str:
        return value
    return _refuse_type(value, "str")


def _collect_fields(source: Record | Facts | Inputs) -> dict[str, object]:
    """Return the fields of an event, or of its facts or inputs, that differ from their default, by name, as JSON types.

    Raises TypeError naming a field whose value JSON would lose or change.
    """
    record: dict[str, object] = {}
    for name, default in _DEFAULTS[type(source)].items():
        value = getattr(source, name)
        if value == default:  # never in a required field
            continue
        try:
            if isinstance(value, Facts | Inputs):
                record[name] = _collect_fields(value)
            elif isinstance(value, tuple):  # `decode` makes a tuple of the list again
                record[name] = convert_to_json_types(list(value))
            # their type is not `str`, which would be refused
            elif isinstance(value, Status | Role):
                record[name] = value.value
            else:
                record[name] = convert_to_json_types(value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from error
    return record


def _collect_defaults(cls: type[msgspec.Struct]) -> dict[str, object]:
    """Return the default of each field by its name; for required fields msgspec's marker, which equals no value.

    Of fields with a default factory, it is a value that the factory has returned.
    """
    defaults: dict[str, object] = {}
    for struct_field in msgspec.structs.fields(cls):
        if struct_field.default_factory is msgspec.NODEFAULT:
            defaults[struct_field.name] = struct_field.default
        else:
            defaults[struct_field.name] = struct_field.default_factory()
    return defaults


_STRUCTS: tuple[type[msgspec.Struct], ...] = (*_CLASSES.values(), Facts, Inputs)
_DEFAULTS = {cls: _collect_defaults(cls) for cls in _STRUCTS}
