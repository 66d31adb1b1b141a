"""Clipping against that of Keras's optimizers; a bound of 0 is off."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.recipe import clipping

pytestmark = pytest.mark.keras

ROWS, WIDTH = 7, 3
DENSE = np.random.default_rng(1).normal(size=(2, WIDTH)).astype(np.float32)
TABLE = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)


def of_keras(bounds: dict[str, float], gradients: list[Any]) -> list[Any]:
    return list(keras.optimizers.SGD(**bounds)._clip_gradients([tf.constant(g) for g in gradients]))


@pytest.mark.parametrize("bound", [0.0, 0.5, 100.0])
@pytest.mark.parametrize("kind", clipping.KINDS)
def test_each_kind_is_that_of_keras_and_0_is_off(kind: str, bound: float) -> None:
    given = [tf.constant(DENSE), tf.constant(TABLE)]
    # as a live number
    clip = tf.function(lambda gradients, bound: clipping.clip(gradients, {kind: bound}))
    for ours, theirs in zip(
        clip(given, tf.constant(bound)), of_keras({kind: bound}, [DENSE, TABLE]), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    if not bound:
        for ours, before in zip(clip(given, tf.constant(bound)), (DENSE, TABLE), strict=True):
            np.testing.assert_array_equal(ours, before)


@pytest.mark.parametrize(
    "bounds", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.5}, {}]
)
def test_the_parts_of_a_table_are_one(bounds: dict[str, float]) -> None:
    parts = [
        tf.IndexedSlices(tf.constant(TABLE[:4]), tf.range(4), tf.constant([4, WIDTH])),
        tf.IndexedSlices(tf.constant(TABLE[4:]), tf.range(3), tf.constant([3, WIDTH])),
    ]
    other, *table = clipping.clip([tf.constant(DENSE), *parts], bounds, [[0], [1, 2]])
    expected = of_keras(bounds, [DENSE, TABLE])
    np.testing.assert_allclose(other, expected[0], atol=1e-6)
    np.testing.assert_allclose(
        np.concatenate([part.values for part in table]), expected[1], atol=1e-6
    )


def test_a_trial_asks_for_one_kind() -> None:
    assert clipping.list_kinds(Hyperparameters({"clipvalue": 1})) == ("clipvalue",)
    with pytest.raises(ValueError, match="at most one kind"):
        clipping.list_kinds(Hyperparameters({"clipnorm": 1, "clipvalue": 1}))
