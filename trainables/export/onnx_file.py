"""Conversion of a model's TensorFlow graph to ONNX; the only module that uses the converter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainables import keras_private
from trainables.state import constants


def write(model: keras.Model, path: Path, specs: Sequence[Any]) -> None:
    """Convert a model's predictions to ONNX and write the file; raises whatever the converter raises.

    ``specs`` has one entry, the inputs of the model as `tf.TensorSpec` in their structure. The model is called with
    ``training=False``. Two gaps of tf2onnx 1.17 are filled. It treats constants that layers hold as tensors, or are
    called with, as inputs. It also lacks the complementary error function, which Keras's exact GELU uses.
    """
    import tf2onnx

    keras_private.patch_tf2onnx()  # for NumPy 2
    function = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    with _converting_constants(model):
        tf2onnx.convert.from_function(
            function, specs, custom_op_handlers={"Erfc": (_convert_erfc, [])}, output_path=str(path)
        )


@contextmanager
def _converting_constants(model: keras.Model) -> Iterator[None]:
    """Replace eager tensors in layers by arrays inside the block, because a graph treats these tensors as inputs.

    Adapted preprocessing layers have such tensors. The tensors are put back afterwards.
    """
    held = constants.list_constant_holders(model)  # objects, names of attributes, and their values
    # `object.__setattr__`, because layers track what is set on them
    for owner, name, value in held:
        object.__setattr__(owner, name, keras.tree.map_structure(_convert_to_numpy, value))
    try:
        yield
    finally:
        for owner, name, value in held:
            object.__setattr__(owner, name, value)


def _convert_to_numpy(leaf: Any) -> Any:
    """Return an eager tensor that is a constant as an array; everything else unchanged."""
    if constants.is_constant(leaf):
        return leaf.numpy()
    return leaf


def _convert_erfc(graph: Any, node: Any, name: str, inputs: Any) -> None:
    """Change a node of the operation Erfc to 1 - erf(x), from operations that ONNX has; a handler for tf2onnx.

    ``name`` is the node's name; ``inputs`` is what tf2onnx passes to every handler, and is not used.
    """
    node.type = "Erf"
    node.domain = ""
    (result,) = node.output
    minus = graph.insert_new_node_on_output("Neg", result)
    one = graph.make_const(f"{name}/one", np.array(1, np.float32))
    graph.insert_new_node_on_output("Add", minus.output[0], inputs=[minus.output[0], one.output[0]])
