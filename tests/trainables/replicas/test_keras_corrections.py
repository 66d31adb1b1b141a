"""The private names of Keras that we use still mean what we take them for."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, train

from trainables import keras_private
from trainables.devices import kernels
from trainables.devices.replicas import Replicas
from trainables.replicas import keras_corrections, slices
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


def test_what_keras_computes_keeps_its_numbers_and_asks_the_host_for_nothing() -> None:
    keras_corrections.keep_arithmetic_on_devices()
    one = tf.constant(1)

    def compute(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = [
                getattr(keras.ops, name)(x, axis=(1, -1)) for name in ("mean", "sum", "max", "min")
            ]
            found += [
                keras.ops.mean(x, axis=0),
                keras.ops.sum(x),
                keras.ops.max(x, axis=1, keepdims=True),
            ]
            total = tf.add_n([tf.reduce_sum(value * value) for value in found])
        return [
            *found,
            tape.gradient(total, x),
            keras.ops.cast(keras.ops.argmax(x, axis=-1), "float32"),
            keras.ops.signbit(x),
        ]

    def within(x: tf.Tensor) -> list[tf.Tensor]:
        with slices.entering(Slice(one, tf.constant(0), one)):
            return compute(x)

    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    x[0, 0], x[1, 1] = [-0.0, 0.0, -0.0, 0.0, -1.0], [0.0, -0.0, -np.inf, -1e-38, np.nan]
    for ours, theirs in zip(within(tf.constant(x)), compute(tf.constant(x)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    specs = tf.TensorSpec([None, None, 5], tf.float32)
    graphs = [
        tf.function(f, autograph=False).get_concrete_function(specs).graph
        for f in (within, compute)
    ]
    assert kernels.find_host_waits(graphs[0]) == []
    assert kernels.find_host_waits(graphs[1]) == [
        "BitwiseAnd of int32: x of Less",
        "DynamicStitch of int32: shape of Reshape",
    ]


@pytest.mark.parametrize("mask", [None, np.array([[True, True], [True, False], [False, False]])])
def test_moments_are_those_of_keras_on_one_device(mask: Any) -> None:
    layer = keras.layers.BatchNormalization()
    x = np.random.default_rng(0).normal(3.0, 2.0, (3, 2, 4)).astype(np.float32)
    layer.build(x.shape)
    theirs = layer._moments(tf.constant(x), mask)
    ours = keras_corrections.compute_global_moments(layer, tf.constant(x), mask)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_an_empty_batch_leaves_the_moving_statistics_as_they_are() -> None:
    layer = keras.layers.BatchNormalization()
    layer.build((None, 4))
    layer.moving_mean.assign([1.0, 2.0, 3.0, 4.0])
    mean, variance = keras_corrections.compute_global_moments(layer, tf.zeros((0, 4)), None)
    np.testing.assert_array_equal(mean, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(variance, np.ones(4))


def test_layers_keep_their_losses_in_the_list_we_replace() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, activity_regularizer="l2")])
    keras_corrections.separate_added_losses(model)
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
    keras_corrections.create_variables(model, (tf.ones((3, 2)), tf.ones((3, 1))))
    (entry,) = model._compile_loss._flat_losses
    assert entry._fields == ("path", "loss", "loss_weights", "name")
    model._compile_loss._flat_losses = [entry._replace(loss=lambda y, p, w: tf.constant(5.0))]
    assert float(model.compute_loss(None, tf.ones((3, 1)), tf.ones((3, 1)), None)) == 5.0


def test_outputs_of_a_mixed_model_compute_in_float32() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, dtype="mixed_bfloat16")])
    keras_corrections.set_outputs_to_float32(model)
    assert model(tf.ones((1, 2))).dtype == tf.float32


def test_symbolic_build_makes_all_variables_and_computes_nothing() -> None:
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(), loss="mse", metrics=["mae"])
    before = [v.numpy() for v in model.variables]
    keras_corrections.create_variables(model, (tf.ones((3, 2)), tf.ones((3, 1))))
    assert model.optimizer.built
    assert model.metrics_variables
    assert all((a == b.numpy()).all() for a, b in zip(before, model.variables, strict=True))


def test_the_model_is_built_with_batches_of_any_size() -> None:
    class Contrastive(keras.losses.Loss):
        """As in Keras's example of supervised contrastive learning: of one label, no label is left."""

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            y = tf.expand_dims(tf.cast(tf.squeeze(y_true), y_pred.dtype), -1)
            same = tf.cast(tf.equal(y, tf.transpose(y)), y_pred.dtype)
            shares = same / tf.reduce_sum(same, 1, keepdims=True)
            similar = tf.matmul(y_pred, tf.transpose(y_pred))
            return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(shares, similar))

    class Matched(Small):
        def data(self, hp: Any) -> Any:
            return tuple((x, y[:, None]) for x, y in super().data(hp))

        def loss(self, hp: Any, model: keras.Model) -> Any:
            return Contrastive()

        def metrics(self, hp: Any, model: keras.Model) -> Any:
            return []

    epochs = train(Matched(), assignment(epochs=3))
    assert epochs[-1].metrics["loss"] < epochs[0].metrics["loss"]


