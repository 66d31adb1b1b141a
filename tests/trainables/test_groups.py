"""Weights by layers: rates, decays and optimizers of their own, against loops written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sampling import sampled
from small import Small, assignment, go_on, metrics, train, weights

from trainables.data.sources import permutation
from trainables.keras_trainable import Group, session_of
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras


class Deep(Small):
    """Three blocks in a model within the model, then a head; normalisation belongs to the layer before it."""

    def model(self, hp: Any) -> keras.Model:
        body: list[Any] = [keras.Input((6,))]
        for i in range(3):
            body += [
                keras.layers.Dense(6, activation="tanh", name=f"dense_{i}"),
                keras.layers.LayerNormalization(name=f"norm_{i}"),
            ]
        backbone = keras.Sequential(body, name="backbone")
        inputs = keras.Input((6,))
        return keras.Model(inputs, keras.layers.Dense(3, name="head")(backbone(inputs)))


DECAYED = {
    f"backbone/{kind}_{i}": 0.5 ** (3 - i) for i in range(3) for kind in ("dense", "norm")
} | {"head": 1.0}


def by_hand(
    trainable: Deep,
    trial: Any,
    rates: dict[str, float],
    make: Any = None,
    clip: float = 0.0,
    decay: Any = None,
) -> list[Any]:
    """Gradients of the whole batch, clipped together, then one optimizer for each layer at its own rate."""
    state = session_of(trainable).trial.program.state
    trained = session_of(trainable).trial.program.model
    model = Deep().model(None)
    for mine, theirs in zip(model.variables, trained.variables, strict=True):
        mine.assign(np.array(state[theirs.path].initial[0]))
    (x, y), _ = trainable.data(None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    layers = {path: layer for path, layer in _layers(model).items() if layer.weights}
    optimizers = {}
    for path, layer in layers.items():
        optimizers[path] = (make or (lambda path, rate: keras.optimizers.Adam(rate)))(
            path, 0.05 * rates.get(path, 1.0)
        )
        if decay:
            optimizers[path].weight_decay = decay.get(path, decay[""])
            optimizers[path].exclude_from_weight_decay(
                var_list=[v for v in layer.weights if len(v.shape) < 2]
            )
        optimizers[path].build(layer.trainable_variables)
    for epoch in range(1, trial.epochs + 1):
        order = permutation(len(x), trial.seed, epoch)
        for start in range(0, len(x), 16):
            rows = order[start : start + 16]
            with tf.GradientTape() as tape:
                value = loss(y[rows], model(x[rows], training=True))
            found = tape.gradient(value, model.trainable_variables)
            if clip:
                found, _ = tf.clip_by_global_norm(found, clip)
            by_variable = {v.path: g for v, g in zip(model.trainable_variables, found, strict=True)}
            for path, layer in layers.items():
                optimizers[path].apply(
                    [by_variable[v.path] for v in layer.trainable_variables],
                    layer.trainable_variables,
                )
    return [v.numpy() for v in model.variables]


def _layers(model: keras.Model) -> dict[str, Any]:
    inner = {f"backbone/{layer.name}": layer for layer in model.get_layer("backbone").layers}
    return {**inner, "head": model.get_layer("head")}


def assert_same(trainable: Deep, expected: list[Any], tolerance: float = 1e-6) -> None:
    for variable, value in zip(
        session_of(trainable).trial.program.model.variables, expected, strict=True
    ):
        np.testing.assert_allclose(
            variable.numpy(), value, atol=tolerance, rtol=1e-6, err_msg=variable.path
        )


def test_rates_that_fall_from_layer_to_layer() -> None:
    trainable, trial = Deep(), assignment(epochs=4, layer_decay=0.5, global_clipnorm=0.2)
    train(trainable, trial)
    assert_same(trainable, by_hand(trainable, trial, DECAYED, clip=0.2))


def test_rates_by_name_of_which_the_innermost_holds() -> None:
    params = {
        "layer_rates.backbone": 0.1,
        "layer_rates.backbone/dense_*": 0.5,
        "layer_rates.head": 2.0,
    }
    trainable, trial = Deep(), assignment(epochs=4, **params)
    train(trainable, trial)
    rates = {path: 0.5 if "dense" in path else 0.1 for path in DECAYED} | {"head": 2.0}
    assert_same(trainable, by_hand(trainable, trial, rates))


def test_both_multiply_and_other_numbers_take_no_other_graph() -> None:
    trainable = Deep()
    train(trainable, assignment(layer_decay=0.9, **{"layer_rates.head": 1.0}))
    first = session_of(trainable).trial.program
    trial = assignment(epochs=4, layer_decay=0.5, **{"layer_rates.head": 3.0})
    train(trainable, trial)
    assert session_of(trainable).trial.program is first
    assert first.train_chunk.experimental_get_tracing_count() == 1
    assert_same(trainable, by_hand(trainable, trial, {**DECAYED, "head": 3.0}))


class Mixed(Deep):
    """Another optimizer for the kernels within, its rate following the trial's; no decay in the head."""

    def groups(self, hp: Any, model: keras.Model) -> Any:
        sgd = keras.optimizers.SGD(1.0, momentum=0.5)
        return [
            Group("backbone/dense_*", sgd, rate=hp.live("inner", 2.0)),
            Group(model.get_layer("head"), weight_decay=0.0),
            Group(
                [model.get_layer("backbone").get_layer("norm_0"), "backbone/norm_1"],
                keras.optimizers.RMSprop(0.001),
            ),
        ]


