"""What an author's code left behind: attributes and module globals, compared by value.

What `data` leaves there is what `model`, `loss` and `augment` can see of the data, so it is part of what a compiled
program was made of; and data that left anything cannot be shared with workers that did not run `data` themselves.
"""

from __future__ import annotations

import pickle
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

Traces: TypeAlias = "dict[str, object]"
"""Digests by name, equal where the values are."""

LARGEST_BYTES = 256 * 2**20  # larger arrays are told apart by identity, which is safe and only slower
_DEEPEST, _MOST = 8, 20_000
_HISTORY = frozenset({"In", "Out"})  # of a notebook
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def of(author: object, own: frozenset[str]) -> Traces:
    """The state of a trainable: its attributes but ``own``, and the data among its classes' and modules' globals."""
    found = {f"self.{name}": value for name, value in vars(author).items() if name not in own}
    for kind in type(author).__mro__:
        around = _globals(kind)
        if (
            kind is object
            or around is None
            or kind.__module__.startswith(("trainables.keras_trainable", "trainables.recipe.author"))
        ):
            continue
        for home, names in ((kind.__qualname__, vars(kind)), (kind.__module__, around)):
            found |= {f"{home}.{name}": value for name, value in names.items() if _is_data(name, value)}
    return {name: digest(value) for name, value in found.items()}


def _globals(kind: type) -> Mapping[str, object] | None:
    """What surrounds a class; of one that was defined in a notebook, as its own methods see it, here or in a worker."""
    if kind.__module__ == "__main__":
        methods = (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
        around: Mapping[str, object] = next((method.__globals__ for method in methods), {})
        return {name: value for name, value in around.items() if name[0] != "_" and name not in _HISTORY}
    module = sys.modules.get(kind.__module__)
    return None if module is None else vars(module)


def changed(before: Traces, after: Traces) -> set[str]:
    """The names whose values differ, or that are there only afterwards."""
    return {name for name, value in after.items() if name not in before or before[name] != value}


def kept(author: object, own: frozenset[str]) -> dict[str, object]:
    """The attributes of a trainable but ``own``."""
    return {name: value for name, value in vars(author).items() if name not in own}


def put(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> None:
    """Be what the author's methods have made of the trainable: what they keep on it belongs to one program."""
    for name in kept(author, own):
        delattr(author, name)
    vars(author).update(attributes)


@contextmanager
def as_left(author: object, own: frozenset[str], attributes: Mapping[str, object]) -> Iterator[None]:
    """Have these attributes inside the block, and those of before after it."""
    before = kept(author, own)
    put(author, own, attributes)
    try:
        yield
    finally:
        put(author, own, before)


def digest(value: Any) -> object:
    """Equal for equal values; of what cannot be compared, for the same object alone."""
    return _Digester().digest(value)


def _is_data(name: str, value: object) -> bool:
    return not name.startswith("__") and not isinstance(value, _CODE) and not callable(value)


class _Same:
    """Equal to itself alone, for as long as it lives; what cannot be watched is held, so that its identity stays."""

    def __init__(self, value: object) -> None:
        self._identity = id(value)
        self._held: Callable[[], object]
        try:
            self._held = weakref.ref(value)
        except TypeError:
            self._held = lambda: value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or other._identity != self._identity:
            return False
        return self._held() is not None and self._held() is other._held()

    def __hash__(self) -> int:
        return self._identity


class _Digester:
    """Digests one value; too large and too deep ones count as themselves."""

    def __init__(self) -> None:
        self._path: list[int] = []
        self._left = _MOST

    def digest(self, value: Any) -> object:
        self._left -= 1
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return type(value).__name__, repr(value) if isinstance(value, float) else value
        if id(value) in self._path or len(self._path) > _DEEPEST or self._left < 0:
            return _Same(value)
        self._path.append(id(value))
        try:
            return self._of_parts(value)
        finally:
            self._path.pop()

    def _of_parts(self, value: Any) -> object:
        match value:
            case np.ndarray() | np.generic() | tf.Tensor() | tf.Variable() | keras.Variable():
                return _of_array(value)
            case Mapping():
                return "mapping", tuple((self.digest(k), self.digest(v)) for k, v in value.items())
            case list() | tuple():
                return type(value).__name__, tuple(map(self.digest, value))
            case set() | frozenset():
                return "set", frozenset(self.digest(part) for part in value)
            case keras.Layer():
                return _Same(value), tuple(map(_of_array, value.variables))
            case type() | types.FunctionType() | types.ModuleType():
                return _Same(value)
            case _ if type(value).__module__.startswith(("tensorflow", "keras")):
                return _Same(value)
            case _ if hasattr(value, "__dict__"):
                return type(value).__qualname__, self.digest(vars(value))
            case _:
                return _pickled(value)


def _of_array(value: Any) -> object:
    array = np.asarray(value)
    if array.dtype.hasobject or array.nbytes > LARGEST_BYTES:
        return _Same(value)
    return str(array.dtype), array.shape, zlib.crc32(np.ascontiguousarray(array).tobytes())


def _pickled(value: object) -> object:
    try:
        return type(value).__qualname__, zlib.crc32(pickle.dumps(value))
    except Exception:  # whatever an object's own code raises: it cannot be compared by value
        return _Same(value)


def kept_by(author: object, own: frozenset[str]) -> Traces:
    """The attributes of a trainable but ``own``, variables and what holds them as themselves: they may change."""
    return {name: _Held().digest(value) for name, value in vars(author).items() if name not in own}


class _Held(_Digester):
    """Digests a value as it is apart from its variables."""

    def _of_parts(self, value: Any) -> object:
        if isinstance(value, tf.Variable | keras.Variable | keras.Layer):
            return _Same(value)
        return super()._of_parts(value)
