"""Every example of the page on models without targets trains, by what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import assignment, metrics, train

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras

PAGE = Path(__file__).parents[2] / "docs" / "unsupervised.md"
BY_THEMSELVES = {
    "Variational": "model: VAE has a train_step and a test_step of its own",
    "Gan": "model: Adversaries has a train_step of its own",
}


def examples() -> dict[str, str]:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {
        re.findall(r"^class (\w+)\(KerasTrainable\)", block, re.MULTILINE)[0]: block
        for block in blocks
    }


def example(name: str) -> type[KerasTrainable]:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(examples()[name], name, "exec"), found)
    kind: type[KerasTrainable] = found[name]
    return kind


def trial(gpus: int = 0, **params: Any) -> Any:
    return assignment(
        gpus, **{"batch_size": 100, "optimizer": "adam", "learning_rate": 3e-3, **params}
    )


def of(name: str) -> Any:
    return assignment(batch_size=100, learning_rate=3e-3) if name == "Gan" else trial()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name == "TwoTowers" else ())
        for name in examples()
    ],
)
def test_an_example_trains_in_a_fresh_worker_and_in_a_used_one(name: str) -> None:
    trainable = example(name)()
    first, last = metrics(train(trainable, of(name)))
    assert last["loss"] != first["loss"]
    assert ("val_loss" in last) == (name != "Gan")
    assert trainable.facts().numerics.get("loop", "") == BY_THEMSELVES.get(name, "")
    assert metrics(train(trainable, of(name))) == [first, last]
    assert trainable.facts().structures == 1


@pytest.mark.parametrize("name", sampled(["TwoTowers", "Autoencoder", "Endpoint"], 1))
def test_what_the_loop_trains_is_the_same_on_two_replicas(name: str) -> None:
    alone, together = (metrics(train(example(name)(), trial(gpus))) for gpus in (0, 2))
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, rel=1e-4)


def test_a_step_of_the_models_own_trains_what_keras_trains() -> None:
    class Unvalidated(example("Variational")):
        def data(self, hp: Any) -> Any:
            return super().data(hp)[0], None

    hp = Hyperparameters({})
    keras.utils.set_random_seed(0)
    (x, _), _ = Unvalidated().data(hp)
    model = Unvalidated().model(hp)
    model.compile(keras.optimizers.Adam(3e-3))
    model.built = True
    seen = model.fit(x, batch_size=100, epochs=2, shuffle=False, verbose=0).history["loss"]
    found = metrics(train(Unvalidated(), trial(shuffle=False)))
    assert [epoch["loss"] for epoch in found] == pytest.approx(seen, rel=1e-5)


def test_a_step_of_the_models_own_is_refused_on_replicas() -> None:
    with pytest.raises(
        Refused, match=r"VAE has its own train_step and test_step, and there are 2 replicas"
    ):
        train(example("Variational")(), trial(2))


class Bare(KerasTrainable):
    def data(self, hp: Any) -> Any:
        x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
        return (x,), (x[:20],)

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])


def test_without_any_loss_the_ways_to_one_are_named() -> None:
    with pytest.raises(Refused, match=r"nothing gives a loss to train by.*docs/unsupervised\.md"):
        train(Bare(), trial())


def test_validation_without_a_loss_is_named() -> None:
    class Stepping(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.layers.Dense(6)

        def call(self, x: Any) -> Any:
            return self.inner(x)

        def train_step(self, x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x) - x))
            weights = self.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    class Paired(Stepping):
        def train_step(self, data: Any) -> Any:
            return super().train_step(data[0])

    class Validated(Bare):
        def model(self, hp: Any) -> keras.Model:
            return Stepping()

    class WithTargets(Validated):
        def data(self, hp: Any) -> Any:
            return tuple((x, x) for (x,) in super().data(hp))

        def model(self, hp: Any) -> keras.Model:
            model = Paired()
            model.compile("sgd")
            return model

    with pytest.raises(
        Refused, match=r"by: the data has no targets, loss\(\) gives .*define test_step\(\)"
    ):
        train(Validated(), trial())
    with pytest.raises(
        Refused,
        match=r"to validate by: there is none in loss\(\) or compile\(\), .*; give one there, ",
    ):
        train(WithTargets(), trial())


def test_a_compute_loss_of_the_models_own_needs_no_other() -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.layers.Dense(6)

        def call(self, x: Any) -> Any:
            return self.inner(x)

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, *weight: Any, **more: Any
        ) -> Any:
            return tf.reduce_mean(tf.square(y_pred - x))

    class Computed(Bare):
        def model(self, hp: Any) -> keras.Model:
            return Own()

    trainable = Computed()
    first, last = metrics(train(trainable, trial()))
    assert last["val_loss"] < first["val_loss"]
    assert "loop" not in trainable.facts().numerics