def test_several_optimizers_clipped_together() -> None:
    # with Adam's own epsilon of 1e-7, the rounding of small gradients, which differs between CPUs, would be enlarged
    adam: dict[str, Any] = {"optimizer": "adam", "epsilon": 1e-4}
    trainable, trial = Mixed(), assignment(epochs=4, weight_decay=0.1, clipvalue=10.0, **adam)

    def make(path: str, rate: float) -> keras.optimizers.Optimizer:
        if "dense" in path:
            return keras.optimizers.SGD(2 * rate, momentum=0.5)
        if path in ("backbone/norm_0", "backbone/norm_1"):
            return keras.optimizers.RMSprop(0.001)
        return keras.optimizers.Adam(rate, epsilon=adam["epsilon"])

    train(trainable, trial)
    none = dict.fromkeys(DECAYED)
    assert_same(trainable, by_hand(trainable, trial, {}, make, decay={**none, "": None}))
    assert len(session_of(trainable).trial.program.model.optimizer.parts) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled([Deep, Mixed], 1))
def test_replicas_micro_batches_and_fit_are_one(kind: type[Deep]) -> None:
    given: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.01}
    given |= {"layer_decay": 0.7, "global_clipnorm": 0.3} if kind is Deep else {}
    plain = metrics(train(kind(), assignment(epochs=4, **given)))
    others = [metrics(train(kind(), assignment(2, epochs=4, **given)))]
    others += [metrics(train(kind(), assignment(epochs=4, micro_batches=2, **given)))]
    others += [metrics(train(kind(), assignment(epochs=4, training={"loop": "fit"}, **given)))]
    for other in others:
        for a, b in zip(plain, other, strict=True):
            assert b == pytest.approx(a, abs=2e-6, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    sampled(
        [
            {"sam_rho": 0.05, "ema_momentum": 0.8},
            {"gradient_checkpointing": True},
            {"training": {"precision": "mixed_float16"}},
        ],
        1,
    ),
    ids=str,
)
def test_a_used_trainable_is_a_fresh_one_and_a_resumed_trial_a_straight_one(
    more: Any, tmp_path: Path
) -> None:
    given = {"layer_decay": 0.7, "global_clipnorm": 0.3, **more}
    used, fresh, resumed = Mixed(), Mixed(), Mixed()
    for trainable in (used, fresh, resumed):
        trainable.groups = lambda hp, model, self=trainable: [
            *Mixed.groups(self, hp, model),
            *Deep.groups(self, hp, model),
        ]
    train(used, assignment(seed=4, epochs=1, learning_rate=0.3, **given))
    again = metrics(train(used, assignment(epochs=3, **given)))
    fresh.begin(assignment(epochs=3, **given))
    first = go_on(fresh, pause_after=1)
    fresh.save(tmp_path)()
    assert metrics([*first, *go_on(fresh)]) == again
    resumed.begin(assignment(epochs=3, **given))
    resumed.restore(tmp_path)
    go_on(resumed)
    for a, b, c in zip(weights(used), weights(fresh), weights(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(b, c)


class Still(keras.optimizers.SGD):
    """Changes the gradients in the method that `Model.fit` calls."""

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        return super().apply_gradients([(0.0 * g, v) for g, v in grads_and_vars])


class AllStill(Deep):
    def optimizer(self, hp: Any) -> Any:
        return Still(hp.number("learning_rate"))


class HeadStill(Deep):
    def groups(self, hp: Any, model: keras.Model) -> Any:
        return [Group("head", Still(0.05))]


@pytest.mark.parametrize(("kind", "moving"), [(AllStill, set()), (HeadStill, {"backbone"})])
def test_an_optimizer_changes_gradients_where_fit_lets_it(
    kind: type[Deep], moving: set[str]
) -> None:
    trainable, trial = kind(), assignment(epochs=1)
    trainable.begin(trial)
    model = session_of(trainable).trial.program.model
    before = {layer.name: layer.get_weights() for layer in model.layers}
    go_on(trainable)
    moved = set()
    for layer in model.layers:
        if any(
            (a != b).any() for a, b in zip(before[layer.name], layer.get_weights(), strict=True)
        ):
            moved.add(layer.name)
    assert moved == moving


class OfKeras(Deep):
    """Keras's own optimizer of several."""

    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.5)
        found = keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.01))
        found["backbone/.*"] = keras.optimizers.SGD(schedule, momentum=0.5)
        return keras.optimizers.MultiOptimizer(found)


