"""A trial's hyperparameters as code reads them, and a record of what was read.

Also in KerasTuner's spelling: ``hp.Int("units", 8, 64)`` is the trial's value, or its default. Where somebody listens,
each call is a declaration, of which `sweep init --from-hypermodel` makes the space of a file.
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
    """A parameter as code has declared it."""

    name: str
    keys: Mapping[str, Any]  # as in a sweep file
    default: Value
    choices: Sequence[Value] = ()  # all that it may be, where these can be counted
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)


class Declaring:
    """The methods of KerasTuner's ``HyperParameters`` that declare a parameter and give its value.

    A sweep file that has the parameter decides which values it takes; the bounds in the code are those of `init`.
    """

    _declared: list[Declaration] | None = None  # where declarations are noted
    _defaults: dict[str, Value]  # of what was declared while somebody listens, for whoever asks for it afterwards
    _within: tuple[tuple[str, tuple[Value, ...]], ...] = ()  # the conditional scopes around
    _prefix = ""  # of the names inside of name scopes

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
    ) -> int:
        """Return a whole number; the default, or else ``min_value``, where the trial has none of this name.

        Raises ValueError for ``sampling`` other than "linear" and "log", TypeError for a value that is not whole.
        """
        keys = _numbers(name, min_value, max_value, step, sampling, whole=True)
        in_steps = range(_plain(min_value), _plain(max_value) + 1, _plain(step or 1))
        choices = keys["values"] if sampling == "log" and step else in_steps
        first = _plain(min_value if default is None else default)
        return _whole(name, self._value(name, keys, first, choices, parent_name, parent_values))

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
    ) -> float:
        """Return a number; the default, or else ``min_value``, where the trial has none of this name.

        Raises as `Int` does.
        """
        keys = _numbers(name, float(min_value), float(max_value), step, sampling, whole=False)
        first = _plain(min_value if default is None else default)
        return _number(name, self._value(name, keys, first, (), parent_name, parent_values))

    def Choice(
        self,
        name: str,
        values: Sequence[Any],
        ordered: bool | None = None,
        default: Any = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Return one of some values; the default, or else the first, where the trial has none of this name."""
        plain = [_plain(value) for value in values]
        first = plain[0] if default is None else _plain(default)
        choices = plain if all(isinstance(value, Hashable) for value in plain) else ()
        return self._value(name, {"values": plain}, first, choices, parent_name, parent_values)

    def Boolean(
        self, name: str, default: bool = False, parent_name: str | None = None, parent_values: Any = None
    ) -> bool:
        """Return true or false; raise TypeError for another value."""
        return _flag(
            name, self._value(name, {"values": [False, True]}, default, (False, True), parent_name, parent_values)
        )

    def Fixed(self, name: str, value: Any, parent_name: str | None = None, parent_values: Any = None) -> Any:
        """Return the value, or the trial's where it has one of this name."""
        return self._value(name, {"value": _plain(value)}, _plain(value), (), parent_name, parent_values)

    @contextmanager
    def conditional_scope(self, parent_name: str, parent_values: Any) -> Iterator[None]:
        """Say of what is declared inside the block that it matters only where a parameter has one of some values."""
        before = self._within
        self._within = (*before, (self._prefix + parent_name, _listed(parent_values)))
        try:
            yield
        finally:
            self._within = before

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Put a name and a dot before those of what is declared inside the block."""
        before = self._prefix
        self._prefix = f"{before}{name}."
        try:
            yield
        finally:
            self._prefix = before

    def declare_into(self, declared: list[Declaration]) -> None:
        """Note in this list what is declared from now on."""
        self._declared = declared

    def _value(
        self,
        name: str,
        keys: Mapping[str, Any],
        default: Any,
        choices: Sequence[Any],
        parent_name: str | None,
        parent_values: Any,
    ) -> Any:
        name = self._prefix + name
        if self._declared is not None:
            when = dict(self._within)
            if parent_name is not None:
                when[self._prefix + parent_name] = _listed(parent_values)
            self._declared.append(Declaration(name, keys, default, choices, when))
        value = self.get(name, default)
        if self._declared is not None:  # not in a trial: one that finds a kept program runs none of this code
            self._defaults.setdefault(name, default)
        return value


def _numbers(
    name: str, low: float, high: float, step: float | None, sampling: str | None, *, whole: bool
) -> dict[str, Any]:
    """The keys of a sweep file for a range; of one in steps all values, each as likely as the next."""
    low, high, step = _plain(low), _plain(high), _plain(step)
    if sampling not in (None, "linear", "log"):
        raise ValueError(f"parameter {name!r} has sampling {sampling!r}, expected linear or log")
    if step is None or (whole and step == 1 and sampling != "log"):
        if sampling == "log":
            kind = "int_log_uniform_values" if whole else "log_uniform_values"
            return {"distribution": kind, "min": low, "max": high}
        return {"min": low, "max": high}
    first, size, last = (Decimal(str(number)) for number in (low, step, high))  # 0.3, and not 0.30000000000000004
    values = [first]
    while (following := values[-1] * size if sampling == "log" else first + len(values) * size) <= last:
        values.append(following)
    return {"values": [int(value) if whole else float(value) for value in values]}


def _plain(value: Any) -> Any:
    """Return a number or text of NumPy's as Python's own."""
    return value.item() if hasattr(value, "item") else value


def _number(name: str, value: Any, kind: str = "a number") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"parameter {name!r} is {value!r}, expected {kind}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if not _number(name, value, "a whole number").is_integer():
        raise TypeError(f"parameter {name!r} is {value!r}, expected a whole number")
    return int(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"parameter {name!r} is {value!r}, expected true or false")
    return value


def _listed(values: Any) -> tuple[Value, ...]:
    return tuple(values) if isinstance(values, list | tuple) else (values,)


def _reading_all(method: Any) -> Any:
    """Return a method of `Watched` that reads all parameters: one of a mapping as a whole."""

    def reading(watched: Watched, *given: Any) -> Any:
        watched.seen.update(dict.keys(watched))
        return method(watched, *given)

    return reading


class Watched(dict[str, Value]):
    """Parameters that tell which of them were read; a copy of the mapping as a whole reads all of them."""

    def __init__(self, params: Params, seen: set[str]) -> None:
        super().__init__(params)
        self.seen = seen

    def __getitem__(self, name: str) -> Value:
        self.seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    __iter__, keys, values, items = map(_reading_all, (dict.__iter__, dict.keys, dict.values, dict.items))
    copy, __or__, __ror__, __eq__ = map(_reading_all, (dict.copy, dict.__or__, dict.__ror__, dict.__eq__))

    def __reduce__(self) -> tuple[type, tuple[dict[str, Value]]]:
        return dict, (dict(dict.items(self)),)  # elsewhere nobody watches


class Mark(Enum):
    """Stands in a record where no value was read."""

    ABSENT = "absent"  # asked for, and not in the trial
    PRESENT = "present"  # asked whether it is there, and it is


Reads: TypeAlias = "dict[str, Value | Mark | tuple[str, ...]]"
"""What was read, by name; where `below` was asked, the names, which are all of them under the empty name."""


def to_json(reads: Reads) -> str:
    """Reads as text, the same for the same reads: a value in a list of one, a mark by its name, names as they are."""
    told = {
        name: was.value if isinstance(was, Mark) else {"below": list(was)} if isinstance(was, tuple) else [was]
        for name, was in reads.items()
    }
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Reads:
    """Return the inverse of `to_json`."""
    reads: Reads = {}
    for name, told in json.loads(text).items():
        match told:
            case [value]:
                reads[name] = value
            case {"below": [*names]}:
                reads[name] = tuple(map(str, names))
            case _:
                reads[name] = Mark(told)
    return reads


class Hyperparameters(Declaring):
    """Read access by attribute (``hp.learning_rate``), item (``hp["aug.kind"]``) or `get`.

    A nested parameter is read by its dotted name or attribute by attribute (``hp.aug.kind``). Raises
    AttributeError or KeyError, naming the trial's parameters, for one that the trial does not have.
    """

    def __init__(self, params: Params) -> None:
        self._seen = params.seen if isinstance(params, Watched) else set[str]()
        self._hold(dict(dict.items(params) if isinstance(params, Watched) else params))
        self._records: list[Reads] = []
        self._changed: frozenset[str] = frozenset()  # by `but`: reading them is not reading the trial's
        self._used = set[str]()  # of these
        self._live: Callable[..., Any] | None = None
        self._defaults, self._lengths = dict[str, Value](), dict[str, Value]()

    def know(self, **lengths: int) -> None:
        """Give the trial's ``epochs`` and ``updates`` under these names, where it has no parameter of that name."""
        self._lengths.update(lengths)

    def but(self, changes: Mapping[str, Value]) -> Hyperparameters:
        """Return these with some changed, None: not there; what is read of the others is read of these too."""
        if not changes:
            return self
        changed = Hyperparameters({})
        kept = {name: value for name, value in self._params.items() if name not in changes}
        changed._hold(kept | {name: value for name, value in changes.items() if value is not None})
        changed._seen, changed._changed = self._seen, self._changed | set(changes)
        changed._live, changed._defaults, changed._lengths = self._live, self._defaults, dict(self._lengths)
        return changed

    @property
    def unused_changes(self) -> tuple[str, ...]:
        """What `but` has changed and nobody has asked for."""
        return tuple(sorted(self._changed - self._used))

    def __getitem__(self, name: str) -> Value:
        value = self._read(name)
        if isinstance(value, Mark):
            raise KeyError(self._missing(name))
        return value

    def __getattr__(self, name: str) -> Value | Group:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._groups:
            self._note(name, Mark.ABSENT)
            return Group(self, name)
        if isinstance(value := self._read(name), Mark):
            raise AttributeError(self._missing(name))
        return value

    def __contains__(self, name: str) -> bool:
        present = self.peek(name) is not Mark.ABSENT
        for record in self._records:
            record.setdefault(name, Mark.PRESENT if present or name in self._groups else Mark.ABSENT)
        return present or name in self._defaults

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def to_dict(self) -> dict[str, Value]:
        """Return all parameters by name, and all of them read: for ``**hp.to_dict()``."""
        for name in self._params:
            self._read(name)
        for record in self._records:
            record[""] = self._below("")  # and that there are no more
        return dict(self._params)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter, or ``default`` where the trial does not have it."""
        value = self._read(name)
        return default if isinstance(value, Mark) else value

    def _given(self, name: str, default: Any, *, standard: bool = False) -> Any:
        """Return the parameter; raise KeyError if it is absent without default, ValueError as `number` does."""
        value = self[name] if default is None else self.get(name, default)
        if standard:
            table.check(name, value)
        return value

    def number(self, name: str, default: float | None = None, *, standard: bool = False) -> float:
        """Return the parameter as a float; raise TypeError if it is none, KeyError if absent without default.

        ``standard``: as the standard hyperparameter of this name; raises ValueError outside of its bounds.
        """
        return _number(name, self._given(name, default, standard=standard))

    def integer(self, name: str, default: int | None = None, *, standard: bool = False) -> int:
        """The parameter as an int; raises TypeError if it is not a whole number. ``standard``: as for `number`."""
        return _whole(name, self._given(name, default, standard=standard))

    def text(self, name: str, default: str | None = None, *, standard: bool = False) -> str:
        """Return the parameter as a string; raise TypeError if it is none. ``standard``: as for `number`."""
        value = self._given(name, default, standard=standard)
        if not isinstance(value, str):
            raise TypeError(f"parameter {name!r} is {value!r}, expected a text")
        return value

    def below(self, name: str) -> tuple[str, ...]:
        """Return the names of the parameters below a nested name, without it; none where there are none."""
        names = self._below(name)
        self._seen.update(names)
        for record in self._records:
            record[name] = names
        return tuple(key.removeprefix(f"{name}.") for key in names)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """Return the parameter as true or false; raise TypeError if it is neither."""
        return _flag(name, self._given(name, default))

    def choice(self, name: str, choices: Sequence[Any], default: Any = Mark.ABSENT) -> Any:
        """Return the parameter, which has to be one of these values; raise ValueError for another.

        Raises KeyError for an absent parameter without default.
        """
        value = self[name] if default is Mark.ABSENT else self.get(name, default)
        table.check_choice(name, value, [_plain(choice) for choice in choices])
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
        """Return the parameter as a number that changes from trial to trial in one compiled program.

        It goes wherever Keras takes a float: ``keras.layers.Dropout(hp.live("dropout", 0.1))``. Trials that differ in
        nothing else share a program, where `number` would make one for each value. In `data`, and outside of a trial,
        it is a plain float.

        ``meaning`` maps the choices of a text parameter to numbers. Raises KeyError for an absent parameter without
        default, TypeError for a value that is no number, ValueError for one that has no meaning or lies outside of
        ``bounds``, or of those that the ``standard`` hyperparameter of this name has.
        """
        if self._live is not None:
            return self._live(name, meaning, default=default, bounds=bounds, standard=standard)
        return table.as_number(name, self._given(name, default), meaning, table.within(name, bounds, standard=standard))

    def serve_live(self, source: Callable[..., Any]) -> None:
        """Let `live` give the numbers of a program, as ``source`` does."""
        self._live = source

    @contextmanager
    def without_live(self) -> Iterator[None]:
        """Inside the block, `live` gives plain floats, and is a read as any other."""
        before, self._live = self._live, None
        try:
            yield
        finally:
            self._live = before

    @contextmanager
    def recording(self, record: Reads) -> Iterator[None]:
        """Add to ``record`` what is read inside the block."""
        self._records.append(record)
        try:
            yield
        finally:
            self._records.pop()

    def agree(self, record: Reads) -> bool:
        """Return whether the same reads would give the same answers here; leaves no trace in any record."""
        return all(self._same(name, then) for name, then in record.items())

    def peek(self, name: str) -> Value | Mark:
        """Return the value, or `Mark.ABSENT`, without a trace in any record."""
        (self._used if name in self._changed else self._seen).add(name)
        return self._params.get(name, self._lengths.get(name, Mark.ABSENT))

    def _hold(self, params: dict[str, Value]) -> None:
        self._params = params
        self._groups = {key[:end] for key in params for end, letter in enumerate(key) if letter == "."}

    def _below(self, name: str) -> tuple[str, ...]:
        return tuple(key for key in self._params if not name or key.startswith(f"{name}."))

    def _note(self, name: str, found: Value | Mark) -> None:
        for record in self._records:
            if name in self._groups:  # that there are some below it is what was found
                record.setdefault(name, Mark.PRESENT)
            else:
                record[name] = found

    def _same(self, name: str, then: Value | Mark | tuple[str, ...]) -> bool:
        now = self.peek(name)
        if isinstance(then, tuple):
            self._seen.update(then)
            return self._below(name) == then
        if isinstance(then, Mark):
            return (now is not Mark.ABSENT or name in self._groups) is (then is Mark.PRESENT)
        return type(now) is type(then) and now == then

    def _read(self, name: str) -> Value | Mark:
        """Return what the trial has; for `init`, also what the code has declared before."""
        value = self.peek(name)
        self._note(name, value)
        return self._defaults.get(name, value) if isinstance(value, Mark) else value

    def _missing(self, name: str) -> str:
        if why := table.LENGTHS.get(name):
            return f"hp.{name} is not known here: {why}"
        return f"the trial has no parameter {name!r}; it has: {', '.join(self._params) or 'none'}"


class Group:
    """The parameters below one nested name."""

    def __init__(self, parent: Hyperparameters, prefix: str) -> None:
        self._parent = parent
        self._prefix = prefix

    def __getitem__(self, name: str) -> Value:
        return self._parent[f"{self._prefix}.{name}"]

    def __getattr__(self, name: str) -> Value | Group:
        if name.startswith("_"):
            raise AttributeError(name)
        found: Value | Group = getattr(self._parent, f"{self._prefix}.{name}")
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """As `Hyperparameters.get`, below this name."""
        return self._parent.get(f"{self._prefix}.{name}", default)
