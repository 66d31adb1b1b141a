"""A trial's hyperparameters as the author's code reads them, and a record of what it read.

KerasTuner's spelling works too: ``hp.Int("units", 8, 64)`` returns the trial's value, or the default. While
declarations are collected (`Declaring.declare_into`), each such call adds one; `sweep init --from-hypermodel` writes
them into a sweep file as its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from sweep import standard_hyperparameters as table
from sweep.events import Params, Value


@dataclass(frozen=True)
class Declaration:
    """A hyperparameter that code has declared, as with ``hp.Int("units", 8, 64)``."""

    name: str
    keys: Mapping[str, Any]  # the parameter's keys in a sweep file, such as `min` and `max`
    default: Value
    choices: Sequence[Value] = ()  # all possible values, if they can be counted
    # by the name of a parent: the values with one of which this parameter applies
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


class Declaring:
    """The methods of KerasTuner's ``HyperParameters`` that declare a parameter and return its value.

    If the sweep file has the parameter, the file decides its values. The bounds in the code are used only by `init
    --from-hypermodel`.
    """

    # collects the declarations; None: nothing is collected
    _declared: list[Declaration] | None = None
    # of the parameters declared so far, for later reads by name; filled only while declarations are collected
    _defaults: dict[str, Value]
    _declared_values: dict[str, Any]  # what the calls so far have returned
    _conditions: tuple[tuple[str, tuple[Value, ...]], ...] = ()  # the enclosing conditional scopes
    _prefix = ""  # of the enclosing name scopes, put before each name

    if TYPE_CHECKING:

        def get(self, name: str, default: Any) -> Any: ...

    def Int(  # KerasTuner's name
        self,
        name: str,
        min_value: int,
        max_value: int,
        step: int | None = None,
        sampling: str | None = None,
        default: int | None = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Return an integer: the trial's value, otherwise ``default``, otherwise ``min_value``.

        The bounds, ``step`` and ``sampling`` only describe the parameter; the value is not checked against them. With
        ``parent_name``, the parameter applies only if that parameter has one of ``parent_values``, a value or a list,
        or has no known value. Returns None if it does not apply and the trial has no value.

        Raises TypeError if the trial's value is not a whole number. Raises ValueError if a bound, ``step`` or
        ``default`` is not one, if ``max_value`` is below ``min_value``, if ``sampling`` is neither None, "linear" nor
        "log", or if ``step`` is not positive. With "log", a ``step`` must be above 1, and ``min_value`` then above 0.
        """
        first = _convert_to_int(name, "min_value", min_value)
        last = _convert_to_int(name, "max_value", max_value)
        distance = None if step is None else _convert_to_int(name, "step", step)
        keys = _describe_range(name, first, last, distance, sampling, whole=True)
        # a range, because a list of all values may be long
        in_steps = range(first, last + 1, distance or 1)
        if sampling == "log" and step:
            choices = keys["values"]
        else:
            choices = in_steps
        default_value = first if default is None else _convert_to_int(name, "default", default)
        value = self._declare(name, keys, default_value, choices, parent_name, parent_values)
        return None if value is None else _check_whole_number(name, value)

    def Float(
        self,
        name: str,
        min_value: float,
        max_value: float,
        step: float | None = None,
        sampling: str | None = None,
        default: float | None = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Return a float: the trial's value, otherwise ``default``, otherwise ``min_value``.

        The arguments and the result for a parameter that does not apply are those of `Int`. Raises ValueError for
        ``max_value``, ``sampling`` and ``step`` as `Int` does, and TypeError if the value is not a number.
        """
        keys = _describe_range(
            name, float(min_value), float(max_value), step, sampling, whole=False
        )
        default_value = _convert_scalar(min_value if default is None else default)
        value = self._declare(name, keys, default_value, (), parent_name, parent_values)
        return None if value is None else _check_number(name, value)

    def Choice(
        self,
        name: str,
        values: Sequence[Any],
        ordered: bool | None = None,
        default: Any = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Return the trial's value, otherwise ``default``, otherwise the first one of ``values``.

        Whether the value is one of ``values`` is not checked, and ``ordered`` has no effect. Returns None if the
        parameter does not apply, as in `Int`. Raises IndexError if there are neither ``values`` nor a ``default``.
        """
        plain = [_convert_scalar(value) for value in values]
        if default is None:
            default_value = plain[0]
        else:
            default_value = _convert_scalar(default)
        all_hashable = all(isinstance(value, Hashable) for value in plain)
        choices = plain if all_hashable else ()  # they are put in sets, which a list cannot be
        return self._declare(
            name, {"values": plain}, default_value, choices, parent_name, parent_values
        )

    def Boolean(
        self,
        name: str,
        default: bool = False,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Return the trial's value, True or False, otherwise ``default``.

        Returns None if the parameter does not apply, as in `Int`. Raises TypeError for any other value, even 0 or 1.
        """
        value = self._declare(
            name, {"values": [False, True]}, default, (False, True), parent_name, parent_values
        )
        return None if value is None else _require_bool(name, value)

    def Fixed(
        self, name: str, value: Any, parent_name: str | None = None, parent_values: Any = None
    ) -> Any:
        """Return the trial's value of this parameter, otherwise ``value``.

        Returns None if the parameter does not apply, as in `Int`.
        """
        return self._declare(
            name,
            {"value": _convert_scalar(value)},
            _convert_scalar(value),
            (),
            parent_name,
            parent_values,
        )

    @contextmanager
    def conditional_scope(self, parent_name: str, parent_values: Any) -> Iterator[None]:
        """Make the parameters declared in the block apply only if a parent parameter has one of ``parent_values``.

        ``parent_values`` is a value or a list of values. If the parent has another value, the declarations return None,
        as in KerasTuner, unless the trial has the parameter. If the parent has no value in the trial and none of the
        declarations before has returned one, they apply. In nested blocks, all conditions must be met.
        """
        before = self._conditions
        self._conditions = (*before, (self._prefix + parent_name, _convert_to_tuple(parent_values)))
        try:
            yield
        finally:
            self._conditions = before

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Put ``name`` and a dot in front of the names declared in the block, and of the names of their parents.

        In nested blocks, the outer name comes first. Other reads, such as `get`, are not affected.
        """
        before = self._prefix
        self._prefix = f"{before}{name}."
        try:
            yield
        finally:
            self._prefix = before

    def declare_into(self, declared: list[Declaration]) -> None:
        """Append each later declaration to the list ``declared``, even if one of that name is in it.

        From then on, reading a declared parameter that the trial does not have gives its first declared default, unless
        the parameter did not apply.
        """
        self._declared = declared

    def _declare(
        self,
        name: str,
        keys: Mapping[str, Any],
        default: Any,
        choices: Sequence[Any],
        parent_name: str | None,
        parent_values: Any,
    ) -> Any:
        """Record a declaration, if declarations are collected, and return the trial's value or the default.

        ``keys`` and ``choices`` are those of `Declaration`; ``name`` and ``parent_name`` lack the prefix of the name
        scopes. Returns None if the parameter does not apply and the trial has no value. A value that is returned is
        kept, because later declarations may name this parameter as their parent.
        """
        name = self._prefix + name  # the full name
        conditions = self._conditions
        if parent_name is not None:
            conditions = (
                *conditions,
                (self._prefix + parent_name, _convert_to_tuple(parent_values)),
            )
        if self._declared is not None:
            self._declared.append(Declaration(name, keys, default, choices, dict(conditions)))
        applies = self._are_met(conditions)
        value = self.get(name, default if applies else None)
        # Not in trials: one that reuses a compiled program does not run this code, so reads elsewhere would lack the
        # default that they have in the trial that has compiled it.
        if self._declared is not None and applies:
            self._defaults.setdefault(name, default)
        if value is not None:
            self._declared_values[name] = value  # may be the parent of a later parameter
        return value

    def _are_met(self, conditions: Sequence[tuple[str, tuple[Value, ...]]]) -> bool:
        """Return whether each parent has one of its allowed values; a parent with no known value is ignored.

        ``conditions`` are pairs of a parent's full name and its allowed values. The value of a parent is that of the
        trial, or else the one that its declaration has returned.
        """
        for parent, allowed in conditions:
            value = self.get(parent, self._declared_values.get(parent))
            if value is not None and value not in allowed:
                return False
        return True


def _describe_range(
    name: str, low: float, high: float, step: float | None, sampling: str | None, *, whole: bool
) -> dict[str, Any]:
    """Return the keys of a sweep file for a range: ``min`` and ``max`` or, with a step, ``values`` as a list.

    Whole numbers in steps of 1 have ``min`` and ``max``, too. A logarithmic range without a step also has a
    ``distribution``. All values of the list are equally likely; with ``sampling="log"``, each is ``step`` times the one
    before. Raises ValueError if ``sampling`` is neither None, "linear" nor "log", if ``high`` is below ``low``, and as
    `_list_stepped_values` does. ``name`` is for the messages.
    """
    low = _convert_scalar(low)
    high = _convert_scalar(high)
    step = _convert_scalar(step)
    if sampling not in (None, "linear", "log"):
        raise ValueError(f"parameter {name!r} has sampling {sampling!r}, expected linear or log")
    if high < low:
        raise ValueError(f"parameter {name!r} has max_value {high}, expected at least {low}")
    # steps of 1 leave out no whole number, unless they are factors
    if step is None or (whole and step == 1 and sampling != "log"):
        if sampling == "log":
            if whole:
                kind = "int_log_uniform_values"
            else:
                kind = "log_uniform_values"
            return {"distribution": kind, "min": low, "max": high}
        return {"min": low, "max": high}
    values = _list_stepped_values(name, low, high, step, sampling)
    if whole:
        return {"values": [int(value) for value in values]}
    return {"values": [float(value) for value in values]}


def _list_stepped_values(
    name: str, low: float, high: float, step: float, sampling: str | None
) -> list[Decimal]:
    """Return ``low`` and the values up to ``high`` that follow it, by adding ``step`` or, with log, multiplying by it.

    Raises ValueError if the values would never exceed ``high``, or if they begin at 0 or below with log.
    """
    # decimal arithmetic gives 0.3 where floats give 0.30000000000000004
    first, size, last = (Decimal(str(number)) for number in (low, step, high))
    if sampling == "log" and first <= 0:
        raise ValueError(
            f"parameter {name!r} begins at {low} with sampling log, expected a positive number"
        )
    if sampling == "log" and size <= 1:
        raise ValueError(
            f"parameter {name!r} has a step of {step} with sampling log, expected one above 1"
        )
    if size <= 0:
        raise ValueError(f"parameter {name!r} has a step of {step}, expected a positive number")
    values = [first]
    while True:
        if sampling == "log":
            following = values[-1] * size
        else:
            following = first + len(values) * size
        if following > last:
            return values
        values.append(following)


def _convert_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to Python's type; return a value without the method ``item`` unchanged."""
    if hasattr(value, "item"):
        return value.item()
    return value


def _convert_to_int(name: str, argument: str, value: Any) -> int:
    """Return an argument of `Declaring.Int` as an int, such as 100 for 1e2, as KerasTuner does.

    Raises ValueError if it is not a whole number; a boolean passes unchanged. ``name`` is the parameter's and
    ``argument`` the argument's, for the message.
    """
    number = _convert_scalar(value)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    if not isinstance(number, int):
        raise ValueError(f"parameter {name!r} has {argument} {value!r}, expected a whole number")
    return number


def _check_number(name: str, value: Any, kind: str = "a number") -> float:
    """Return a parameter's value as a float. Raises TypeError if it is neither an int nor a float, or is a boolean.

    ``kind`` says in the message what was expected.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"parameter {name!r} is {value!r}, expected {kind}")
    return float(value)


def _check_whole_number(name: str, value: Any) -> int:
    """Return a parameter's value as an int: 2 for 2.0. Raises TypeError if it is not a whole number."""
    if not _check_number(name, value, "a whole number").is_integer():
        raise TypeError(f"parameter {name!r} is {value!r}, expected a whole number")
    return int(value)


def _require_bool(name: str, value: Any) -> bool:
    """Return a parameter's value unchanged. Raises TypeError if it is not a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"parameter {name!r} is {value!r}, expected true or false")
    return value


def _convert_to_tuple(values: Any) -> tuple[Value, ...]:
    """Return a list or tuple as a tuple, and any other value as a tuple that contains only it."""
    if isinstance(values, list | tuple):
        return tuple(values)
    return (values,)


def _recording_all_reads(method: Any) -> Any:
    """Return a method of `RecordedParams` that records all parameters as read, and then calls a method of dict."""

    def read_all(watched: RecordedParams, *arguments: Any) -> Any:
        # `watched.keys` is wrapped, and would call this function again
        watched.seen.update(dict.keys(watched))
        return method(watched, *arguments)

    return read_all


class RecordedParams(dict[str, Value]):
    """A dict of parameters that records which names are read; iterating over it or copying it reads all of them."""

    def __init__(self, params: Params, names_read: set[str]) -> None:
        super().__init__(params)
        self.seen = names_read

    def __getitem__(self, name: str) -> Value:
        self.seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    __iter__, keys, values, items = map(
        _recording_all_reads, (dict.__iter__, dict.keys, dict.values, dict.items)
    )
    copy, __or__, __ror__, __eq__ = map(
        _recording_all_reads, (dict.copy, dict.__or__, dict.__ror__, dict.__eq__)
    )

    def __reduce__(self) -> tuple[type, tuple[dict[str, Value]]]:
        # a pickled copy is a plain dict, which records nothing
        return dict, (dict(dict.items(self)),)


class ReadMark(Enum):
    """Marks a read that returned no value: the parameter is absent, or was only tested for its presence."""

    ABSENT = "absent"  # was read, but the trial does not have it
    PRESENT = "present"  # was tested with `in`, and exists
    GROUP = "group"  # was read, but there are only parameters below this name


Reads: TypeAlias = "dict[str, Value | ReadMark | tuple[str, ...]]"
"""What was read, by name. A tuple lists the names that `below` found; under the empty name it lists all parameters."""


def to_json(reads: Reads) -> str:
    """Encode a record of reads as JSON; equal records give equal text.

    A value is written as a list of one item, a `ReadMark` as its name, and a tuple of names as ``{"below": [...]}``.
    """
    encoded: dict[str, object] = {}
    for name, read in reads.items():
        if isinstance(read, ReadMark):
            encoded[name] = read.value
        elif isinstance(read, tuple):
            encoded[name] = {"below": list(read)}
        else:
            encoded[name] = [read]
    return json.dumps(encoded, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Reads:
    """Decode a record of reads that `to_json` has encoded."""
    reads: Reads = {}
    for name, told in json.loads(text).items():
        match told:
            case [value]:
                reads[name] = value
            case {"below": [*names]}:
                reads[name] = tuple(map(str, names))
            case _:
                reads[name] = ReadMark(told)
    return reads


class Hyperparameters(Declaring):
    """The hyperparameters of a trial, read as attributes (``hp.rate``), as items (``hp["aug.kind"]``) or with `get`.

    A nested parameter can be read by its dotted name or attribute by attribute (``hp.aug.kind``). With ``in`` and as
    items, there are only dotted names of parameters: `below` tells whether the trial has a group. Reading a parameter
    that the trial does not have raises AttributeError or KeyError, with a message that lists the trial's parameters.
    """

    def __init__(self, params: Params) -> None:
        if isinstance(params, RecordedParams):
            self._names_read = params.seen
        else:
            self._names_read = set[str]()
        # `dict.items` is not recorded; any other way to copy the parameters would count as reading all of them
        self._set_params(dict(dict.items(params) if isinstance(params, RecordedParams) else params))
        self._open_records: list[Reads] = []
        # names changed by `with_changes`; reading one does not read the trial's parameter
        self._changed_names: frozenset[str] = frozenset()
        self._changes_read = set[str]()  # the names in `_changed_names` that were read
        self._live_source: Callable[..., Any] | None = None  # see `serve_live`
        self._defaults = dict[str, Value]()
        self._declared_values = dict[str, Any]()
        self._lengths = dict[str, Value]()
        self._ends_by_time = False

    def set_lengths(self, **lengths: int | None) -> None:
        """Make the trial's lengths readable by name, as ``hp.epochs`` and ``hp.updates``; lengths set earlier stay.

        Parameters of the same names take precedence. None means that the number is unknown because only the minutes end
        the trial; the error of a read says so until the next call of this method.
        """
        # only for the message of the error
        self._ends_by_time = None in lengths.values()
        for name, length in lengths.items():
            if length is not None:
                self._lengths[name] = length

    def with_changes(self, changes: Mapping[str, Value]) -> Hyperparameters:
        """Return a copy with some values changed or added; a value of None removes the parameter.

        Without ``changes``, returns this object itself. Parameters that are not changed count as read by the trial when
        the copy reads them, but the open records of `recording` are those of the original alone. Declared defaults and
        the source of `serve_live` are those of the original; no declarations are collected.
        """
        if not changes:
            return self
        changed = Hyperparameters({})
        params = {}
        for name, value in self._params.items():
            if name not in changes:
                params[name] = value
        for name, value in changes.items():
            if value is not None:
                params[name] = value
        changed._set_params(params)
        # shared, so that reads of the copy count as reads of the trial
        changed._names_read = self._names_read
        changed._changed_names = self._changed_names | set(changes)
        changed._live_source = self._live_source
        changed._defaults = self._defaults
        changed._declared_values = self._declared_values
        # `set_lengths` of the copy must not change the original
        changed._lengths = dict(self._lengths)
        changed._ends_by_time = self._ends_by_time
        return changed

    @property
    def unused_changes(self) -> tuple[str, ...]:
        """The names, sorted, of parameters that `with_changes` has changed for this copy and that it has not read.

        Those changed for the object that was copied are included.
        """
        return tuple(sorted(self._changed_names - self._changes_read))

    def __getitem__(self, name: str) -> Value:
        value = self._read(name)
        if isinstance(value, ReadMark):
            raise KeyError(self._describe_missing(name))
        return value

    def __getattr__(self, name: str) -> Value | NestedParameters:
        # such as those that `copy` and `pickle` look for, perhaps before `__init__` has run
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._groups:
            # of a group, it records the presence, not this value
            self._record_read(name, ReadMark.ABSENT)
            return NestedParameters(self, name)
        if isinstance(value := self._read(name), ReadMark):
            raise AttributeError(self._describe_missing(name))
        return value

    def __contains__(self, name: str) -> bool:
        present = self.peek(name) is not ReadMark.ABSENT
        for record in self._open_records:
            record.setdefault(name, self._make_read_mark(name, present=present))
        return present or name in self._defaults

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def to_dict(self) -> dict[str, Value]:
        """Return all parameters as a dict, for ``**hp.to_dict()``; all of them count as read.

        The trial's lengths and declared defaults are not included.
        """
        for name in self._params:
            self._read(name)
        for record in self._open_records:
            record[""] = self._list_below("")  # also records that no other parameters exist
        return dict(self._params)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter's value, or ``default`` if the trial does not have it; the read is recorded.

        The trial's lengths (`set_lengths`) are values, too. While declarations are collected, a declared default
        takes precedence over ``default``.
        """
        value = self._read(name)
        if isinstance(value, ReadMark):
            return default
        return value

    def _get_or_default(self, name: str, default: Any, *, standard: bool = False) -> Any:
        """Return the parameter's value, or ``default`` if it is absent; the read is recorded.

        Raises KeyError if the parameter is absent and ``default`` is None. With ``standard``, raises ValueError if the
        value or the default is not allowed for the standard hyperparameter of this name, and KeyError if there is none
        of this name.
        """
        if default is None:
            value = self[name]
        else:
            value = self.get(name, default)
        if standard:
            table.check_standard_value(name, value)
        return value

    def number(self, name: str, default: float | None = None, *, standard: bool = False) -> float:
        """Return the parameter as a float, or ``default`` if it is absent.

        Raises TypeError if it is not a number, and KeyError if it is absent and ``default`` is None. With
        ``standard=True``, raises ValueError if it is outside the bounds of the standard hyperparameter of this name,
        and KeyError for a name that is not standard.
        """
        return _check_number(name, self._get_or_default(name, default, standard=standard))

    def integer(self, name: str, default: int | None = None, *, standard: bool = False) -> int:
        """Return the parameter as an int: 2 for 2.0. Raises TypeError if it is not a whole number; else as `number`."""
        return _check_whole_number(name, self._get_or_default(name, default, standard=standard))

    def text(self, name: str, default: str | None = None, *, standard: bool = False) -> str:
        """Return the parameter as a string. Raises TypeError if it is not a string; otherwise as `number`."""
        value = self._get_or_default(name, default, standard=standard)
        if not isinstance(value, str):
            raise TypeError(f"parameter {name!r} is {value!r}, expected a text")
        return value

    def below(self, name: str) -> tuple[str, ...]:
        """Return the names of the parameters nested below ``name``, at any depth and without this prefix; () if none.

        These parameters count as read, and which of them exist is recorded.
        """
        names = self._list_below(name)
        self._names_read.update(names)
        for record in self._open_records:
            record[name] = names
        return tuple(key.removeprefix(f"{name}.") for key in names)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Return the parameter's value, or ``default`` if it is absent; either must be a bool.

        Raises TypeError for any other value, and KeyError if the parameter is absent and ``default`` is None.
        """
        return _require_bool(name, self._get_or_default(name, default))

    def choice(self, name: str, choices: Sequence[Any], default: Any = ReadMark.ABSENT) -> Any:
        """Return the parameter's value, or ``default`` if it is absent; either must be one of ``choices``.

        Raises ValueError for any other value, and KeyError if the parameter is absent and no default is passed. True is
        not 1, but 1 is 1.0, and a tuple among ``choices`` equals a list.
        """
        if default is ReadMark.ABSENT:  # no default; None may be one
            value = self[name]
        else:
            value = self.get(name, default)
        table.check_choice(name, value, [_convert_scalar(choice) for choice in choices])
        return value

    def live(
        self,
        name: str,
        default: float | None = None,
        *,
        meaning: Mapping[str, float] | None = None,
        bounds: tuple[float, float] | None = None,
        standard: bool = False,
    ) -> Any:
        """Return the parameter as a number that can change without compiling the program again.

        It can be passed wherever Keras takes a float: ``keras.layers.Dropout(hp.live("dropout", 0.1))``. Trials that
        differ only in such parameters share a program, whereas `number` would compile one for each value. In `data`,
        and outside a trial, it is a plain float.

        ``bounds`` is a pair of the lowest and the highest value; ``default`` is not checked against it. ``meaning``
        maps the choices of a text parameter to numbers; with it, ``default`` is a number rather than a choice, and no
        bounds are checked. Raises KeyError if the parameter is absent and has no default, TypeError if the value is not
        a number, and ValueError if it has no meaning or lies outside ``bounds`` (with ``standard``, outside the bounds
        of the standard hyperparameter of this name; KeyError if there is none).
        """
        if self._live_source is not None:
            return self._live_source(
                name, meaning, default=default, bounds=bounds, standard=standard
            )
        if default is not None and self.peek(name) is ReadMark.ABSENT:
            # a number, not one of the choices; it has no bounds
            return float(self.get(name, default))
        return table.convert_to_number(
            name,
            self._get_or_default(name, default),
            meaning,
            table.choose_bounds(name, bounds, standard=standard),
        )

    def serve_live(self, source: Callable[..., Any]) -> None:
        """Make `live` return the result of ``source``: a number in a variable, which can change between trials.

        ``source`` is called as ``source(name, meaning, default=..., bounds=..., standard=...)``, with the arguments of
        `live`.
        """
        self._live_source = source

    @contextmanager
    def without_live(self) -> Iterator[None]:
        """Make `live` return plain floats in the block, and record its reads in the records of `recording`."""
        before, self._live_source = self._live_source, None
        try:
            yield
        finally:
            self._live_source = before

    @contextmanager
    def recording(self, record: Reads) -> Iterator[None]:
        """Add the reads in the block to ``record``, by name; in nested blocks, to the record of each block.

        A later read of a parameter replaces an earlier one. A test with ``in``, or a read of a group as ``hp.aug``, is
        only added if the record has no entry of this name. Nothing is added by `peek`, nor by `live` after
        `serve_live` was called (except inside `without_live`), nor by reads of a changed copy (`with_changes`).
        """
        self._open_records.append(record)
        try:
            yield
        finally:
            self._open_records.pop()

    def matches_reads(self, record: Reads) -> bool:
        """Return whether repeating the reads of ``record`` would give the same values.

        Adds nothing to the records of `recording`. The parameters count as read by the trial, up to the first that
        differs. True for an empty record.
        """
        return all(self._matches_read(name, then) for name, then in record.items())

    def peek(self, name: str) -> Value | ReadMark:
        """Return the parameter's value, or `ReadMark.ABSENT`, without adding it to the records of `recording`.

        The trial's lengths are values, too; declared defaults are not. The parameter still counts as read by the trial
        or, if `with_changes` has changed it, as a change that was used.
        """
        if name in self._changed_names:
            self._changes_read.add(name)
        else:
            self._names_read.add(name)
        return self._params.get(name, self._lengths.get(name, ReadMark.ABSENT))

    def _set_params(self, params: dict[str, Value]) -> None:
        """Set the parameters, and find the groups that contain them: ``a`` and ``a.b`` are the groups of ``a.b.c``."""
        self._params = params
        self._groups = set[str]()
        for name in params:
            for end, letter in enumerate(name):
                if letter == ".":
                    self._groups.add(name[:end])

    def _list_below(self, name: str) -> tuple[str, ...]:
        """Return the full names of the parameters below a group, at any depth; all names for ""."""
        return tuple(key for key in self._params if not name or key.startswith(f"{name}."))

    def _record_read(self, name: str, value: Value | ReadMark) -> None:
        """Add a read of ``value`` to the record of each `recording` block that is open.

        An earlier entry is replaced. If ``name`` is a group, only that it exists is added, unless there is an entry.
        """
        for record in self._open_records:
            if name in self._groups:
                record.setdefault(name, ReadMark.GROUP)
            else:
                record[name] = value

    def _make_read_mark(self, name: str, *, present: bool) -> ReadMark:
        """Return GROUP if ``name`` is a group; otherwise PRESENT or ABSENT, as ``present`` says of the parameter."""
        if name in self._groups:
            return ReadMark.GROUP
        return ReadMark.PRESENT if present else ReadMark.ABSENT

    def _matches_read(self, name: str, then: Value | ReadMark | tuple[str, ...]) -> bool:
        """Return whether reading a parameter now would give ``then``, what an earlier read of it has recorded.

        ``then`` is an entry of a record as in `Reads`. A value must be equal and of the same type. The parameter counts
        as read.
        """
        now = self.peek(name)
        if isinstance(then, tuple):  # the names below a group
            self._names_read.update(then)
            return self._list_below(name) == then
        if isinstance(then, ReadMark):
            return self._make_read_mark(name, present=now is not ReadMark.ABSENT) is then
        return type(now) is type(then) and now == then  # True is not 1, and 1 is not 1.0

    def _read(self, name: str) -> Value | ReadMark:
        """Return and record the trial's value; `ReadMark.ABSENT` if it has none.

        For an absent parameter that was declared while declarations are collected, the declared default is returned,
        and the absence is recorded.
        """
        value = self.peek(name)
        self._record_read(name, value)
        if isinstance(value, ReadMark):
            return self._defaults.get(name, value)
        return value

    def _describe_missing(self, name: str) -> str:
        """Return the message for a parameter or a length that the trial does not have."""
        reason = table.LENGTHS.get(name)  # why the length may be unknown; None if it is no length
        if reason:
            if self._ends_by_time:
                reason = "the sweep file has minutes and no epochs"
            return f"hp.{name} is not known here: {reason}"
        return f"the trial has no parameter {name!r}; it has: {', '.join(self._params) or 'none'}"


class NestedParameters:
    """Read access to the parameters of a group, such as ``hp.aug`` for ``aug.kind``."""

    def __init__(self, parent: Hyperparameters, prefix: str) -> None:
        self._parent = parent
        self._prefix = prefix

    def __getitem__(self, name: str) -> Value:
        return self._parent[f"{self._prefix}.{name}"]

    def __getattr__(self, name: str) -> Value | NestedParameters:
        if name.startswith("_"):
            raise AttributeError(name)
        found: Value | NestedParameters = getattr(self._parent, f"{self._prefix}.{name}")
        return found

    def __contains__(self, name: str) -> bool:
        return f"{self._prefix}.{name}" in self._parent

    def __iter__(self) -> Iterator[str]:
        return iter(self._parent.below(self._prefix))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter ``name`` of this group, or ``default`` if the trial does not have it."""
        return self._parent.get(f"{self._prefix}.{name}", default)
