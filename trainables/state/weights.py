"""A cache of pretrained weights, so that each file is read once per process for any number of models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

MOST_BYTES = 4 * 2**30  # limit if `limit_cache` was not called
_limit_bytes = [MOST_BYTES]
# least recently used first
_cached_values: dict[tuple[Any, ...], list[np.ndarray[Any, Any] | None]] = {}


@contextmanager
def caching_weights() -> Iterator[None]:
    """Make `Model.load_weights` cache the values that it reads, and reuse them for models of the same kind.

    `keras.applications` and KerasHub's presets load their weights through it. Variables that the file does not set stay
    unchanged. Models that are not built, and files that cannot be cached, are loaded as usual. The method is replaced
    for the class, in all threads, only inside the block; the cache stays, within the limit of `limit_cache`.
    """
    load = keras.Model.load_weights

    def load_weights(model: keras.Model, filepath: Any, *arguments: Any, **options: Any) -> Any:
        key = _key(model, filepath, arguments, options)
        if key is None:
            return load(model, filepath, *arguments, **options)
        cached = _cached_values.pop(key, None)  # put back below, as the one used last
        if cached is None:
            variables = list(model.variables)
            cached = _load_and_compare(
                lambda: load(model, filepath, *arguments, **options), variables
            )
            if len(variables) != len(model.variables):  # loading has built the model
                return None
        else:
            for variable, value in zip(model.variables, cached, strict=True):
                if value is not None:
                    variable.assign(value)
        _cached_values[key] = cached
        _trim()
        return None

    keras.Model.load_weights = load_weights
    try:
        yield
    finally:
        keras.Model.load_weights = load


def limit_cache(most_bytes: float) -> None:
    """Limit the cache of weights to ``most_bytes`` bytes, at most 4 GiB, and drop the files used least recently.

    The file used last is always kept.
    """
    _limit_bytes[0] = int(min(most_bytes, MOST_BYTES))
    _trim()


def _trim() -> None:
    while (
        len(_cached_values) > 1
        and sum(v.nbytes for values in _cached_values.values() for v in values if v is not None)
        > _limit_bytes[0]
    ):
        del _cached_values[next(iter(_cached_values))]


def _load_and_compare(
    load: Callable[[], None], variables: list[Any]
) -> list[np.ndarray[Any, Any] | None]:
    """Load weights; return, in the order of ``variables``, the values that loading sets, and None for the others.

    Comparing values before and after would not be enough, because a file may set a bias to the zeros that it had.
    Therefore all variables first get numbers that no file contains, and those that the file does not set are restored.
    If loading fails, all are restored.
    """
    before = [variable.numpy() for variable in variables]
    numbers = np.random.default_rng(0)
    markers = [_draw_marker(value, numbers) for value in before]
    try:
        for variable, value in zip(variables, markers, strict=True):
            variable.assign(value)
        load()
        after = [variable.numpy() for variable in variables]
    except BaseException:
        after = markers  # so that all variables are restored below
        raise
    finally:
        for variable, was, marker, now in zip(variables, before, markers, after, strict=True):
            if np.array_equal(marker, now):
                variable.assign(was)
    values: list[np.ndarray[Any, Any] | None] = []
    for marker, now in zip(markers, after, strict=True):
        values.append(None if np.array_equal(marker, now) else now)
    return values


def _draw_marker(value: np.ndarray[Any, Any], numbers: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return random numbers of the shape and type of ``value`` that no file of weights contains."""
    is_integer = value.dtype.kind != "f"
    if is_integer:
        numbers_drawn = numbers.integers(2**29, 2**31 - 1, value.shape)
    else:
        numbers_drawn = numbers.uniform(1e3, 1e4, value.shape)
    return np.asarray(numbers_drawn, value.dtype)


def _can_hold_marker(dtype: str) -> bool:
    """Return whether variables of this type can hold the marker numbers with which `_load_and_compare` fills them."""
    return dtype in ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64")


def _key(model: keras.Model, filepath: Any, arguments: Any, options: Any) -> tuple[Any, ...] | None:
    """Return a cache key for everything that determines which values a file sets; None if they cannot be cached.

    Values cannot be cached if they come from anything but a single file, if the model has no variables yet, or if it
    has booleans or small integers, which cannot show whether the file sets them.
    """
    path = Path(str(filepath))
    if not path.is_file() or not model.built:
        return None
    if not all(_can_hold_marker(str(v.dtype)) for v in model.variables):
        return None
    about = path.stat()
    variables = tuple(
        (_normalize_path(v.path, options), tuple(v.shape), str(v.dtype)) for v in model.variables
    )
    return (
        str(path.resolve()),
        about.st_mtime_ns,
        about.st_size,
        repr(arguments),
        repr(sorted(options.items())),
        variables,
    )


def _normalize_path(path: str, options: Mapping[str, Any]) -> str:
    """Return a variable's path without the numbers in its layers' names.

    Keras numbers layers throughout the process, so the same model has other numbers each time that it is made. If the
    ``options`` of `load_weights` have ``by_name``, names decide which weights a layer gets, and the path is unchanged.
    """
    if options.get("by_name"):
        return path
    return re.sub(r"_\d+", "", path)
