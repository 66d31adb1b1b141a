"""Batched forms of operations give each trial what it has alone, in the form that is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainables.fused import batched_ops
from trainables.fused.batched_ops import map_over_trials

pytestmark = pytest.mark.keras
STATES = np.arange(1, 13, dtype=np.float32).reshape(4, 3) / 10


def alike(state: tf.Tensor) -> tf.Tensor:
    """The counter is alike, and the sum only before the first step; a list holds each step's value."""
    steps = tf.TensorArray(tf.float32, 3)
    loop = tf.while_loop(
        lambda i, *_: i < 3,
        lambda i, total, x, steps: (i + 1, total + tf.reduce_sum(x), x * state, steps.write(i, x)),
        (tf.constant(0), tf.constant(0.0), state, steps),
    )
    return tf.reduce_sum(loop[3].stack(), 0) + loop[1] * loop[2]


def nested(state: tf.Tensor) -> tf.Tensor:
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < 2, lambda i, x: (i + 1, x * state), (tf.constant(0), x)
        )[1]

    return tf.while_loop(
        lambda i, _: i < 2, lambda i, x: (i + 1, x + inner(x)), (tf.constant(0), state)
    )[1]


def one_by_one(state: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda x: tf.reduce_sum(x) < 4, lambda x: (x * 2,), (state,))[0]


def traced(function: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    """A graph of the values and their gradients for all states at once."""

    def together(states: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(states)
            found = map_over_trials(function, states)
        return found, tape.gradient(found, states)

    return tf.function(together, autograph=False).get_concrete_function(
        tf.TensorSpec(STATES.shape, tf.float32)
    )


def kinds(graph: Any) -> set[str]:
    """All operations of a graph and its functions."""
    library = graph.graph.as_graph_def().library.function
    return {op.type for op in graph.graph.get_operations()} | {
        node.op for f in library for node in f.node_def
    }


@pytest.mark.parametrize("function", [alike, nested, one_by_one])
def test_loops_give_each_trial_what_it_has_alone(
    function: Callable[[tf.Tensor], tf.Tensor],
) -> None:
    found = traced(function)(tf.constant(STATES))
    for place, state in enumerate(map(tf.constant, STATES)):
        with tf.GradientTape() as tape:
            tape.watch(state)
            expected = function(state)
        for ours, its in zip(found, (expected, tape.gradient(expected, state)), strict=True):
            np.testing.assert_allclose(ours[place], its, rtol=1e-6)


@pytest.mark.parametrize("function", [alike, nested])
def test_a_loop_that_all_leave_at_once_asks_for_none_of_them(
    function: Callable[[tf.Tensor], tf.Tensor],
) -> None:
    graph = traced(function)
    assert graph.outputs[0].shape == STATES.shape
    assert not {"If", "StatelessIf"} & kinds(graph)


def test_weights_of_trials_that_have_the_same_examples_are_not_moved() -> None:
    examples, weights = tf.constant(STATES), tf.constant(np.stack([STATES[:3], STATES[1:]]))

    @tf.function(autograph=False)
    def together(weights: tf.Tensor) -> tf.Tensor:
        return map_over_trials(lambda one: tf.matmul(examples, one), weights)

    np.testing.assert_allclose(
        together(weights), tf.stack([examples @ one for one in tf.unstack(weights)]), rtol=1e-6
    )
    assert not {"Transpose"} & kinds(together.get_concrete_function(weights))


@pytest.mark.parametrize("in_groups", [True, False])
def test_convolutions_and_their_gradients_are_those_of_each_trial(
    in_groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With kernels that differentiate convolutions in groups and with those that do not."""
    if in_groups and not batched_ops.differentiates_groups():
        pytest.skip("the kernels for this processor have no gradients of convolutions in groups")
    monkeypatch.setattr(batched_ops, "differentiates_groups", lambda: in_groups)
    random = np.random.default_rng(0)
    images = tf.constant(random.normal(size=(3, 2, 6, 6, 4)).astype(np.float32))
    filters = tf.constant(random.normal(size=(3, 3, 3, 4, 5)).astype(np.float32))

    def differentiate(trial: tuple[tf.Tensor, tf.Tensor]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(trial)
            total = tf.reduce_sum(tf.nn.conv2d(*trial, 2, "SAME") ** 2)
        return tape.gradient(total, trial)

    def of_all(images: tf.Tensor, filters: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([images, filters])
            totals = map_over_trials(
                lambda trial: tf.reduce_sum(tf.nn.conv2d(*trial, 2, "SAME") ** 2), (images, filters)
            )
        return tape.gradient(totals, [images, filters]), map_over_trials(
            differentiate, (images, filters)
        )

    outside, inside = tf.function(of_all, autograph=False)(images, filters)
    for trial in range(3):
        expected = differentiate((images[trial], filters[trial]))
        for gradients in (outside, inside):
            for ours, its in zip(gradients, expected, strict=True):
                np.testing.assert_allclose(ours[trial], its, rtol=1e-5, atol=1e-4)
