"""Gradient checkpointing: activations are recomputed in the backward pass instead of stored.

Keras's own `RematScope` fails inside a graph ("custom_gradient ... keywords arguments only when eager"). Source: Chen
et al., Training Deep Nets with Sublinear Memory Cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import keras
import tensorflow as tf

from trainables import keras_private


def recompute_activations(model: keras.Model, adding: Collection[int]) -> None:
    """Make the model's own layers recompute their activations in the backward pass where that gives the same result.

    This replaces the ``call`` of these layers. Other layers store their activations as usual: layers with variables
    besides trainable weights, or with random draws, because they would update or draw twice; layers that add losses
    (``adding`` has their ids), because the losses would lose their gradient; layers without weights; and models within
    the model.
    """
    for layer in model.layers:
        adds = any(id(part) in adding for part in keras_private.flatten_layers(layer))
        if not isinstance(layer, keras.Model) and not adds and _is_pure(layer):
            layer.call = functools.partial(_call_recomputed, layer.call)


def finish_before_updates(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer wait for all gradients before it updates any weight.

    Recomputation reads weights in the backward pass. TensorFlow 2.21 orders these reads before the update when it
    traces, but its graph optimisation loses the order: it drops the control edge in favour of a path through the
    `IdentityN` of `tf.recompute_grad`, and then splits the `IdentityN`. Occasionally, an earlier layer's gradient was
    computed with the new weights of a later one. This replaces `apply` on the optimizer.
    """
    apply = optimizer.apply

    def apply_all(gradients: list[tf.Tensor], trainable_variables: Any = None) -> None:
        # copies of the gradients, each of which waits for all of them
        copies: list[Any] = []
        with tf.control_dependencies([g for g in gradients if g is not None]):
            for gradient in gradients:
                copies.append(
                    gradient if gradient is None else tf.nest.map_structure(tf.identity, gradient)
                )
        apply(copies, trainable_variables)

    optimizer.apply = apply_all


def _is_pure(layer: keras.layers.Layer) -> bool:
    parts = keras_private.flatten_layers(layer)
    random = any(keras_private.seed_generators(part) for part in parts)
    return not random and not layer.non_trainable_variables and bool(layer.trainable_variables)


def _call_recomputed(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``call``, a layer's method, and let TensorFlow compute it again in the backward pass; return its outputs.

    Without a tensor among the arguments, as where Keras infers shapes, it is only called.
    """
    leaves = tf.nest.flatten((args, kwargs))
    # The type to which the layer casts its weights. Kept for the backward pass, which runs outside of this scope.
    precision = getattr(keras_private.get_autocast_scope(), "dtype", None)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    if not tensors:
        return call(*args, **kwargs)

    # Only tensors may be arguments of this function; other leaves are filled in again within it.
    @tf.recompute_grad  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def compute(*given: tf.Tensor) -> Any:
        fresh = iter(given)
        filled = []
        for leaf in leaves:
            filled.append(next(fresh) if tf.is_tensor(leaf) else leaf)
        again, options = tf.nest.pack_sequence_as((args, kwargs), filled)
        with keras_private.AutocastScope(precision):  # the same types as in the first computation
            return call(*again, **options)

    return compute(*tensors)
