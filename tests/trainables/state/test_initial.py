"""A used program takes over what another trial begins with; no device ever holds a second model for that."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, metrics, train, weights

from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


class Watched(Small):
    """Notes where the variables of each model are that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[set[tuple[str, bool]]] = []
        self.models: list[Any] = []

    def model(self, hp: Any) -> keras.Model:
        made = super().model(hp)
        raw = [variable.value for variable in made.variables]
        self.places.append(
            {(one.device[-5:], isinstance(one, tf.distribute.DistributedValues)) for one in raw}
        )
        self.models.append(weakref.ref(made))
        return made


@pytest.mark.exhaustive
@pytest.mark.alone
def test_the_model_that_a_used_program_copies_is_on_the_host_and_goes() -> None:
    for gpus in (0, 2):
        copies_on_the_host(gpus)


def copies_on_the_host(gpus: int) -> None:
    used = Watched()
    train(used, assignment(gpus, seed=1))
    again = train(used, assignment(gpus, seed=2))
    places = used.places
    assert all(spread == (gpus > 1) for _, spread in places[0])
    assert places[1] == {("CPU:0", False)}
    gc.collect()
    assert [model() is not None for model in used.models] == [True, False]
    fresh = Watched()
    assert metrics(again) == metrics(train(fresh, assignment(gpus, seed=2)))
    for a, b in zip(weights(used), weights(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_metric_that_begins_above_zero_begins_so_in_each_trial_and_is_refused_on_replicas(
    gpus: int,
) -> None:
    class FromFive(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="from_five")
            self.total = self.add_weight(initializer=keras.initializers.Constant(5.0), name="total")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

        def result(self) -> Any:
            return self.total

        def reset_state(self) -> None:
            """It counts on, so that what a trial begins with is seen in all its epochs."""

    class Counted(Small):
        def metrics(self, hp: Any, model: keras.Model) -> list[Any]:
            return [FromFive()]

    used, fresh = Counted(), Counted()
    if gpus:  # each would begin with its own five
        with pytest.raises(
            Refused, match="metric 'from_five' is 36 for 31 examples in training and 41 for 2 parts"
        ):
            train(used, assignment(gpus, seed=1))
        return
    train(used, assignment(gpus, seed=1))
    expected = metrics(train(fresh, assignment(gpus, seed=2)))
    assert metrics(train(used, assignment(gpus, seed=2))) == expected


def test_initial_values_are_drawn_on_the_host() -> None:
    drawn: list[str] = []

    class OnDevice(keras.initializers.Initializer):
        def __call__(self, shape: Any, dtype: Any = None) -> Any:
            values = tf.random.stateless_normal(shape, [1, 2], dtype=tf.as_dtype(dtype))
            drawn.append(values.device[-5:])
            return values

    class Drawn(Small):
        def model(self, hp: Any) -> keras.Model:
            inputs = keras.Input((6,))
            return keras.Model(inputs, keras.layers.Dense(3, kernel_initializer=OnDevice())(inputs))

    train(Drawn(), assignment(2))
    assert set(drawn) == {"CPU:0"}
