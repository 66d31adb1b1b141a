"""`training: {run_eagerly: true}`: the same numbers, and values that Python can look at."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, metrics, train
from zoo_checks import given
from zoo_entries import ENTRIES

from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras
EAGER = {"run_eagerly": True}
SEEN: list[float] = []


class Looked(keras.layers.Layer):
    """Notes what it can see of a batch."""

    def call(self, x: Any) -> Any:
        if tf.executing_eagerly():
            SEEN.append(float(x[0, 0]))
        return x


class Watching(Small):
    def model(self, hp: Any) -> keras.Model:
        body = [
            keras.layers.Dense(8, "tanh"),
            Looked(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3),
        ]
        return keras.Sequential([keras.Input((6,)), *body])


def test_values_are_there_to_look_at() -> None:
    SEEN.clear()
    plain = metrics(train(Watching(), assignment(optimizer="adam", clipnorm=1.0)))
    assert SEEN == []
    eager = metrics(train(Watching(), assignment(optimizer="adam", clipnorm=1.0, training=EAGER)))
    assert len(SEEN) == 2 * (5 + 1)
    for a, b in zip(plain, eager, strict=True):
        assert b == pytest.approx(a, abs=1e-6)
    assert not tf.config.functions_run_eagerly()


@pytest.mark.parametrize("name", sampled(["Adversaries", "TeachesItself", "AtOnce"], 1))
def test_steps_of_ones_own_give_the_same(name: str) -> None:
    found = ENTRIES[name]
    plain, eager = (
        metrics(train(found.trainable(), given(found, **more)))
        for more in ({}, {"training": EAGER})
    )
    for a, b in zip(plain, eager, strict=True):
        assert b == pytest.approx(a, abs=1e-5)


def test_a_batch_in_parts_is_refused() -> None:
    with pytest.raises(Refused, match="computed in 2 parts"):
        train(Small(), assignment(2, training=EAGER))
    with pytest.raises(Refused, match="computed in 3 parts"):
        train(Small(), assignment(micro_batches=3, training=EAGER))
