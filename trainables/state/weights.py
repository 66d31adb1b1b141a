"""Weights of others, read from their file once per process however often a model with them is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

MOST_BYTES = 4 * 2**30
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
        if key is None or kept is None:
            before = [variable.numpy() for variable in model.variables] if key else []
            result = load(model, filepath, *given, **options)
            if key is None or len(before) != len(model.variables):  # it has built the model
                return result
            after = [variable.numpy() for variable in model.variables]
            kept = [None if np.array_equal(a, b) else b for a, b in zip(before, after, strict=True)]
        else:
            for variable, value in zip(model.variables, kept, strict=True):
                if value is not None:
                    variable.assign(value)
        _read[key] = kept
        while (
            len(_read) > 1 and sum(v.nbytes for values in _read.values() for v in values if v is not None) > MOST_BYTES
        ):
            del _read[next(iter(_read))]
        return None

    keras.Model.load_weights = load_weights
    try:
        yield
    finally:
        keras.Model.load_weights = load


def _key(model: keras.Model, filepath: Any, given: Any, options: Any) -> tuple[Any, ...] | None:
    """What decides what a file sets; None for what is no single file, or for a model without variables yet."""
    path = Path(str(filepath))
    if not path.is_file() or not model.built:
        return None
    about = path.stat()
    # Keras numbers the names of layers on for as long as a process lives.
    variables = tuple((re.sub(r"_\d+", "", v.path), tuple(v.shape), str(v.dtype)) for v in model.variables)
    return str(path.resolve()), about.st_mtime_ns, about.st_size, repr(given), repr(sorted(options.items())), variables
