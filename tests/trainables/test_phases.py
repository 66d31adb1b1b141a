"""Phases are what Keras's transfer learning does by hand: freeze, compile, fit; unfreeze, compile, fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from sampling import sampled
from small import Small, assignment, go_on, metrics, train, weights

from sweep.hyperparameters import Hyperparameters
from trainables.data.sources import permutation
from trainables.keras_trainable import Phase, session_of
from trainables.numbers.live import Live
from trainables.recipe.refusals import Refused
from trainables.state.checkpoint import CheckpointError

pytestmark = pytest.mark.keras


class Transfer(Small):
    """A base with batch normalisation and dropout, a head beside it."""

    dropout_rate = 0.0

    def model(self, hp: Any) -> keras.Model:
        base = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, name="one"),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.ReLU(),
                keras.layers.Dropout(self.dropout_rate),
                keras.layers.Dense(4, activation="tanh", name="two"),
            ],
            name="base",
        )
        inputs = keras.Input((6,))
        return keras.Model(inputs, keras.layers.Dense(3, name="head")(base(inputs)))


TWO = {
    "frozen_layers": ["base"],
    "frozen_epochs": 2,
    "fine_tune_learning_rate": 0.005,
    "learning_rate": 0.05,
}


def two(gpus: int = 0, **params: Any) -> Any:
    return assignment(gpus, epochs=5, **{**TWO, **params})


def by_keras(trial: Any) -> tuple[list[dict[str, float]], list[Any]]:
    """https://keras.io/guides/transfer_learning/, with our order of examples and nothing else of ours."""
    author = Transfer()
    author.live = Live(Hyperparameters({}))
    import random

    from trainables.replicas import keras_corrections

    random.seed(trial.seed)
    np.random.seed(trial.seed)
    keras_corrections.number_layers_anew()
    model = author.model(None)
    (x, y), held_out = author.data(None)
    history: list[dict[str, float]] = []
    base = model.get_layer("base")
    for trainable, rate, epochs in ((False, 0.05, (1, 2)), (True, 0.005, (3, 4, 5))):
        base.trainable = trainable
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"], jit_compile=False)
        for epoch in epochs:
            order = permutation(len(x), trial.seed, epoch)
            seen = model.fit(x[order], y[order], 16, shuffle=False, verbose=0).history
            held = model.evaluate(*held_out, 256, verbose=0, return_dict=True)
            history.append(
                {name: found[-1] for name, found in seen.items()}
                | {f"val_{name}": v for name, v in held.items()}
            )
    return history, [v.numpy() for v in model.variables]


def test_two_phases_are_kerass_recipe() -> None:
    trainable = Transfer()
    ours = metrics(train(trainable, two()))
    theirs, expected = by_keras(two())
    for mine, other in zip(ours, theirs, strict=True):
        for name, value in other.items():
            assert mine[name] == pytest.approx(value, abs=2e-6), name
    model = session_of(trainable).trial.program.model
    for variable, value in zip(model.variables, expected, strict=True):
        if variable.dtype.startswith("float"):
            np.testing.assert_allclose(variable.numpy(), value, atol=2e-6, err_msg=variable.path)


def test_the_first_phase_leaves_the_base_and_its_statistics_alone() -> None:
    trainable = Transfer()
    trainable.begin(two())
    base = session_of(trainable).trial.program.model.get_layer("base")
    before = [v.numpy() for v in base.variables]
    assert len(session_of(trainable).trial.program.model.optimizer._trainable_variables) == 2
    go_on(trainable, pause_after=2)
    for a, b in zip(before, base.variables, strict=True):
        np.testing.assert_array_equal(a, b.numpy())
    go_on(trainable)
    base = session_of(trainable).trial.program.model.get_layer("base")
    assert not any(np.array_equal(a, b.numpy()) for a, b in zip(before, base.weights, strict=False))


def compiled(epochs: Sequence[Any]) -> list[int]:
    """The epochs before which something was compiled."""
    return [epoch.epoch for epoch in epochs if epoch.measures["compile_s"] > 0]


