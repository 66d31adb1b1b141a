"""The private names of Keras that we use still mean what we take them for."""

from __future__ import annotations

import inspect

import keras
import pytest
import tensorflow as tf

from trainables import keras_corrections

pytestmark = pytest.mark.keras


def test_version() -> None:
    assert keras.__version__.startswith("3.15.")


def test_optimizer_sums_over_replicas_in_the_method_we_replace() -> None:
    optimizer = keras.optimizers.SGD(1.0)
    assert "all_reduce" in inspect.getsource(type(optimizer)._all_reduce_sum_gradients)
    assert "_all_reduce_sum_gradients" in inspect.getsource(type(optimizer)._backend_update_step)
    keras_corrections.take_global_gradients(optimizer)
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.HierarchicalCopyAllReduce()
    )
    with strategy.scope():
        variable = keras.Variable([1.0])
        scoped = keras.optimizers.SGD(1.0)
        scoped.build([variable])
    keras_corrections.take_global_gradients(scoped)
    tf.function(lambda: strategy.run(lambda: scoped.apply([tf.constant([0.25])], [variable])))()
    assert float(variable.numpy()[0]) == 0.75  # Keras as it is would give 0.5


def test_batch_norm_is_synchronised_also_inside_nested_models() -> None:
    inner = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    outer = keras.Sequential([keras.Input((2,)), inner, keras.layers.BatchNormalization()])
    keras_corrections.synchronise_batch_norm(outer)
    assert inner.layers[0].synchronized
    assert outer.layers[1].synchronized


def test_symbolic_build_makes_all_variables_and_computes_nothing() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(), loss="mse", metrics=["mae"])
    before = [v.numpy() for v in model.variables]
    keras_corrections.build_symbolically(model, (tf.ones((3, 2)), tf.ones((3, 1))))
    assert model.optimizer.built
    assert model.metrics_variables
    assert all((a == b.numpy()).all() for a, b in zip(before, model.variables, strict=True))
