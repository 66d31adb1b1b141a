"""The private names of Keras that we use still mean what we take them for."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.numbers.draws import Draws
from trainables.replicas import keras_corrections, random_layers, slices
from trainables.replicas.slices import Slice

pytestmark = pytest.mark.keras


def test_version() -> None:
    assert keras.__version__.startswith("3.15.")


def test_layers_are_numbered_anew() -> None:
    keras.layers.Dense(1), keras.layers.Dense(1)
    keras_corrections.number_layers_anew()
    assert [keras.layers.Dense(1).name for _ in range(2)] == ["dense", "dense_1"]


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


def test_batch_norm_takes_its_moments_from_the_method_we_replace() -> None:
    inner = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    outer = keras.Sequential([keras.Input((2,)), inner, keras.layers.BatchNormalization()])
    keras_corrections.synchronise_batch_norm(outer)
    for layer in (inner.layers[0], outer.layers[1]):
        assert layer._moments is not type(layer)._moments
        assert "self._moments(inputs, mask)" in inspect.getsource(layer.call)


@pytest.mark.parametrize("mask", [None, np.array([[True, True], [True, False], [False, False]])])
def test_moments_are_those_of_keras_on_one_device(mask: Any) -> None:
    layer = keras.layers.BatchNormalization()
    x = np.random.default_rng(0).normal(3.0, 2.0, (3, 2, 4)).astype(np.float32)
    layer.build(x.shape)
    theirs = layer._moments(tf.constant(x), mask)
    ours = keras_corrections._global_moments(layer, tf.constant(x), mask)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_an_empty_batch_leaves_the_moving_statistics_as_they_are() -> None:
    layer = keras.layers.BatchNormalization()
    layer.build((None, 4))
    layer.moving_mean.assign([1.0, 2.0, 3.0, 4.0])
    mean, variance = keras_corrections._global_moments(layer, tf.zeros((0, 4)), None)
    np.testing.assert_array_equal(mean, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(variance, np.ones(4))


def test_layers_keep_their_losses_in_the_list_we_replace() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, activity_regularizer="l2")])
    keras_corrections.part_losses(model)
    model(tf.ones((3, 2)))
    assert len(model.losses) == 1
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(len(model.losses)))
    other.start()
    other.join()
    assert found == [0]
    model(tf.ones((3, 2)))
    assert len(model.losses) == 1  # cleared at each call


def test_added_losses_go_through_the_method_we_replace() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model._aggregate_additional_loss = lambda loss: loss * 0 + 7.0
    model.compile("sgd", loss=None)
    model.layers[0].add_loss(tf.constant(1.0))
    assert float(model.compute_loss(None, None, None, None)) == 7.0


def test_a_compiled_loss_is_called_from_the_list_we_replace() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    keras_corrections.build_symbolically(model, (tf.ones((3, 2)), tf.ones((3, 1))))
    (entry,) = model._compile_loss._flat_losses
    assert entry._fields == ("path", "loss", "loss_weights", "name")
    model._compile_loss._flat_losses = [entry._replace(loss=lambda y, p, w: tf.constant(5.0))]
    assert float(model.compute_loss(None, tf.ones((3, 1)), tf.ones((3, 1)), None)) == 5.0


def test_all_draws_of_keras_go_through_the_functions_we_wrap() -> None:
    random_layers.install()
    for name in (*random_layers.SHAPED, *random_layers.WHOLE, "dropout"):
        assert hasattr(getattr(keras.src.backend.random, name), "__wrapped__"), name
        assert "seed" in inspect.signature(getattr(keras.src.backend.random, name)).parameters
    size, start, stop = tf.constant(4), tf.constant(1), tf.constant(3)
    layer = keras.layers.Dropout(0.5)
    full = Slice(size, tf.constant(0), size, 2, draws=Draws(1, 2, size, tf.constant(0), size))
    part = Slice(size, start, stop, 2, draws=Draws(1, 2, size, start, stop))

    with slices.entered(full):
        whole = tf.function(lambda x: layer(x, training=True)).get_concrete_function(tf.TensorSpec((None, 3)))
    with slices.entered(part):
        rows = tf.function(lambda x: layer(x, training=True)).get_concrete_function(tf.TensorSpec((None, 3)))
    np.testing.assert_array_equal(whole(tf.ones((4, 3)))[1:3], rows(tf.ones((2, 3))))


def test_outputs_of_a_mixed_model_compute_in_float32() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, dtype="mixed_bfloat16")])
    keras_corrections.outputs_in_float32(model)
    assert model(tf.ones((1, 2))).dtype == tf.float32


def test_symbolic_build_makes_all_variables_and_computes_nothing() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(), loss="mse", metrics=["mae"])
    before = [v.numpy() for v in model.variables]
    keras_corrections.build_symbolically(model, (tf.ones((3, 2)), tf.ones((3, 1))))
    assert model.optimizer.built
    assert model.metrics_variables
    assert all((a == b.numpy()).all() for a, b in zip(before, model.variables, strict=True))
