"""Hyperparameters in variables, so that trials with other values can use the same graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import tensorflow as tf

from sweep import standard_hyperparameters as table
from sweep.hyperparameters import Hyperparameters, ReadMark

_present = threading.local()


@contextmanager
def replacing_values(values: Mapping[int, tf.Tensor]) -> Iterator[None]:
    """Use tensors in place of the variables of live numbers inside the block, in this thread.

    ``values`` maps the ids of variables to tensors.
    """
    before = getattr(_present, "values", None)
    _present.values = values
    try:
        yield
    finally:
        _present.values = before


class LiveNumber:
    """A hyperparameter in a variable, so that a graph need not be traced again for another value.

    Use it as a float. Keras keeps such floats as attributes and reads them while a step is traced, so a plain float
    would become a constant of the graph. Keras also asks whether a rate is above 0 before it uses it. A live number
    always answers yes, because the graph must also serve trials whose rate is above 0. With plain numbers it computes
    in double precision, as Python does: in float32, 1 - 0.999 would differ in the fifth digit.
    """

    def __init__(self, name: str, value: float) -> None:
        self.name = name
        self.variable = tf.Variable(value, trainable=False, dtype=tf.float64, name=f"hp_{name}")

    @property
    def value(self) -> tf.Tensor:
        """The value of the present trial as a float64 tensor.

        In a graph that computes several trials, it is the value of the trial that is being computed.
        """
        replacements: Mapping[int, tf.Tensor] = getattr(_present, "values", None) or {}
        replacement = replacements.get(id(self.variable))
        if replacement is None:
            return tf.convert_to_tensor(self.variable)
        return replacement

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        return tf.cast(self.value, dtype or tf.float32)

    def __float__(self) -> float:
        return float(self.variable.numpy())

    def _apply_operator(self, other: Any, operator: Callable[[Any, Any], Any]) -> tf.Tensor:
        """Return the result of an operation with another number, in float32 or in the type of a floating tensor."""
        if isinstance(other, int | float):  # in double precision until the result, see the class
            return tf.cast(operator(self.value, other), tf.float32)
        kind = tf.as_dtype(getattr(other, "dtype", tf.float32))
        return operator(tf.cast(self.value, kind if kind.is_floating else tf.float32), other)

    def __neg__(self) -> tf.Tensor:
        return tf.cast(-self.value, tf.float32)

    def __abs__(self) -> tf.Tensor:
        return tf.cast(tf.abs(self.value), tf.float32)

    def __add__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine + theirs)

    __radd__ = __add__

    def __sub__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine - theirs)

    def __rsub__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: theirs - mine)

    def __mul__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine * theirs)

    __rmul__ = __mul__

    def __pow__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine**theirs)

    def __rpow__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: theirs**mine)

    def __truediv__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine / theirs)

    def __rtruediv__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: theirs / mine)

    def __floordiv__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine // theirs)

    def __rfloordiv__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: theirs // mine)

    def __mod__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: mine % theirs)

    def __rmod__(self, other: Any) -> tf.Tensor:
        return self._apply_operator(other, lambda mine, theirs: theirs % mine)

    def get_config(self) -> dict[str, Any]:
        """Raise TypeError in every case, because Keras calls this to save a model, which needs plain numbers."""
        raise TypeError(
            "the model contains a live number of sweep, expected a plain one to save; let a "
            "keras.callbacks.ModelCheckpoint save it, which gets plain ones, or take sweep.load(NAME).model()"
        )

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(
            f'the live number "{self.name}" cannot be {what}; read it with hp.number("{self.name}") there, which makes '
            "a program for each value, in place of hp.live() or self.dropout(hp)"
        )

    def __lt__(self, other: Any) -> bool:
        self._refuse(f"compared with {other!r}, as a recurrent layer compares its dropout")

    def __int__(self) -> int:
        self._refuse("made a whole number")

    def __gt__(self, other: float) -> bool:
        return True

    def __ge__(self, other: float) -> bool:
        with tf.init_scope():  # a layer that another one creates while it is traced checks its rate
            return float(self) >= other

    def __le__(self, other: float) -> bool:
        with tf.init_scope():
            return float(self) <= other

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


@dataclass(frozen=True)
class _LiveEntry:
    """A live number, with the default and the bounds that are needed to set it for another trial."""

    number: LiveNumber
    default: float | None
    meaning: Mapping[str, float] | None
    bounds: table.Bounds | None


@contextmanager
def settling(owners: Iterable[object]) -> Iterator[None]:
    """Replace the live numbers that are themselves attributes of ``owners`` by their present values inside the block.

    Keras can then save a model that consists of these layers, optimizers and losses. The live numbers are put back
    after the block, also if it raises. Objects without a ``__dict__`` are ignored.
    """
    found = []
    for owner in owners:
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, LiveNumber):
                found.append((owner, name, value))
    for owner, name, number in found:
        setattr(owner, name, float(number))
    try:
        yield
    finally:
        for owner, name, number in found:
            setattr(owner, name, number)


class Live:
    """The live numbers of one program; each trial sets them to its own values."""

    def __init__(self, hp: Hyperparameters) -> None:
        self._hp = hp
        self._entries: dict[str, _LiveEntry] = {}

    def number(
        self,
        name: str,
        meaning: Mapping[str, float] | None = None,
        *,
        default: float | None = None,
        bounds: tuple[float, float] | None = None,
        standard: bool = False,
    ) -> LiveNumber:
        """Return the live number of a parameter; the first call creates it, later ones use only ``name``.

        ``meaning`` maps the choices of a text parameter to numbers. With ``standard``, the bounds are those of the
        standard hyperparameter of this name. The default is not checked against them. The read is not recorded, so
        trials with other values can use the same program.

        The first call raises KeyError if the parameter is absent and has no default, TypeError if its value is not a
        number, and ValueError if its value has no meaning or is out of bounds.
        """
        if name not in self._entries:
            within = table.choose_bounds(name, bounds, standard=standard)
            value = _read_number(self._hp, name, default, meaning, within)
            # the first call may come while a graph is traced, which must not own the variable
            with tf.init_scope():
                self._entries[name] = _LiveEntry(LiveNumber(name, value), default, meaning, within)
        return self._entries[name].number

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters that were read as live numbers, in the order of the first reads."""
        return tuple(self._entries)

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """The variables of all numbers, in the order of `names`.

        Checkpoints do not need them, because each trial sets them.
        """
        return tuple(entry.number.variable for entry in self._entries.values())

    def find_unused(
        self, captured: Container[int], components: Callable[[Any], Sequence[Any]]
    ) -> list[str]:
        """Return the names of the parameters whose variables a graph does not use.

        ``captured`` has the ids of the handles that the graph captures, and ``components`` gives a variable's part on
        each replica.
        """
        outside = []
        for name, entry in self._entries.items():
            if not any(id(part.handle) in captured for part in components(entry.number.variable)):
                outside.append(name)
        return outside

    def set(self, hp: Hyperparameters) -> None:
        """Assign to all live numbers the values of a trial's hyperparameters, or their defaults.

        Numbers that are created later also read ``hp``. Raises the errors of `number`; numbers before the wrong one are
        then already set.
        """
        self._hp = hp
        for name, entry in self._entries.items():
            entry.number.variable.assign(
                _read_number(hp, name, entry.default, entry.meaning, entry.bounds)
            )

    @contextmanager
    def all_turned_on(self) -> Iterator[None]:
        """Set all live numbers to other values that are not 0 inside the block, and back after it.

        0 becomes 0.5; other values are multiplied by 0.75. So a test in the block also covers what a value of 0 would
        turn off. Numbers that are created in the block keep their values.
        """
        before = []
        for variable in self.variables:
            before.append(float(variable.numpy()))
        try:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value * 0.75 or 0.5)  # smaller, so that a rate stays below 1
            yield
        finally:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value)

    def accepts(self, hp: Hyperparameters) -> bool:
        """Return whether each live number has a value in the trial's hyperparameters, or a default.

        Values are not checked.
        """
        for name, entry in self._entries.items():
            if entry.default is None and hp.peek(name) is ReadMark.ABSENT:
                return False
        return True


