"""What Keras 3.15 gets wrong under a strategy and our loop sets right; one function each.

Each uses a private name of Keras, which `tests/trainables/test_keras_corrections.py` holds to its contract.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def take_global_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Let the optimizer apply gradients as they are given: they are sums over all replicas already.

    Keras sums them itself, after clipping each replica's share (keras/src/backend/tensorflow/optimizer.py,
    `_all_reduce_sum_gradients`): the global norm is then never seen.
    """
    optimizer._all_reduce_sum_gradients = list


def synchronise_batch_norm(model: keras.Model) -> None:
    """Let batch normalisation use the statistics of the global batch.

    Otherwise each replica normalises by its own share, the moving statistics differ between replicas and a
    checkpoint holds only the first's (`BatchNormalization(synchronized=False)`, the default).
    """
    for layer in _layers(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True


def part_seeds(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Give each replica its own stream for Keras's random layers, which draw the same mask on all of them."""
    if strategy.num_replicas_in_sync == 1:
        return
    for layer in _layers(model):
        for generator in layer._seed_generators:
            local = strategy.experimental_local_results(generator.state.value)
            for i, copy in enumerate(local):
                copy.assign(copy + tf.constant([1000003 * i, 0], copy.dtype))


def build_symbolically(model: keras.Model, batch: tuple[Any, ...]) -> None:
    """Create all variables of model, optimizer, loss and metrics before the first trace, without computing."""
    model._symbolic_build(data_batch=batch)


def _layers(model: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Layer)]
