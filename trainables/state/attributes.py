"""What an author's code left behind: attributes and module globals, compared by value.

What `data` leaves there is what `model`, `loss` and `augment` can see of the data, so it is part of what a compiled
program was made of; and data that left anything cannot be shared with workers that did not run `data` themselves.
"""

from __future__ import annotations

import copy
import pickle
import random
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from trainables.state import modules
from trainables.state.modules import Home


def generator_state(value: object) -> Any:
    """How far a generator is; None for what is none."""
    match value:
        case random.SystemRandom():
            return None
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return copy.deepcopy(value.bit_generator.state)
        case np.random.RandomState():
            return value.get_state()
        case tf.random.Generator() | keras.random.SeedGenerator():
            return np.asarray(value.state)
    return None


def put_generator(value: Any, state: Any) -> None:
    """Have a generator as far as it was."""
    match value:
        case random.Random():
            value.setstate(state)
        case np.random.Generator():
            value.bit_generator.state = state
        case np.random.RandomState():
            value.set_state(state)
        case _:
            value.state.assign(state)


Traces: TypeAlias = "dict[str, object]"
"""Digests by name, equal where the values are."""

LARGEST_BYTES = 256 * 2**20  # larger arrays are told apart by identity, which is safe and only slower
_DEEPEST, _MOST = 8, 20_000
_SAMPLED = 2**16  # elements of a larger one, by which it is told whether it was changed in place
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_PLAIN = ("types", "collections", "argparse")  # modules of Python's own whose objects hold what their owner puts in


def of(homes: Sequence[Home], names: Container[str] | None = None) -> Traces:
    """The data in these homes; of these names alone."""
    found = {}
    for home in homes:
        for name, value in home.data().items():
            full = f"{home.name}.{name}"
            if names is None or full in names:
                found[full] = digest(value)
    return found


def changed(before: Traces, after: Traces) -> set[str]:
    """The names whose values differ, or that are there only before or only afterwards."""
    missing = object()
    return {name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)}


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
    return Digester().digest(value)


class Same:
    """Equal to itself alone, for as long as it lives; what cannot be watched is held, so that its identity stays."""

    def __init__(self, value: object) -> None:
        self._identity = id(value)
        self._held: Callable[[], object]
        try:
            self._held = weakref.ref(value)
        except TypeError:
            self._held = lambda: value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or other._identity != self._identity:
            return False
        return self._held() is not None and self._held() is other._held()

    def __hash__(self) -> int:
        return self._identity


class Digester:
    """Digests one value; too large and too deep ones count as themselves.

    ``nbytes``: what its arrays and texts take; ``whole``: whether all of it was looked at, so that a copy is the same;
    ``code``: functions and the like in it by identity, which a copy shares with it, and what they are bound to.
    """

    def __init__(self) -> None:
        self._path: list[int] = []
        self._left = _MOST
        self.nbytes = 0
        self.whole = True
        self.code: dict[int, object] = {}

    def digest(self, value: Any) -> object:
        self._left -= 1
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            self.nbytes += len(value) if isinstance(value, str | bytes) else 8
            return type(value).__name__, repr(value) if isinstance(value, float) else value
        if id(value) in self._path or len(self._path) > _DEEPEST or self._left < 0:
            return self._same(value)
        self._path.append(id(value))
        try:
            return self._of_parts(value)
        finally:
            self._path.pop()

    def _of_parts(self, value: Any) -> object:
        if (state := generator_state(value)) is not None:
            return type(value).__name__, zlib.crc32(pickle.dumps(state))
        if modules.is_machine(value):
            return self._same(value)
        match value:
            case np.ndarray() | np.generic():
                return self._of_array(value)
            case tf.Tensor() | tf.Variable() | keras.Variable():
                self.whole = False
                return self._of_array(value)
            case Mapping():
                return "mapping", tuple((self.digest(k), self.digest(v)) for k, v in value.items())
            case list() | tuple():
                return type(value).__name__, tuple(map(self.digest, value))
            case set() | frozenset():
                return "set", frozenset(self.digest(part) for part in value)
            case keras.Layer():
                return self._same(value), tuple(map(self._of_array, value.variables)), _vocabularies(value)
            case _ if isinstance(value, _CODE):  # np.random.rand also: what it is bound to is another value
                self.code[id(value)] = value
                return Same(value)
            case _ if type(value).__module__.startswith(("tensorflow", "keras")):
                return self._same(value)
            case _ if type(value).__module__.startswith("pandas"):  # frames count what was looked at
                return self._pickled(value)
            case _ if hasattr(value, "__dict__") and _is_open(type(value)):
                return type(value).__qualname__, self.digest(vars(value))
            case _:
                return self._pickled(value)

    def _same(self, value: object) -> object:
        self.whole = False
        return Same(value)

    def _of_array(self, value: Any) -> object:
        array = np.asarray(value)
        self.nbytes += array.nbytes
        if array.dtype.hasobject:
            return self._same(value)
        if array.nbytes > LARGEST_BYTES:
            some = array.reshape(-1)[:: max(array.size // _SAMPLED, 1)] if array.flags.c_contiguous else array[:1]
            return self._same(value), zlib.crc32(np.ascontiguousarray(some).tobytes())
        return str(array.dtype), array.shape, zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _pickled(self, value: object) -> object:
        try:
            content = pickle.dumps(value)
        except Exception:  # whatever an object's own code raises: it cannot be compared by value
            return self._same(value)
        self.nbytes += len(content)
        return type(value).__qualname__, zlib.crc32(content)


def _is_open(kind: type) -> bool:
    """Whether objects of a class hold what their owner puts in; Python's own ones count what they do (loggers)."""
    top = kind.__module__.partition(".")[0]
    return top not in sys.stdlib_module_names or top in _PLAIN


def _vocabularies(layer: keras.Layer) -> tuple[int, ...]:
    """Those of lookup layers, whose tables are no variables."""
    found = []
    for part in layer._flatten_layers():
        try:
            vocabulary = part.get_vocabulary() if hasattr(part, "get_vocabulary") else ()
        except Exception:  # nothing was adapted yet
            vocabulary = ()
        found.append(zlib.crc32(repr(vocabulary).encode()))
    return tuple(found)


def kept_by(author: object, own: frozenset[str]) -> Traces:
    """The attributes of a trainable but ``own``, variables and what holds them as themselves: they may change."""
    return {name: _Held().digest(value) for name, value in vars(author).items() if name not in own}


class _Held(Digester):
    """Digests a value as it is apart from its variables."""

    def _of_parts(self, value: Any) -> object:
        if isinstance(value, tf.Variable | keras.Variable | keras.Layer):
            return self._same(value)
        return super()._of_parts(value)
