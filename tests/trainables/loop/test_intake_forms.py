"""What an author's `augment` takes and gives back, looked at before training."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
import zoo_mixing
from small import Small, assignment, metrics, train
from zoo import Animal

from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


def returning(method: Any) -> type[Animal]:
    return type("Returning", (Animal,), {"augment": method})


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            lambda self, x, y, hp, draws: x,
            r"Returning\.augment\(x, y, hp, draws\) returned \w*Tensor, expected \(x, y\)",
        ),
        (lambda self, x, y, hp, draws: (x, y, y), r"returned 3 values, expected \(x, y\)"),
        (
            lambda self, x, hp, draws: (x, x),
            r"returned 2 values, expected x alone; to return y, take it",
        ),
        (
            lambda self, x, y, hp, draws: (x, {"a": y}),
            "returned y as {a}, expected one array as it was given",
        ),
        (
            lambda self, x, y, hp, draws: (x, tf.reduce_mean(y)),
            r"returned y of shape \(\) for 3 examples",
        ),
        (lambda self, x, y, hp, draws: (x[:1], y), r"returned x of shape \(1, 6\) for 3 examples"),
        (
            lambda self, x, y, hp, draws: (x, tf.concat([y, y], 0)),
            r"returned y of shape \(6,\) for 3 examples",
        ),
        (
            lambda self, x, y, draws: (x, y),
            r"augment\(x, y, draws\), expected augment\(x, hp, draws\) or augment",
        ),
        (lambda self, y, x, hp, draws: (x, y), r"augment\(y, x, hp, draws\), expected"),
        (lambda self, x: x, r"augment\(x\), expected augment"),
    ],
)
def test_what_augment_gives_back_is_looked_at_before_training(method: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        returning(method)().begin(assignment())


def test_weights_that_examples_have_are_given_back() -> None:
    class Losing(zoo_mixing.MixedWeights):
        def augment(self, x: Any, y: Any, sample_weight: Any, hp: Any, draws: Any) -> Any:
            return x, y, None

    with pytest.raises(Refused, match="returned no sample_weight for examples that have weights"):
        Losing().begin(assignment())


def test_other_names_of_the_three_stay_valid() -> None:
    class Named(Small):
        def augment(self, images: Any, params: Any, draws: Any) -> Any:
            return images + draws.normal((6,), 0.1)

    class Loose(Small):
        def augment(self, *given: Any) -> Any:
            return given[0] + given[2].normal((6,), 0.1)

    assert metrics(train(Named(), assignment())) == metrics(train(Loose(), assignment()))
