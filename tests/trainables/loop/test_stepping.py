"""A training step of one's own is checked before the first update, and what makes no sense is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from small import Small, assignment, metrics, train, weights
from zoo_steps import Alternating, Distilled, Pairs

from trainables.keras_trainable import Update, session_of
from trainables.recipe.refusals import Refused
from trainables.replicas import keras_corrections

pytestmark = pytest.mark.keras

crossentropy = keras.losses.sparse_categorical_crossentropy


class Stepping(Small):
    """`Small` with its loss written out; a trial's parameters make its mistakes."""

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        match hp.get("returns", "right"):
            case "nothing":
                return None
            case "another":
                return {"distance": 1.0}
            case "constant":
                return {"loss": tf.constant(1.0)}
            case "sum":
                return {
                    "loss": tf.reduce_sum(
                        crossentropy(batch.y, model(batch.x, training=True), from_logits=True)
                    )
                }
        predicted = model(batch.x, training=True)
        batch.measure(predicted)
        loss = crossentropy(batch.y, predicted, from_logits=True)
        return {"loss": loss if batch.sample_weight is None else loss * batch.sample_weight}


class Unweighted(Stepping):
    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        return {"loss": crossentropy(batch.y, model(batch.x, training=True), from_logits=True)}


def test_the_default_step_written_out_is_the_default_step() -> None:
    weighted: Any = {
        "class_weights": "balanced",
        "micro_batches": 3,
        "optimizer": "adamw",
        "weight_decay": 0.1,
    }
    ours, default = Stepping(), Small()
    mine, theirs = (
        metrics(train(kind, assignment(epochs=3, **weighted))) for kind in (ours, default)
    )
    for a, b in zip(mine, theirs, strict=True):
        assert a == pytest.approx(b, abs=1e-6)
    for a, b in zip(weights(ours)[:6], weights(default)[:6], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_biases_of_a_compiled_model_decay_with_a_step_as_without() -> None:
    class Compiled(Small):
        def model(self, hp: Any) -> keras.Model:
            model = keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(3, bias_initializer="ones")]
            )
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.05, weight_decay=0.5), loss)
            return model

    class Stepped(Compiled):
        train_step = Unweighted.train_step

    mine, theirs = Stepped(), Compiled()
    for trainable in (mine, theirs):
        train(trainable, assignment(epochs=3))
    for a, b in zip(weights(mine)[:2], weights(theirs)[:2], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_rate_of_a_schedule_is_that_of_the_last_of_several_updates_of_a_batch() -> None:
    class Twice(Stepping):
        def updates(self, hp: Any, model: keras.Model) -> Any:
            return [Update("loss", model, keras.optimizers.SGD(FALLING), times=2)]

    given = assignment()
    given.params.pop("learning_rate")
    found = [epoch.learning_rate for epoch in train(Twice(), given)]
    assert found == pytest.approx([float(FALLING(update)) for update in (9, 19)])


@pytest.mark.parametrize("kind", [Stepping, Small])
def test_a_network_is_corrected_alike_with_a_step_and_without(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    for name in (
        "keep_loss_means",
        "keep_arithmetic_on_devices",
        "set_outputs_to_float32",
        "take_global_gradients",
    ):
        monkeypatch.setattr(keras_corrections, name, lambda *_, name=name: called.append(name))
    kind().begin(assignment())
    assert sorted(called) == [
        "keep_arithmetic_on_devices",
        "keep_loss_means",
        "set_outputs_to_float32",
        "take_global_gradients",
    ]


def test_half_precision_scales_and_checks_as_the_default_step_does() -> None:
    training = {"precision": "mixed_float16"}
    mine, theirs = (
        metrics(train(kind(), assignment(epochs=3, training=training)))
        for kind in (Stepping, Small)
    )
    for a, b in zip(mine, theirs, strict=True):
        assert a == pytest.approx(b, abs=2e-2)


@pytest.mark.parametrize(
    ("returns", "told"),
    [
        ("nothing", r"train_step\(\) returned NoneType, expected a dictionary"),
        ("another", r"train_step\(\) returned distance, expected loss among them"),
        ("constant", "'loss', which depends on none of the weights"),
    ],
)
def test_what_a_step_must_return(returns: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        train(Stepping(), assignment(returns=returns))


def test_a_sum_over_the_examples_is_refused_in_parts() -> None:
    train(Stepping(), assignment(epochs=1, learning_rate=1e-4, returns="sum"))
    with pytest.raises(
        Refused, match=r"train_step\(\) gives 'loss' of .* as the mean of their parts"
    ):
        train(Stepping(), assignment(returns="sum", micro_batches=2))


def test_what_needs_the_whole_batch_is_refused_in_micro_batches() -> None:
    with pytest.raises(Refused, match=r"batch.gather\(\) needs the whole batch"):
        train(Pairs(), assignment(micro_batches=2))


def test_weights_of_examples_are_not_left_unread() -> None:
    with pytest.raises(Refused, match=r"does not read batch.sample_weight"):
        train(Unweighted(), assignment(class_weights="balanced"))


def test_gradient_checkpointing_and_fit_are_refused() -> None:
    with pytest.raises(Refused, match=r"does not reach into a train_step\(\)"):
        train(Stepping(), assignment(gradient_checkpointing=True))
    with pytest.raises(Refused, match=r"defines train_step\(\), which Model.fit does not call"):
        train(Stepping(), assignment(training={"loop": "fit"}))


class Updating(Stepping):
    given: Callable[[keras.Model], Any]

    def updates(self, hp: Any, model: keras.Model) -> Any:
        return type(self).given(model)


def adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam()


FALLING = keras.optimizers.schedules.PolynomialDecay(0.1, 20, 0.0)
SHARED = keras.optimizers.Adam(0.1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda model: [], r"returned \[\], expected a list of Update"),
        (lambda model: ["loss"], "returned str in its list"),
        (
            lambda model: [Update("loss", model), Update("more", model)],
            "gives 'loss' and 'more' no optimizer",
        ),
        (lambda model: [Update("loss", model, times=0)], "times=0, expected a whole number from 1"),
        (
            lambda model: [(Update("loss", model, times=2),)],
            "times=2.*and 1 among those that happen at once",
        ),
        (lambda model: [Update("loss", model, rate=0.1)], "has a rate and no optimizer"),
        (
            lambda model: [Update("loss", model, keras.optimizers.SGD(FALLING), rate=0.1)],
            r"Update\('loss'\) has a rate, and its optimizer \(SGD\) a schedule of its own",
        ),
        (
            lambda model: [(Update("loss", model), Update("loss", model, adam()))],
            "minimises 'loss' twice at once",
        ),
        (lambda model: [Update("loss", keras.layers.ReLU())], "has no weights to train"),
        (
            lambda model: [Update("a", model, SHARED), Update("b", model, SHARED)],
            "the same optimizer",
        ),
        (
            lambda model: [
                Update("loss", model),
                Update("b", model, keras.optimizers.Adam(use_ema=True)),
            ],
            r"Update\('b'\) averages weights",
        ),
    ],
)
def test_updates_that_make_no_sense(given: Any, told: str) -> None:
    class Mistaken(Updating):
        pass

    Mistaken.given = staticmethod(given)
    with pytest.raises(Refused, match=told):
        train(Mistaken(), assignment())


class Lone(Small):
    def updates(self, hp: Any, model: keras.Model) -> Any:
        return []


def test_updates_without_a_step_are_no_use() -> None:
    with pytest.raises(Refused, match=r"Lone defines updates\(\) without train_step\(\)"):
        train(Lone(), assignment())


class Measured(Small):
    """Metrics of its own, with a validation that does not count them."""

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return ["accuracy"]

    def train_step(self, model: Any, batch: Any, hp: Any) -> Any:
        predicted = model(batch.x, training=True)
        if hp.get("measures", False):
            batch.measure(predicted)
        return {"loss": crossentropy(batch.y, predicted, from_logits=True)}

    def test_step(self, model: Any, batch: Any, hp: Any) -> Any:
        return {"loss": crossentropy(batch.y, model(batch.x), from_logits=True)}


def test_metrics_are_counted_where_the_step_says_so_or_refused() -> None:
    assert set(train(Measured(), assignment(measures=True))[-1].metrics) == {
        "accuracy",
        "loss",
        "val_loss",
    }
    with pytest.raises(Refused, match=r"metrics\(\) are never counted: call batch.measure"):
        train(Measured(), assignment())
    with pytest.raises(Refused, match=r"has nothing to count; define metrics\(\)"):
        train(type("Bare", (Measured,), {"metrics": Small.metrics})(), assignment(measures=True))


class Signed(Small):
    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        pass


def test_a_hook_with_the_arguments_of_keras_is_told_ours() -> None:
    with pytest.raises(
        Refused,
        match=r"Signed.on_epoch_end\(self, epoch, logs\) is called with \(self, epoch, logs, model, hp\)",
    ):
        train(Signed(), assignment())


class OwnRate(Updating):
    given = staticmethod(lambda model: [Update("loss", model, keras.optimizers.SGD(0.1))])


def test_a_learning_rate_without_effect_is_refused() -> None:
    with pytest.raises(Refused, match="learning_rate, which would have no effect"):
        train(OwnRate(), assignment())
    own = assignment()
    object.__setattr__(own, "params", {"batch_size": 16})
    assert train(OwnRate(), own)[0].learning_rate == pytest.approx(0.1)


def test_networks_beside_the_model_are_part_of_a_checkpoint() -> None:
    ours, own = Alternating(), assignment(epochs=1)
    object.__setattr__(own, "params", {"batch_size": 16})
    train(ours, own)
    paths = list(session_of(ours).trial.program.state)
    assert sum("adam" in path for path in paths) > 12  # the moments of both
    teaching = Distilled()
    train(teaching, assignment(epochs=1))
    held = session_of(teaching).trial.program.state
    assert (
        sum(parts[0].size for parts in held.copy_all().values()) > teaching.teacher.count_params()
    )