def test_a_second_trial_compiles_nothing_and_is_as_in_a_fresh_trainable() -> None:
    used, fresh = Transfer(), Transfer()
    assert compiled(train(used, two(seed=3, learning_rate=0.02))) == [1, 3]
    again = train(used, two(frozen_epochs=1, fine_tune_learning_rate=0.01))
    assert compiled(again) == []
    assert metrics(again) == metrics(
        train(fresh, two(frozen_epochs=1, fine_tune_learning_rate=0.01))
    )
    for a, b in zip(weights(used), weights(fresh), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("at", "more"),
    sampled([(2, {"ema_momentum": 0.8}), (1, {}), (3, {})], 1, several=True),
    ids=str,
)
def test_it_is_resumed_exactly_in_each_phase_and_between_them(
    at: int, more: Any, tmp_path: Path
) -> None:
    straight, broken, resumed = Transfer(), Transfer(), Transfer()
    for trainable in (straight, broken, resumed):
        trainable.dropout_rate = 0.3
    whole = metrics(train(straight, two(**more)))
    broken.begin(two(**more))
    first = go_on(broken, pause_after=at)
    broken.save(tmp_path)()
    resumed.begin(two(**more))
    assert resumed.restore(tmp_path) == at
    assert metrics([*first, *go_on(resumed)]) == whole
    for a, b in zip(weights(straight), weights(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_a_phase_that_is_gone_is_refused(tmp_path: Path) -> None:
    class OnePhase(Transfer):
        def phases(self, hp: Any) -> list[Phase]:
            return [Phase()]

    broken, changed = Transfer(), OnePhase()
    broken.begin(two())
    go_on(broken, pause_after=3)
    broken.save(tmp_path)()
    changed.begin(two())
    with pytest.raises(CheckpointError, match=r"made in phase 2, and phases\(\) has 1 now"):
        changed.restore(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_replicas_are_one(gpus: int) -> None:
    one, several = Transfer(), Transfer()
    params = {"optimizer": "sgd", "momentum": 0.9, "layer_decay": 0.7, "ema_momentum": 0.5}
    alone, together = (
        metrics(train(one, two(**params))),
        metrics(train(several, two(gpus, **params))),
    )
    for a, b in zip(alone, together, strict=True):
        assert b == pytest.approx(a, abs=1e-6, rel=1e-6)


def test_each_phase_has_a_schedule_and_a_warm_up_of_its_own() -> None:
    trainable = Transfer()
    trainable.begin(two(lr_schedule="linear", warmup_steps=2))
    rates: list[list[float]] = []
    while not session_of(trainable).trial.finished:
        if session_of(trainable).trial.phase_is_over:
            session_of(trainable).enter_next_phase()
        rates.append(session_of(trainable).trial.rates().tolist())
        session_of(trainable).trial.train_epoch()
    assert rates[0][:3] == pytest.approx([0.025, 0.05, 0.05])
    # 5 updates an epoch, 10 in the phase, 2 of them warm-up
    assert rates[1][-1] == pytest.approx(0.05 / 8)
    assert rates[2][:3] == pytest.approx([0.0025, 0.005, 0.005])
    assert rates[4][-1] == pytest.approx(0.005 / 13)


def test_a_trial_that_ends_between_phases_may_be_extended() -> None:
    trainable = Transfer()
    train(trainable, dataclasses.replace(two(lr_schedule="cosine"), epochs=2))
    assert trainable.facts().extends
    train(trainable, two(lr_schedule="cosine"))
    assert not trainable.facts().extends
    train(trainable, two())
    assert trainable.facts().extends


@pytest.mark.parametrize("average", [{"ema_momentum": 0.8}, {"swa_from": 2}], ids=str)
def test_averages_go_on_over_the_border(average: Any) -> None:
    trainable = Transfer()
    seen: list[Any] = []
    trainable.begin(two(**average))
    kernels: list[Any] = []

    def report(epoch: Any) -> bool:
        seen.append(session_of(trainable).trial.program.averages[0])
        kernels.append(session_of(trainable).trial.program.model.get_layer("head").kernel.numpy())
        return True

    trainable.train(report)
    last = seen[-1]
    place = (
        [w.path for w in last.weights].index("head/kernel")
        if "head/kernel" in [w.path for w in last.weights]
        else -2
    )
    value = last.variables[place].numpy()
    if "swa_from" in average:
        np.testing.assert_allclose(value, np.mean(kernels[1:], axis=0), atol=1e-6)
        assert float(last.started.numpy()) == 4
    else:
        assert not np.allclose(value, kernels[-1])


def test_what_is_exported_is_the_phase_that_it_is_in(tmp_path: Path) -> None:
    trainable = Transfer()
    trainable.begin(two())
    go_on(trainable, pause_after=2)
    exported = trainable.export(tmp_path, ["keras"])
    assert max(exported.differences.values()) < 1e-6
    inside = session_of(trainable).trial.program.model.get_layer("head").get_weights()
    np.testing.assert_array_equal(
        trainable.trained_model().get_layer("head").get_weights()[0], inside[0]
    )


class ByAuthor(Transfer):
    def phases(self, hp: Any) -> list[Phase]:
        return [
            Phase(
                hp.integer("head_epochs", 1),
                {"frozen_layers": ["base"], "optimizer": "sgd", "batch_size": 35},
            ),
            Phase(1, {"frozen_layers": ["base/one", "base/norm"], "lr_schedule": "cosine"}),
            Phase(None, {"learning_rate": 1e-3}),
        ]


def test_an_author_may_say_what_changes() -> None:
    trainable = ByAuthor()
    trainable.begin(assignment(epochs=4, optimizer="nadam"))
    names, sizes, rates = [], [], []

    def report(epoch: Any) -> bool:
        trial = session_of(trainable).trial
        names.append(
            (trial.program.model.optimizer.name, len(trial.program.model.trainable_variables))
        )
        sizes.append(trial.walk.batch_size)
        rates.append(epoch.learning_rate)
        return True

    trainable.train(report)
    assert names == [("sgd", 2), ("nadam", 4), ("nadam", 8), ("nadam", 8)]
    assert sizes == [35, 16, 16, 16]
    assert rates == pytest.approx([0.05, 0.05 * 0.5 * (1 + np.cos(np.pi * 0.8)), 1e-3, 1e-3])


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([], "expected a list of Phase"),
        ([Phase(None), Phase(2)], "only the last may lack"),
        ([Phase(2)], "over after 2 epochs, and the trial has 4"),
        ([Phase(-1), Phase()], "-1 epochs"),
        ([Phase(None, {"learning_rte": 1.0})], "phase 1 changes learning_rte, which nothing reads"),
        ([Phase(None, {"epochs": 1})], "changes epochs, which holds for a whole trial"),
    ],
)
def test_wrong_phases(phases: Any, message: str) -> None:
    class Wrong(Transfer):
        def phases(self, hp: Any) -> Any:
            return phases

    with pytest.raises(Refused, match=message):
        train(Wrong(), assignment(epochs=4))


def test_frozen_epochs_need_frozen_layers() -> None:
    with pytest.raises(ValueError, match="expected frozen_layers beside it"):
        train(Transfer(), assignment(frozen_epochs=1))


def test_another_model_in_the_next_phase_is_refused() -> None:
    class Growing(Transfer):
        def model(self, hp: Any) -> keras.Model:
            units = 8 if "frozen_layers" in hp else 9
            return keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(units, name="base"), keras.layers.Dense(3)]
            )

    with pytest.raises(Refused, match=r"another model in the next phase: .*base"):
        train(Growing(), two())


@pytest.mark.slow
def test_fit_has_phases_too() -> None:
    ours = metrics(train(Transfer(), two()))
    theirs = metrics(train(Transfer(), two(training={"loop": "fit"})))
    for a, b in zip(ours, theirs, strict=True):
        assert b == pytest.approx(a, abs=2e-6)


def test_each_phase_is_timed_for_a_plan() -> None:
    trainable = Transfer()
    trainable.begin(two())
    heard: list[list[int]] = []
    for length in session_of(trainable).try_phases():
        heard.append([length])
        go_on(trainable, pause_after=session_of(trainable).trial.epoch + 1)
        heard[-1].append(len(session_of(trainable).trial.program.model.trainable_variables))
    assert heard == [[2, 2], [3, 8]]
    train(trainable, two())  # which spoils no other trial
    first = metrics(train(trainable, two()))
    assert first == metrics(train(Transfer(), two()))


def test_callbacks_of_keras_cannot_begin_anew_between_phases() -> None:
    class Called(Transfer):
        def callbacks(self, hp: Any) -> Any:
            return [keras.callbacks.TerminateOnNaN()]

    with pytest.raises(Refused, match="the trial has phases, between which Keras's callbacks"):
        train(Called(), two(training={"loop": "fit"}))
