"""The tensors that a model holds beside its variables: a graph has them as constants."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.models.functional import Functional


def held(model: keras.Model) -> list[tuple[Any, str, Any]]:
    """Return object, attribute and value for all that may hold some: attributes of layers, what layers are called with.

    A table of positions is an example, ``layers.Embedding(7, 5)(keras.ops.arange(7))``: Keras computes it at once, and
    the functional model has the result of that.
    """
    layers = model._flatten_layers()
    nodes = [
        n for f in layers if isinstance(f, Functional) for at_depth in f._nodes_by_depth.values() for n in at_depth
    ]
    own = [(layer, name, value) for layer in layers for name, value in vars(layer).items() if is_constant(value)]
    return own + [
        (node.arguments, name, getattr(node.arguments, name)) for node in nodes for name in ("args", "kwargs")
    ]


def is_constant(value: Any) -> bool:
    """Whether this is a tensor with a value, and no variable."""
    return isinstance(value, tf.Tensor) and hasattr(value, "numpy")


def same(one: keras.Model, other: keras.Model) -> bool:
    """Whether two models that were made alike hold the same constants."""
    mine, theirs = _values(one), _values(other)
    return len(mine) == len(theirs) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(mine, theirs, strict=True)
    )


def _values(model: keras.Model) -> list[np.ndarray[Any, Any]]:
    leaves = keras.tree.flatten([value for _, _, value in held(model)])
    return [np.asarray(leaf) for leaf in leaves if is_constant(leaf)]
