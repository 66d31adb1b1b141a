"""KerasTuner's spelling of hyperparameters: ``hp.Int("units", 8, 64)`` is the trial's value, or its default.

Where somebody listens, each call is a declaration, of which `sweep init --from-hypermodel` makes the space of a file.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sweep.events import Value


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
        value = self._value(name, keys, first, choices, parent_name, parent_values)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise TypeError(f"parameter {name!r} is {value!r}, expected a whole number")
        return int(value)

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
        value = self._value(name, keys, first, (), parent_name, parent_values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"parameter {name!r} is {value!r}, expected a number")
        return float(value)

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
        value = self._value(name, {"values": [False, True]}, default, (False, True), parent_name, parent_values)
        if not isinstance(value, bool):
            raise TypeError(f"parameter {name!r} is {value!r}, expected true or false")
        return value

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


def _listed(values: Any) -> tuple[Value, ...]:
    return tuple(values) if isinstance(values, list | tuple) else (values,)
