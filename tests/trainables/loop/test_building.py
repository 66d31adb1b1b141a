"""What the standard hyperparameters make of an author's model."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from small import Small, assignment, metrics, train

from sweep.contract import OutOfMemory
from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import session_of
from trainables.loop import building

pytestmark = pytest.mark.keras


class Named(Small):
    def model(self, hp: Any) -> keras.Model:
        names = ("stem", "body", "head")
        units = (8, 8, 3)
        last = {"head": "linear"}
        layers = [
            keras.layers.Dense(n, name=name, activation=last.get(name, "tanh"))
            for n, name in zip(units, names, strict=True)
        ]
        return keras.Sequential([keras.Input((6,)), *layers])


@pytest.mark.parametrize(
    ("frozen", "names"), [(2, {"stem", "body"}), (["b*", "head"], {"body", "head"}), (0, set())]
)
def test_frozen_layers_stay_as_they_were(frozen: Any, names: set[str]) -> None:
    trainable = Named()
    given = assignment(epochs=1, frozen_layers=frozen)
    trainable.begin(given)
    model = session_of(trainable).trial.program.model
    before = {layer.name: layer.get_weights() for layer in model.layers}
    train(trainable, given)
    model = session_of(trainable).trial.program.model
    same = {
        layer.name
        for layer in model.layers
        if all((a == b).all() for a, b in zip(before[layer.name], layer.get_weights(), strict=True))
    }
    assert same == names


def test_layers_have_the_same_names_in_every_trial() -> None:
    first = [v.path for v in building.build_model(Small(), Hyperparameters({}), 0).variables]
    assert [
        v.path for v in building.build_model(Small(), Hyperparameters({}), 1).variables
    ] == first
    assert first[0] == "sequential/dense/kernel"


@pytest.mark.parametrize(
    ("frozen", "message"), [(9, "expected 0 to 3"), (["neck"], "'neck', expected a number or")]
)
def test_wrong_frozen_layers(frozen: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(Named(), assignment(frozen_layers=frozen))


class TwoHeads(Small):
    """Dict inputs, two outputs, a loss for each."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), (x_val, y_val) = super().data(hp)
        return tuple(
            ({"a": x[:, :3], "b": x[:, 3:]}, {"kind": y, "size": x.sum(1)})
            for x, y in ((x, y), (x_val, y_val))
        )

    def model(self, hp: Any) -> keras.Model:
        inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b")}
        x = keras.layers.Dense(8, activation="tanh")(
            keras.layers.Concatenate()([inputs["a"], inputs["b"]])
        )
        return keras.Model(
            inputs,
            {
                "kind": keras.layers.Dense(3, name="kind")(x),
                "size": keras.layers.Dense(1, name="size")(x),
            },
        )

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"}

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        return {"kind": ["accuracy"], "size": ["mae"]}


def test_several_inputs_and_outputs_with_weights_that_need_no_new_graph() -> None:
    trainable = TwoHeads()
    programs = []
    for weight in (1.0, 0.25):
        given = assignment(epochs=2, **{"loss_weights.kind": 1.0, "loss_weights.size": weight})
        last = metrics(train(trainable, given))[-1]
        assert last["loss"] == pytest.approx(
            last["kind_loss"] + weight * last["size_loss"], rel=1e-5
        )
        assert {"val_kind_loss", "val_kind_accuracy", "val_size_mae"} <= set(last)
        programs.append(session_of(trainable).trial.program)
    assert programs[0] is programs[1]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_several_outputs_on_replicas() -> None:
    one, two = TwoHeads(), TwoHeads()
    params = {"optimizer": "sgd", "loss_weights.size": 0.5}
    alone, together = (
        metrics(train(one, assignment(**params))),
        metrics(train(two, assignment(2, **params))),
    )
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, abs=1e-6)


def test_a_weight_for_an_unknown_output() -> None:
    with pytest.raises(
        ValueError, match="loss_weights names colour, the model's losses are: kind, size"
    ):
        train(TwoHeads(), assignment(**{"loss_weights.colour": 1.0}))


def test_balanced_classes_weigh_the_same() -> None:
    class Rare(Small):
        def data(self, hp: Any) -> tuple[Any, Any]:
            (x, y), held_out = super().data(hp)
            keep = np.flatnonzero((y != 2) | (np.arange(len(y)) % 5 == 0))
            return (x[keep], y[keep]), held_out

    trainable = Rare()
    train(trainable, assignment(class_weights="balanced", epochs=1))
    _, labels, weight = session_of(trainable).trial.walk.data.arrays
    sums = [float(weight[labels == label].sum()) for label in range(3)]
    np.testing.assert_allclose(sums, len(labels) / 3, rtol=1e-5)


def test_a_batch_that_cannot_be_cut_further_is_out_of_memory() -> None:
    import dataclasses

    given = dataclasses.replace(assignment(batch_size=16), accumulate=16)
    plain = metrics(train(Named(), assignment(batch_size=16)))
    for a, b in zip(plain, metrics(train(Named(), given)), strict=True):
        assert b == pytest.approx(a, abs=1e-6)
    with pytest.raises(OutOfMemory, match="a batch of 16"):
        train(Named(), dataclasses.replace(given, accumulate=32))