class PlainNumbers(Live):
    """Plain floats instead of live numbers, for a model that serves one trial alone."""

    def number(  # type: ignore[override]  # a float goes wherever a live number does
        self,
        name: str,
        meaning: Mapping[str, float] | None = None,
        *,
        default: float | None = None,
        bounds: tuple[float, float] | None = None,
        standard: bool = False,
    ) -> float:
        """Return the trial's value of a parameter, or the default, as a float; raises what `Live.number` raises.

        Each call reads the value; nothing is kept, so `names` and `variables` stay empty.
        """
        return _read_number(
            self._hp, name, default, meaning, table.choose_bounds(name, bounds, standard=standard)
        )


def _read_number(
    hp: Hyperparameters,
    name: str,
    default: float | None,
    meaning: Mapping[str, float] | None,
    within: table.Bounds | None,
) -> float:
    """Return a parameter's value as a float, or the default, unchecked, if the parameter is absent.

    ``meaning`` maps the choices of a text parameter to numbers, ``within`` are the bounds. The read is not recorded.
    Raises: KeyError: if there is neither value nor default. TypeError: if the value is no number. ValueError: if it has
    no meaning or is out of bounds.
    """
    # does not record a read, because the structure does not depend on the value
    value = hp.peek(name)
    if value is not ReadMark.ABSENT:
        return table.convert_to_number(name, value, meaning, within)  # type: ignore[arg-type]  # ABSENT is the one mark
    if default is None:
        raise KeyError(f"the trial has no parameter {name!r}")
    return default
