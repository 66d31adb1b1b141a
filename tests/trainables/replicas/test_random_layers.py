from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, metrics, train, weights

from trainables import tensorflow_private
from trainables.keras_trainable import session_of
from trainables.loop.xla import ON
from trainables.numbers.draws import Draws
from trainables.replicas import random_layers, slices
from trainables.replicas.random_layers import NotPerExample
from trainables.replicas.slices import Slice
from trainables.state import origins

pytestmark = pytest.mark.keras

SIZE = 7


def within(draw: Callable[[tf.Tensor], Any], start: int, stop: int, places: Any = None) -> Any:
    """What a slice of a batch of ``SIZE`` examples draws, traced with shapes as unknown as in training."""
    random_layers.replace_random_functions()

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None, 3]), *[tf.TensorSpec([], tf.int32)] * 3],
    )
    def traced(x: Any, size: Any, first: Any, last: Any) -> Any:
        here = None if places is None else tf.constant(places, tf.int64)
        draws = Draws(tf.constant(1), tf.constant(2), size, first, last, places=here)
        whole = start == 0 and stop == SIZE
        cut = Slice(size, first, size if whole else last, 1 if whole else 2, draws=draws)
        with slices.entering(cut):
            return draw(x)

    rows = len(places) if places is not None else stop - start
    return traced(tf.ones((rows, 3)), SIZE, start, stop).numpy()


def generator(seed: int = 3) -> keras.random.SeedGenerator:
    return keras.random.SeedGenerator(seed)


