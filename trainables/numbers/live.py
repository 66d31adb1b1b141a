"""Numbers that live in variables, so that another trial's value needs no new graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sweep import standard_hyperparameters as table
from sweep.hyperparameters import Hyperparameters, Mark

_present = threading.local()


@contextmanager
def valued(values: Mapping[int, tf.Tensor]) -> Iterator[None]:
    """Have these values in place of the variables inside the block, by their identity; in this thread."""
    before = getattr(_present, "values", None)
    _present.values = values
    try:
        yield
    finally:
        _present.values = before


class LiveNumber:
    """A hyperparameter in a variable, usable where Keras expects a Python float.

    Keras keeps such floats as attributes and reads them while a step is traced; a plain float would be
    frozen into the graph. Keras also asks whether a rate is above 0 before it uses it: a live number always
    says yes, for the graph must serve trials in which it is. With plain numbers it computes as Python does, in double
    precision: 1 - 0.999 of float32 would differ in the fifth digit.
    """

    def __init__(self, name: str, value: float) -> None:
        self.variable = tf.Variable(value, trainable=False, dtype=tf.float64, name=f"hp_{name}")

    @property
    def value(self) -> tf.Tensor:
        """The present trial's value, in float64; of several trials in one graph, that of the one being computed."""
        values: Mapping[int, tf.Tensor] = getattr(_present, "values", None) or {}
        given = values.get(id(self.variable))
        return tf.convert_to_tensor(self.variable) if given is None else given

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        return tf.cast(self.value, dtype or tf.float32)

    def __float__(self) -> float:
        return float(self.variable.numpy())

    def _with(self, other: Any, operator: Callable[[Any, Any], Any]) -> tf.Tensor:
        """The result with another number, plain or in a tensor, in float32 or the tensor's type."""
        if isinstance(other, int | float):
            return tf.cast(operator(self.value, other), tf.float32)
        kind = tf.as_dtype(getattr(other, "dtype", tf.float32))
        return operator(tf.cast(self.value, kind if kind.is_floating else tf.float32), other)

    def __neg__(self) -> tf.Tensor:
        return tf.cast(-self.value, tf.float32)

    def __add__(self, other: Any) -> tf.Tensor:
        return self._with(other, lambda mine, theirs: mine + theirs)

    __radd__ = __add__

    def __sub__(self, other: Any) -> tf.Tensor:
        return self._with(other, lambda mine, theirs: mine - theirs)

    def __rsub__(self, other: Any) -> tf.Tensor:
        return self._with(other, lambda mine, theirs: theirs - mine)

    def __mul__(self, other: Any) -> tf.Tensor:
        return self._with(other, lambda mine, theirs: mine * theirs)

    __rmul__ = __mul__

    def __pow__(self, other: Any) -> tf.Tensor:
        return self._with(other, lambda mine, theirs: mine**theirs)

    def __truediv__(self, other: Any) -> tf.Tensor:
        return self._with(other, lambda mine, theirs: mine / theirs)

    def get_config(self) -> dict[str, Any]:
        """Keras asks when it writes a model down."""
        raise TypeError(
            "a live number of sweep stands where Keras saves a plain one; call trainables.numbers.live.settle(model) "
            "before model.save(), which puts its present value there"
        )

    def __gt__(self, other: float) -> bool:
        return True

    def __ge__(self, other: float) -> bool:
        return float(self) >= other

    def __le__(self, other: float) -> bool:
        return float(self) <= other

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


@dataclass(frozen=True)
class _Entry:
    number: LiveNumber
    default: float | None
    meaning: Mapping[str, float] | None
    bounds: table.Bounds | None


def settle(model: Any) -> None:
    """Replace the live numbers of a model's layers by their present values, for saving it; it is not trained after."""
    for layer in model._flatten_layers():
        for name, value in list(vars(layer).items()):
            if isinstance(value, LiveNumber):
                setattr(layer, name, float(value))


class Live:
    """The live numbers of one compiled structure, and how each trial sets them."""

    def __init__(self, hp: Hyperparameters) -> None:
        self._hp = hp
        self._entries: dict[str, _Entry] = {}

    def number(
        self,
        name: str,
        meaning: Mapping[str, float] | None = None,
        *,
        default: float | None = None,
        bounds: tuple[float, float] | None = None,
        standard: bool = False,
    ) -> LiveNumber:
        """The number of a parameter; ``meaning`` maps the choices of a text parameter to numbers.

        Raises KeyError for an absent parameter without default, TypeError for a value that is no number,
        ValueError for one that has no meaning or lies outside of ``bounds``, or of those that the ``standard``
        hyperparameter of this name has.
        """
        if name not in self._entries:
            within = table.within(name, bounds, standard=standard)
            value = _number(self._hp, name, default, meaning, within)
            with tf.init_scope():
                self._entries[name] = _Entry(LiveNumber(name, value), default, meaning, within)
        return self._entries[name].number

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """The variables of all numbers; a trial's parameters set them, so no checkpoint need hold them."""
        return tuple(entry.number.variable for entry in self._entries.values())

    def outside_of(self, captured: Container[int], components: Callable[[Any], Sequence[Any]]) -> list[str]:
        """Return the parameters whose numbers are not among the captured variables, known by their handles."""
        return [
            name
            for name, entry in self._entries.items()
            if not any(id(part.handle) in captured for part in components(entry.number.variable))
        ]

    def set(self, hp: Hyperparameters) -> None:
        """Take the values of another trial."""
        self._hp = hp
        for name, entry in self._entries.items():
            entry.number.variable.assign(_number(hp, name, entry.default, entry.meaning, entry.bounds))

    @contextmanager
    def turned_on(self) -> Iterator[None]:
        """Inside the block, have other values than the trial's: none is 0, and the others are nearer to it."""
        before = [float(variable.numpy()) for variable in self.variables]
        try:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value * 0.75 or 0.5)  # a rate stays below 1
            yield
        finally:
            for variable, value in zip(self.variables, before, strict=True):
                variable.assign(value)

    def accepts(self, hp: Hyperparameters) -> bool:
        """Whether a trial has a value for each of these parameters."""
        return all(
            entry.default is not None or hp.peek(name) is not Mark.ABSENT for name, entry in self._entries.items()
        )


class Settled(Live):
    """Gives plain floats, for a model that serves one trial alone."""

    def number(  # type: ignore[override]  # a float goes wherever a live number does
        self,
        name: str,
        meaning: Mapping[str, float] | None = None,
        *,
        default: float | None = None,
        bounds: tuple[float, float] | None = None,
        standard: bool = False,
    ) -> float:
        """The trial's value of a parameter; raises as `Live.number` does."""
        return _number(self._hp, name, default, meaning, table.within(name, bounds, standard=standard))


def _number(
    hp: Hyperparameters,
    name: str,
    default: float | None,
    meaning: Mapping[str, float] | None,
    within: table.Bounds | None,
) -> float:
    value = hp.peek(name)  # not a plain read: the structure does not depend on it
    if value is not Mark.ABSENT:
        return table.as_number(name, value, meaning, within)  # type: ignore[arg-type]  # the only mark there is
    if default is None:
        raise KeyError(f"the trial has no parameter {name!r}")
    return default