def test_batch_size_per_replica_is_the_other_way_to_say_it() -> None:
    two = Small()
    params = assignment(2, epochs=1).params
    rest = {name: value for name, value in params.items() if name != "batch_size"}
    import dataclasses

    train(
        two,
        dataclasses.replace(assignment(2, epochs=1), params={**rest, "per_replica_batch_size": 8}),
    )
    assert session_of(two).trial.walk.batch_size == 16
    with pytest.raises(ValueError, match="both set"):
        train(two, assignment(2, per_replica_batch_size=8))


def test_patience_ends_a_trial_that_gets_no_better() -> None:
    import dataclasses

    given = assignment(epochs=30, optimizer="sgd", learning_rate=0.0, training={"patience": 3})
    epochs = train(Small(), dataclasses.replace(given, objective="val_accuracy", maximize=True))
    assert len(epochs) == 4


def _build_by(how: str) -> keras.Model:
    """A Sequential without an `Input`, or one with a fixed batch size, built as authors build it."""
    fixed = [keras.Input((6,), batch_size=1, name="points")] if how == "input" else []
    kernel = keras.initializers.GlorotUniform(seed=1)
    model = keras.Sequential(
        [
            *fixed,
            keras.layers.Dense(3, kernel_initializer=kernel),
            keras.layers.BatchNormalization(),
        ]
    )
    if how == "call":
        model(np.zeros((1, 6), np.float32))
    if how == "build":
        model.build((1, 6))
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


@pytest.mark.parametrize("how", ["call", "build", "input"])
def test_a_sequential_built_for_one_example_takes_batches_of_any_size(how: str) -> None:
    class OfOne(Small):
        def model(self, hp: Any) -> keras.Model:
            return _build_by(how)

    given = assignment(shuffle=False)
    object.__setattr__(given, "params", {"batch_size": 16, "shuffle": False})
    ours = OfOne()
    epochs = metrics(train(ours, given))
    (x, y), held_out = ours.data(None)
    fit = (
        _build_by(how)
        .fit(x, y, 16, epochs=2, shuffle=False, validation_data=held_out, verbose=0)
        .history
    )
    for key in ("loss", "val_loss"):
        assert [epoch[key] for epoch in epochs] == pytest.approx(fit[key], abs=2e-6)
    assert ours.trained_model().inputs[0].shape == (None, 6)


def test_a_sequential_of_several_inputs_stays_as_it_was_built() -> None:
    class Sum(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x["a"] + x["b"]

    class OfTwo(Small):
        def model(self, hp: Any) -> keras.Model:
            model = keras.Sequential([Sum(), keras.layers.Dense(3)])
            one = np.zeros((1, 6), np.float32)
            model({"a": one, "b": one})
            return model

    assert len(building.build_model(OfTwo(), Hyperparameters({}), 0).layers) == 2


def test_outputs_are_float32_under_a_mixed_policy() -> None:
    trainable = Named()
    trainable.begin(assignment(training={"precision": "mixed_bfloat16"}))
    layers = session_of(trainable).trial.program.model.layers
    assert [layer.compute_dtype for layer in layers if layer.weights] == [
        "bfloat16",
        "bfloat16",
        "float32",
    ]


def test_dropout_may_be_a_live_number() -> None:
    class Dropping(Small):
        def model(self, hp: Any) -> keras.Model:
            rate = self.live.number("dropout", default=0.0, bounds=(0, 0.9))
            return keras.Sequential(
                [
                    keras.Input((6,)),
                    keras.layers.Dense(8),
                    keras.layers.Dropout(rate),
                    keras.layers.Dense(3),
                ]
            )

    trainable = Dropping()
    losses = []
    for params in ({}, {"dropout": 0.5}, {"dropout": 0.0}):
        losses.append(metrics(train(trainable, assignment(epochs=1, **params)))[0]["loss"])
    assert losses[0] == losses[2] != losses[1]
    assert session_of(trainable).trial.program.train_chunk.experimental_get_tracing_count() == 1
    with pytest.raises(ValueError, match=r"dropout is 0\.95"):
        train(trainable, assignment(dropout=0.95))


def test_measures_of_an_epoch() -> None:
    first, second = train(Small(), assignment())
    assert set(first.measures) == {
        "step_s",
        "data_wait_s",
        "validation_s",
        "compile_s",
        "validation_examples",
        "validation_loss_std",
        "memory_peak_bytes",
        "cpu_cores",
    }
    assert set(first.measures) - set(second.measures) == {"validation_examples"}  # counted once
    assert first.measures["compile_s"] > 0 == second.measures["compile_s"]
    assert first.measures["memory_peak_bytes"] > 50e6


@pytest.mark.slow
def test_gradient_checkpointing_on_replicas() -> None:
    params = {"gradient_checkpointing": True, "optimizer": "sgd"}
    alone, together = (
        metrics(train(Small(), assignment(**params))),
        metrics(train(Small(), assignment(2, **params))),
    )
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, abs=1e-6)