KEY = (3, 4)
DRAWS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "uniform": lambda g: lambda x: keras.random.uniform(tf.shape(x), -1, 2, seed=g),
    "half": lambda g: lambda x: keras.random.uniform(tf.shape(x), seed=g, dtype="float16"),
    "double": lambda g: lambda x: keras.random.uniform(tf.shape(x), seed=g, dtype="float64"),
    "normal": lambda g: lambda x: keras.random.normal(tf.shape(x), 1.0, 3.0, seed=g),
    "truncated": lambda g: lambda x: keras.random.truncated_normal(tf.shape(x), seed=g),
    "whole numbers": lambda g: lambda x: keras.random.randint(tf.shape(x), 0, 99, seed=g),
    "long whole numbers": lambda g: (
        lambda x: keras.random.randint(tf.shape(x), 0, 99, seed=g, dtype="int64")
    ),
    "dropout": lambda g: lambda x: keras.random.dropout(x, 0.4, seed=g),
    "dropout of channels": lambda g: (
        lambda x: keras.random.dropout(x, 0.4, noise_shape=(None, 1), seed=g)
    ),
    "the same at each call": lambda g: lambda x: keras.random.normal(tf.shape(x), seed=5),
    "stateless": lambda g: lambda x: tf.random.stateless_normal(tf.shape(x), KEY),
    "by time steps": lambda g: (
        lambda x: tf.reshape(
            keras.random.normal((tf.shape(x)[0] * 5, 3), seed=g), [tf.shape(x)[0], 5, 3]
        )
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_whole_batch_draws_what_keras_draws_and_slices_its_rows(name: str) -> None:
    of_keras = tf.function(
        DRAWS[name](generator()), autograph=False, input_signature=[tf.TensorSpec([None, 3])]
    )
    whole = of_keras(tf.ones((SIZE, 3))).numpy()
    np.testing.assert_array_equal(within(DRAWS[name](generator()), 0, SIZE), whole)
    for start, stop in ((0, 3), (3, 5), (5, 7)):
        np.testing.assert_array_equal(
            within(DRAWS[name](generator()), start, stop), whole[start:stop]
        )
    np.testing.assert_array_equal(
        within(DRAWS[name](generator()), 2, 4, [6, 0, 3]), whole[[6, 0, 3]]
    )


def test_what_has_no_batch_in_it_is_the_same_in_all_slices() -> None:
    def drawn(x: Any) -> Any:
        return keras.random.normal((1, 3), seed=generator_of_all)

    generator_of_all = generator()
    np.testing.assert_array_equal(within(drawn, 0, 3), within(drawn, 3, 7))


def test_without_a_seed_slices_follow_the_trial() -> None:
    whole = within(lambda x: keras.random.normal(tf.shape(x)), 0, SIZE)
    np.testing.assert_array_equal(
        within(lambda x: keras.random.normal(tf.shape(x)), 2, 5), whole[2:5]
    )
    np.testing.assert_array_equal(within(lambda x: tf.random.normal(tf.shape(x)), 2, 5), whole[2:5])


@pytest.mark.parametrize("name", random_layers.WHOLE)
def test_what_is_no_draw_of_examples_is_refused_in_parts(name: str) -> None:
    function = getattr(keras.random, name)
    wanted = [
        n for n in inspect.signature(function).parameters if n not in ("seed", "dtype", "axis")
    ]
    given = {
        "shape": (2, 3),
        "logits": tf.zeros((2, 3)),
        "num_samples": 1,
        "counts": 3,
        "probabilities": 0.5,
    }
    arguments = {n: given.get(n, tf.ones((2, 3)) if n in ("x", "inputs") else 1.0) for n in wanted}
    assert within(lambda x: function(**arguments), 0, SIZE) is not None
    with pytest.raises(
        NotPerExample, match=f"keras.random.{name}, which draws for the batch as a whole"
    ):
        within(lambda x: function(**arguments), 0, 3)


def test_a_loop_of_draws_is_keras_own_on_one_replica_and_refused_in_parts() -> None:
    def steps(seeds: Any) -> Any:
        def call(x: Any) -> Any:
            def one(i: Any, y: Any) -> Any:
                return i + 1, y + keras.random.normal(tf.shape(y), seed=seeds)

            return tf.while_loop(lambda i, _: i < 3, one, (0, x))[1]

        return call

    class Noise(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.seeds = generator(7)

        def call(self, x: Any) -> Any:
            return steps(self.seeds)(x)

    class Steps(Small):
        def model(self, hp: Any) -> keras.Model:
            return keras.Sequential([keras.Input((6,)), Noise(), keras.layers.Dense(3)])

    trial, trained = assignment(optimizer="sgd"), Steps()
    train(trained, trial)
    state = next(
        v for v in session_of(trained).trial.program.model.variables if v.name == origins.SEED
    )
    # epochs of five updates, two batches of validation as in fit
    assert state.numpy().tolist() == [
        7,
        3 * 2 * (5 + 2),
    ]
    with pytest.raises(NotPerExample, match="draws random numbers in a loop"):
        train(Steps(), assignment(2, optimizer="sgd"))


class Twins(Small):
    """Two layers of one seed, whose difference is zero, but for rounding where XLA fuses a multiplication into it."""

    def model(self, hp: Any) -> keras.Model:
        inputs = keras.Input((6,))
        x = keras.layers.Dense(8, activation="tanh")(inputs)
        one, other = (keras.layers.Dropout(self.dropout(hp), seed=1)(x) for _ in range(2))
        x = keras.layers.GaussianNoise(0.3)(x) + keras.layers.Rescaling(100)(one - other)
        return keras.Model(inputs, keras.layers.Dense(3)(x))


PARAMS: dict[str, Any] = {"optimizer": "sgd", "dropout": 0.3}


@pytest.fixture(scope="module")
def alone() -> tuple[Any, Any]:
    trainable = Twins()
    return metrics(train(trainable, assignment(**PARAMS))), weights(trainable)


def test_equal_seeds_draw_alike_and_as_in_fit(alone: Any) -> None:
    epochs, _ = alone
    by_fit = metrics(train(Twins(), assignment(training={"loop": "fit"}, **PARAMS)))
    assert epochs == [pytest.approx(e, rel=1e-5) for e in by_fit]
    assert all(epoch["loss"] < 3 for epoch in epochs)  # nothing was multiplied by 100


@pytest.mark.parametrize(
    ("gpus", "more"),
    sampled([(2, {"micro_batches": 2}), (2, {}), (0, {"micro_batches": 3})], 1, several=True),
)
def test_slices_draw_what_the_whole_batch_draws(alone: Any, gpus: int, more: Any) -> None:
    trainable = Twins()
    epochs = metrics(train(trainable, assignment(gpus, **PARAMS, **more)))
    assert epochs == [pytest.approx(e, rel=1e-4) for e in alone[0]]
    for mine, theirs in zip(weights(trainable), alone[1], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)  # states of the seeds among them


@pytest.mark.slow
def test_through_xla_the_draws_are_the_same(alone: Any) -> None:
    trainable = Twins()
    epochs = metrics(train(trainable, assignment(training={"jit_compile": True}, **PARAMS)))
    assert trainable.facts().numerics["xla"] == ON
    assert epochs == [pytest.approx(e, rel=1e-4) for e in alone[0]]
    for mine, theirs in zip(weights(trainable), alone[1], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_a_used_worker_draws_as_a_fresh_one(alone: Any) -> None:
    trainable = Twins()
    train(trainable, assignment(seed=4, **PARAMS))
    assert metrics(train(trainable, assignment(**PARAMS))) == alone[0]
    for mine, theirs in zip(weights(trainable), alone[1], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_second_pass_of_sharpness_draws_what_the_first_has_drawn() -> None:
    trainable = Twins()
    train(trainable, assignment(sam_rho=0.05, **PARAMS))
    states = [
        v.numpy()[1]
        for v in session_of(trainable).trial.program.model.variables
        if v.name == origins.SEED
    ]
    assert states == [10, 10, 10]  # one draw an update


def test_what_tf_random_draws_goes_through_the_kernels_we_replace() -> None:
    def drawn() -> list[Any]:
        random.seed(3)
        with random_layers.replacing_unseeded_draws():
            made = [
                tf.random.uniform((2,)),
                tf.random.uniform((2,), 0, 99, tf.int32),
                tf.random.normal((2,)),
                tf.random.truncated_normal((2,)),
                tf.random.shuffle(tf.range(9)),
                tf.random.categorical(tf.zeros((1, 9)), 4),
                tf.random.gamma((2,), 1.5),
                tf.random.poisson((2,), 5.0),
            ]
        return [value.numpy().tolist() for value in made]

    assert drawn() == drawn()
    kernels = tensorflow_private.gen_random_ops
    assert all(hasattr(getattr(kernels, name), "__wrapped__") for name in random_layers.STATELESS)
