"""Writes a model as ONNX, by way of its TensorFlow graph. The only module that knows the converter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.models.functional import Functional


def write(model: keras.Model, path: Path, specs: Sequence[Any]) -> None:
    """Convert what a model predicts; raises whatever the converter does.

    Two gaps of tf2onnx 1.17 are filled: it takes constants that layers hold as tensors, or are called with, for inputs,
    and knows no complementary error function, which Keras's exact GELU is made of.
    """
    import tf2onnx
    from keras.src.export.tf2onnx_lib import patch_tf2onnx

    patch_tf2onnx()  # for NumPy 2
    function = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    with _constants_in_numpy(model):
        tf2onnx.convert.from_function(function, specs, custom_op_handlers={"Erfc": (_erfc, [])}, output_path=str(path))


@contextmanager
def _constants_in_numpy(model: keras.Model) -> Iterator[None]:
    """Let no layer hold an eager tensor, as those of adapted preprocessing layers do: a graph takes it for an input."""
    layers = model._flatten_layers()
    nodes = [
        n for f in layers if isinstance(f, Functional) for at_depth in f._nodes_by_depth.values() for n in at_depth
    ]
    calls = [node.arguments for node in nodes]
    held = [(layer, name, value) for layer in layers for name, value in vars(layer).items() if tf.is_tensor(value)]
    held += [(call, name, getattr(call, name)) for call in calls for name in ("args", "kwargs")]
    for owner, name, value in held:
        object.__setattr__(owner, name, keras.tree.map_structure(_in_numpy, value))
    try:
        yield
    finally:
        for owner, name, value in held:
            object.__setattr__(owner, name, value)


def _in_numpy(leaf: Any) -> Any:
    return leaf.numpy() if tf.is_tensor(leaf) and hasattr(leaf, "numpy") and not isinstance(leaf, tf.Variable) else leaf


def _erfc(graph: Any, node: Any, name: str, given: Any) -> None:
    """1 - erf(x), of what ONNX has."""
    node.type = "Erf"
    node.domain = ""
    (result,) = node.output
    minus = graph.insert_new_node_on_output("Neg", result)
    one = graph.make_const(f"{name}/one", np.array(1, np.float32))
    graph.insert_new_node_on_output("Add", minus.output[0], inputs=[minus.output[0], one.output[0]])