def test_the_loss_is_asked_for_by_the_wrapper_that_knows_old_models() -> None:
    class Old(keras.Sequential):
        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
        ) -> Any:
            return tf.constant(3.0)  # as before Keras 3.3: no `training`

    class New(keras.Sequential):
        def compute_loss(self, *given: Any, training: bool = True) -> Any:
            return tf.constant(float(training))

    for model, expected in ((Old(), 3.0), (New(), 0.0)):
        assert float(model._compute_loss(None, None, None, None, training=False)) == expected


def test_layers_within_layers_are_found_and_the_model_itself() -> None:
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    outer = keras.Sequential([keras.Input((2,)), inner])
    assert outer._flatten_layers()[0] is outer
    assert inner.layers[0] in outer._flatten_layers()


# of NumPy, as Keras saves
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_what_compile_was_told_is_known_from_what_keras_has_chosen(tmp_path: Path) -> None:
    def asked(model: keras.Model) -> bool | None:
        return keras_corrections.get_asked_jit(model)

    with keras_private.marking_unasked_jit():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        for given in ({}, {"jit_compile": False}, {"jit_compile": True}, {"jit_compile": "auto"}):
            model.compile("sgd", "mse", **given)
            assert asked(model) == {"auto": None}.get(
                given.get("jit_compile"), given.get("jit_compile")
            )
        model.compile("sgd", "mse", jit_compile=True)
        model.save(tmp_path / "saved.keras")
        assert asked(keras.models.load_model(tmp_path / "saved.keras")) is None  # another machine's
    model.compile("sgd", "mse")
    assert type(keras_private.compile_arguments(model)["jit_compile"]) is bool


def test_a_model_keeps_what_it_was_compiled_with() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    metrics, optimizer = [keras.metrics.MeanAbsoluteError()], keras.optimizers.SGD(0.1)
    model.compile(optimizer, loss="mse", metrics=metrics, loss_weights=2.0)
    found = keras_corrections.get_compile_arguments(model)
    assert (found["loss"], found["loss_weights"], found["weighted_metrics"]) == ("mse", 2.0, None)
    assert found["optimizer"] is optimizer
    assert found["metrics"][0] is metrics[0]


def test_layers_that_add_to_the_loss_are_found_without_computing() -> None:
    computed: list[int] = []

    class Adding(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            if tf.is_tensor(x) and tf.executing_eagerly():
                computed.append(1)
            self.add_loss(keras.ops.sum(x))
            return x

    model = keras.Sequential([keras.Input((2,)), Adding(), keras.layers.Dense(1)])
    computed.clear()
    assert keras_corrections.find_layers_adding_losses(model, (tf.ones((3, 2)),)) == {
        id(model.layers[0])
    }
    assert computed == []
    assert "add_loss" not in vars(model.layers[0])


def test_a_loss_that_is_called_within_a_slice_is_not_divided_by_the_replicas() -> None:
    keras_corrections.keep_loss_means()
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.HierarchicalCopyAllReduce()
    )
    loss, one = keras.losses.MeanSquaredError(), tf.constant(1)

    def within() -> Any:
        with slices.entering(Slice(one, tf.constant(0), one)):
            return loss(tf.ones((3, 1)), tf.zeros((3, 1)))

    with strategy.scope():
        whole, theirs = (
            Replicas(strategy).first(strategy.run(part))
            for part in (within, lambda: loss(tf.ones((3, 1)), tf.zeros((3, 1))))
        )
    assert (float(whole), float(theirs)) == (1.0, 0.5)


def test_the_layers_of_a_notebook_are_numbered_on_after_a_trial() -> None:
    first = keras.layers.Dense(1).name
    train(Small(), assignment(epochs=1))
    number = int(first.partition("_")[2] or 0)
    assert keras.layers.Dense(1).name == f"dense_{number + 1}"


class Regularised(Small):
    def model(self, hp: Any) -> keras.Model:
        hidden = keras.layers.Dense(8, activity_regularizer="l2")
        return keras.Sequential([keras.Input((6,)), hidden, keras.layers.Dense(3)])


@pytest.mark.parametrize("gpus", sampled([2, 0], 1))
def test_a_loss_that_a_layer_adds_in_half_precision_counts_with_the_others(gpus: int) -> None:
    half = train(Regularised(), assignment(gpus, training={"precision": "mixed_bfloat16"}))
    single = train(Regularised(), assignment(gpus, training={"precision": "float32"}))
    for a, b in zip(half, single, strict=True):
        assert a.metrics["loss"] == pytest.approx(b.metrics["loss"], rel=5e-2)
