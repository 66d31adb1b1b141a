"""Standard hyperparameters at their bounds, in trials: what 0 means, and what is refused where a value is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sampling import sampled
from small import Small, assignment, metrics, train, weights

pytestmark = pytest.mark.keras

KINDS = ("clipnorm", "global_clipnorm", "clipvalue")


@pytest.mark.parametrize("kind", sampled(KINDS, 1))  # each kind at 0: recipe/test_clipping.py
def test_clipping_of_0_is_a_training_without_it_also_in_a_used_worker(kind: str) -> None:
    plain, clipping = Small(), Small()
    without = metrics(train(plain, assignment()))
    assert metrics(train(clipping, assignment(**{kind: 0}))) == without
    assert all(map(np.array_equal, weights(plain), weights(clipping)))
    assert metrics(train(clipping, assignment(**{kind: 1e-3}))) != without
    assert metrics(train(clipping, assignment(**{kind: 0}))) == without


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"micro_batches": 0}, "micro_batches is 0, expected a whole number from 1"),
        ({"clipnorm": -1}, r"clipnorm is -1, expected a number from 0 \(0: off\)"),
        ({"batch_size": 0}, "batch_size is 0, expected a whole number from 1"),
        ({"learning_rate": -0.1}, "learning_rate is -0.1, expected a number from 0"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1, expected a number from 0"),
        ({"ema_momentum": 1.5}, "ema_momentum is 1.5, expected a number from 0 to 1"),
    ],
)
@pytest.mark.parametrize("training", [{}, {"loop": "fit"}], ids=["own", "fit"])
def test_what_is_outside_of_its_bounds_fails_the_trial_by_name(
    params: Any, message: str, training: Any
) -> None:
    if training and "ema_momentum" in params:
        pytest.skip("loop: fit refuses it whatever its value")
    with pytest.raises(ValueError, match=message):
        train(Small(), assignment(training=training, **params))


class Reader(Small):
    def model(self, hp: Any) -> Any:
        self.own = hp.number("lr_power") + self.live.number("lr_rise").variable.numpy()
        return super().model(hp)


def test_a_name_that_the_author_alone_reads_may_be_anything() -> None:
    trainable = Reader()
    train(trainable, assignment(epochs=1, lr_power=-3, lr_rise=7.0))
    assert trainable.own == 4.0
