"""Tensors that a model holds besides its variables, which become constants of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables import keras_private

DEPTH = 6  # levels of nested containers


def list_constant_holders(model: keras.Model) -> list[tuple[Any, str, Any]]:
    """Return (object, attribute, value) for all places of a model that hold a constant or may hold one.

    These are the attributes of layers that are constants, and all arguments of calls in functional models: the object
    holds the arguments of one call, as ``args`` and ``kwargs``. An example is a table of positions,
    ``layers.Embedding(7, 5)(keras.ops.arange(7))``. Keras evaluates the argument at once, and the functional model
    holds the result.
    """
    layers = keras_private.flatten_layers(model)
    nodes = []
    for layer in layers:
        if isinstance(layer, keras_private.Functional):
            for at_depth in keras_private.nodes_by_depth(layer).values():
                nodes += at_depth
    own = [
        (layer, name, value)
        for layer in layers
        for name, value in vars(layer).items()
        if is_constant(value)
    ]
    return own + [
        (node.arguments, name, getattr(node.arguments, name))
        for node in nodes
        for name in ("args", "kwargs")
    ]


def is_constant(value: Any) -> bool:
    """Return whether a value is a tensor of TensorFlow with a known value; variables and NumPy arrays are not."""
    return isinstance(value, tf.Tensor) and hasattr(value, "numpy")


def collect_constants(model: keras.Model) -> list[np.ndarray[Any, Any]]:
    """Return, as arrays, the tensors and arrays that the layers of a model hold besides their variables, in order.

    They are also found in nested containers and in closures of functions, but only to a limited depth (`DEPTH`). One
    that is held in several places is listed several times.
    Call it before the model is compiled: compiling adds attributes of Keras's own, such as the optimizer.
    """
    attributes = []
    for layer in keras_private.flatten_layers(model):
        attributes.append(dict(vars(layer)))
    held = []  # constants, and arguments of calls, which may hold some
    for _holder, _attribute, value in list_constant_holders(model):
        held.append(value)
    return [np.asarray(leaf) for leaf in _find_arrays([attributes, held], DEPTH)]


def are_equal(mine: Sequence[np.ndarray[Any, Any]], theirs: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Return whether two lists of constants, of models that were built alike, have equal types and values in order.

    Shapes must be equal, too. NaN equals NaN.
    """
    if len(mine) != len(theirs):
        return False
    for a, b in zip(mine, theirs, strict=True):
        if a.dtype != b.dtype or not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            return False
    return True


def _find_arrays(value: Any, depth: int) -> Iterator[Any]:
    """Yield tensors and arrays in ``depth`` levels of nested containers and of closures of functions.

    ``value`` itself is yielded if it is one. Containers are mappings, lists and tuples.
    """
    if is_constant(value) or isinstance(value, np.ndarray):
        yield value
    elif depth and isinstance(value, Mapping):
        for key in value:
            yield from _find_arrays(value[key], depth - 1)
    elif depth and isinstance(value, list | tuple):
        for part in value:
            yield from _find_arrays(part, depth - 1)
    elif depth and isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # the cell is still empty
                yield from _find_arrays(cell.cell_contents, depth - 1)
