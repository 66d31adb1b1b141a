"""Whether another trial with the same parameters and seed would give the same numbers is told as it is."""

from __future__ import annotations

import random
import secrets
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, metrics, train

pytestmark = pytest.mark.keras


class Drawing(Small):
    def model(self, hp: Any) -> keras.Model:
        match hp.text("of", ""):
            case "numpy":
                drawn = np.random.default_rng().normal()
            case "python":
                drawn = random.Random().random()
            case "system":
                drawn = secrets.randbelow(1000) / 1000
            case _:
                drawn = random.random()
        model = super().model(hp)
        return keras.Sequential(
            [keras.Input((6,)), keras.layers.Rescaling(1 + drawn), *model.layers]
        )


def facts(of: str, seed: int = 0) -> tuple[list[dict[str, float]], Any]:
    trainable = Drawing()
    found = metrics(train(trainable, assignment(epochs=1, seed=seed, of=of)))
    return found, trainable.facts()


def test_numpys_generators_without_a_seed_follow_the_trials() -> None:
    (one, known), (again, _), (other, _) = facts("numpy"), facts("numpy"), facts("numpy", seed=1)
    assert one == again != other
    assert known.reproducible
    used = Drawing()
    train(used, assignment(epochs=1, seed=1, of="numpy"))
    assert metrics(train(used, assignment(epochs=1, of="numpy"))) == one


@pytest.mark.parametrize("of", ["python", "system"])
def test_what_an_author_draws_from_the_machine_is_told_with_its_line(of: str) -> None:
    (one, known), (again, _) = facts(of), facts(of)
    assert one != again
    assert not known.reproducible
    assert known.numerics["differs"].startswith("test_reproducible.py:")
    assert known.numerics["differs"].endswith(" draws from the machine")


def test_what_follows_the_seed_is_reproducible() -> None:
    (one, known), (again, _) = facts("seeded"), facts("seeded")
    assert one == again
    assert known.reproducible
    assert "differs" not in known.numerics


class Streamed(Small):
    def data(self, hp: Any) -> Any:
        (x, y), held_out = super().data(hp)
        found = tf.data.Dataset.from_tensor_slices((x, y))
        return self.mapped(found, hp.text("how", "")), held_out

    def mapped(self, found: tf.data.Dataset, how: str) -> tf.data.Dataset:
        def noisy(x: Any, y: Any) -> Any:
            return x + tf.random.normal(tf.shape(x)), y

        match how:
            case "loose":
                return found.map(lambda x, y: (x, y), num_parallel_calls=2, deterministic=False)
            case "options":
                options = tf.data.Options()
                options.deterministic = False
                return found.map(lambda x, y: (x, y), num_parallel_calls=2).with_options(options)
            case "draws":
                return found.map(noisy, num_parallel_calls=2)
            case _:
                return found.map(lambda x, y: (x, y), num_parallel_calls=2)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("loose", "deterministic=False"),
        ("options", "deterministic=False"),
        ("draws", "draws in a map"),
        ("", ""),
    ],
)
def test_streams_that_come_in_no_fixed_order_are_told(how: str, told: str) -> None:
    trainable = Streamed()
    trainable.begin(assignment(how=how))
    known = trainable.facts()
    assert known.reproducible == (not told)
    assert told in known.numerics.get("differs", "")
