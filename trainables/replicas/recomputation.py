"""Gradient checkpointing: activations are computed again in the backward pass instead of kept.

Keras's own `RematScope` fails inside a graph ("custom_gradient ... keywords arguments only when eager"). Source:
Chen et al., Training Deep Nets with Sublinear Memory Cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.variables import AutocastScope, get_autocast_scope


def install(model: keras.Model, adding: Collection[int]) -> None:
    """Recompute the layers of a model that are functions of their inputs and trainable weights alone.

    What has state or draws random numbers (batch normalisation, dropout) would do so twice: its activations
    are kept. So are those of the layers, by identity, that are ``adding`` to the loss, which would lose its gradient.
    """
    for layer in model.layers:
        adds = any(id(part) in adding for part in layer._flatten_layers())
        if not isinstance(layer, keras.Model) and not adds and _is_pure(layer):
            layer.call = functools.partial(_recomputed, layer.call)


def finish_before_updates(optimizer: keras.optimizers.Optimizer) -> None:
    """Let no weight be updated before all gradients are there.

    What is recomputed reads weights in the backward pass. TensorFlow 2.21 orders these reads before the update when
    it traces, and its graph optimisation loses that order: the control edge is dropped for a path through the
    `IdentityN` of `tf.recompute_grad`, then the `IdentityN` is split. Now and then an earlier layer's gradient was
    computed with the new weights of a later one.
    """
    apply = optimizer.apply

    def apply_all(gradients: list[tf.Tensor], trainable_variables: Any = None) -> None:
        with tf.control_dependencies([g for g in gradients if g is not None]):
            whole = [g if g is None else tf.nest.map_structure(tf.identity, g) for g in gradients]
        apply(whole, trainable_variables)

    optimizer.apply = apply_all


def _is_pure(layer: keras.layers.Layer) -> bool:
    parts = layer._flatten_layers()
    random = any(part._seed_generators for part in parts)
    return not random and not layer.non_trainable_variables and bool(layer.trainable_variables)


def _recomputed(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    leaves = tf.nest.flatten((args, kwargs))
    precision = getattr(get_autocast_scope(), "dtype", None)  # the backward pass lies outside of the layer's
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    if not tensors:  # Keras infers shapes with stand-ins
        return call(*args, **kwargs)

    @tf.recompute_grad  # type: ignore[untyped-decorator]  # as all of TensorFlow
    def compute(*given: tf.Tensor) -> Any:
        fresh = iter(given)
        filled = [next(fresh) if tf.is_tensor(leaf) else leaf for leaf in leaves]
        again, options = tf.nest.pack_sequence_as((args, kwargs), filled)
        with AutocastScope(precision):
            return call(*again, **options)

    return compute(*tensors)