def rateless(**params: Any) -> Any:
    found = assignment(epochs=4, **params)
    object.__setattr__(
        found, "params", {k: v for k, v in found.params.items() if k != "learning_rate"}
    )
    return found


def test_kerass_own_optimizer_of_several() -> None:
    trainable, trial = OfKeras(), rateless()
    train(trainable, trial)

    def make(path: str, rate: float) -> keras.optimizers.Optimizer:
        if path == "head":
            return keras.optimizers.Adam(0.01)
        return keras.optimizers.SGD(
            keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.5), momentum=0.5
        )

    assert_same(trainable, by_hand(trainable, trial, {}, make))
    with pytest.raises(Refused, match="the trial has learning_rate"):
        train(OfKeras(), assignment())
    with pytest.raises(Refused, match="MultiOptimizer, and there are groups"):
        train(OfKeras(), rateless(layer_decay=0.5))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (Group("head"), "returned Group, expected a list"),
        (["head"], "returned str in its list"),
        ([Group("neck")], "'neck', expected names among backbone, "),
        ([Group(3)], "is given int, expected a model"),
        ([Group("backbone"), Group("backbone/dense_1")], "in groups 1 and 2, expected one"),
        ([Group("head", keras.optimizers.MultiOptimizer)], "as its optimizer"),
        (
            [
                Group(
                    "head",
                    keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10)),
                    rate=0.5,
                )
            ],
            r"group 1 of groups\(\) has a rate, and its optimizer \(SGD\) a schedule",
        ),
    ],
)
def test_wrong_groups(groups: Any, message: str) -> None:
    class Wrong(Deep):
        def groups(self, hp: Any, model: keras.Model) -> Any:
            return groups

    with pytest.raises((Refused, ValueError, TypeError), match=message):
        train(Wrong(), assignment())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"layer_rates.neck": 0.5}, "layer_rates names 'neck'"),
        (
            {"layer_rates.backbone": 0.5, "layer_rates.back*": 0.1},
            "as 'backbone' and as 'back\\*', expected one",
        ),
        ({"layer_decay": 1.5}, "layer_decay is 1.5, expected a number from 0 to 1"),
        ({"layer_rates.head": "much"}, "expected a number"),
    ],
)
def test_wrong_parameters(params: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        train(Deep(), assignment(**params))


class Bounded(Deep):
    def optimizer(self, hp: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(0.5, global_clipnorm=0.2)


def test_what_the_trials_optimizer_clips_is_clipped_over_its_groups() -> None:
    trainable, trial = Bounded(), rateless(layer_decay=0.5)
    train(trainable, trial)
    assert_same(
        trainable,
        by_hand(
            trainable, trial, DECAYED, lambda _, rate: keras.optimizers.SGD(10 * rate), clip=0.2
        ),
    )


def test_groups_of_a_compiled_model_are_refused() -> None:
    class Compiled(Deep):
        def model(self, hp: Any) -> keras.Model:
            model = super().model(hp)
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            return model

    with pytest.raises(Refused, match=r"compile\(\) or updates\(\) bring their own optimizers"):
        train(Compiled(), rateless(layer_decay=0.5))
