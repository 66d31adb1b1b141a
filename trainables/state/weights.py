"""Weights of others, read from their file once per process however often a model with them is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

MOST_BYTES = 4 * 2**30  # where nobody says `keep`
_most = [MOST_BYTES]
_read: dict[tuple[Any, ...], list[np.ndarray[Any, Any] | None]] = {}  # used longest ago first


@contextmanager
def read_once() -> Iterator[None]:
    """Let `Model.load_weights` take what it has read of a file before, for a model like that one.

    `keras.applications` and KerasHub's presets load their weights by it. What the file did not set stays as it is.
    """
    load = keras.Model.load_weights

    def load_weights(model: keras.Model, filepath: Any, *given: Any, **options: Any) -> Any:
        key = _key(model, filepath, given, options)
        kept = None if key is None else _read.pop(key, None)
        if key is None:
            return load(model, filepath, *given, **options)
        if kept is None:
            variables = list(model.variables)
            kept = _set_by(lambda: load(model, filepath, *given, **options), variables)
            if len(variables) != len(model.variables):  # it has built the model
                return None
        else:
            for variable, value in zip(model.variables, kept, strict=True):
                if value is not None:
                    variable.assign(value)
        _read[key] = kept
        _trim()
        return None

    keras.Model.load_weights = load_weights
    try:
        yield
    finally:
        keras.Model.load_weights = load


def keep(most_bytes: float) -> None:
    """Keep so much of what was read, and always the last file's."""
    _most[0] = int(min(most_bytes, MOST_BYTES))
    _trim()


def _trim() -> None:
    while len(_read) > 1 and sum(v.nbytes for values in _read.values() for v in values if v is not None) > _most[0]:
        del _read[next(iter(_read))]


def _set_by(load: Callable[[], None], variables: list[Any]) -> list[np.ndarray[Any, Any] | None]:
    """What loading sets, None for the variables that it leaves alone.

    By their values nobody could tell: a bias may have been the zeros that the file sets. So all of them begin with
    numbers that no file holds.
    """
    before, numbers = [variable.numpy() for variable in variables], np.random.default_rng(0)
    strange = [_strange(value, numbers) for value in before]
    try:
        for variable, value in zip(variables, strange, strict=True):
            variable.assign(value)
        load()
        after = [variable.numpy() for variable in variables]
    except BaseException:
        after = strange
        raise
    finally:
        for variable, was, begun, now in zip(variables, before, strange, after, strict=True):
            if np.array_equal(begun, now):
                variable.assign(was)
    return [None if np.array_equal(begun, now) else now for begun, now in zip(strange, after, strict=True)]


def _strange(value: np.ndarray[Any, Any], numbers: np.random.Generator) -> np.ndarray[Any, Any]:
    whole = value.dtype.kind != "f"
    found = numbers.integers(2**29, 2**31 - 1, value.shape) if whole else numbers.uniform(1e3, 1e4, value.shape)
    return np.asarray(found, value.dtype)


def _tells(dtype: str) -> bool:
    """Whether a variable of this type can hold what no file holds."""
    return dtype in ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64")


def _key(model: keras.Model, filepath: Any, given: Any, options: Any) -> tuple[Any, ...] | None:
    """What decides what a file sets; None for what is no single file, and for a model whose variables would not tell.

    That is one without any yet, or with flags and small integers.
    """
    path = Path(str(filepath))
    if not path.is_file() or not model.built or not all(_tells(str(v.dtype)) for v in model.variables):
        return None
    about = path.stat()
    # Keras numbers the names of layers on for as long as a process lives.
    variables = tuple((re.sub(r"_\d+", "", v.path), tuple(v.shape), str(v.dtype)) for v in model.variables)
    return str(path.resolve()), about.st_mtime_ns, about.st_size, repr(given), repr(sorted(options.items())), variables
