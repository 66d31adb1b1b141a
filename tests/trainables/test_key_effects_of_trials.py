"""What each standard hyperparameter does to a trial of each kind is what the table of keys says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest
from keyed import KINDS, Compiled, OwnStep, effect
from small import assignment, train

from sweep.contract import Incompatible
from sweep.hyperparameters import Hyperparameters
from trainables.recipe.refusals import Refused

sys.path.append(str(Path(__file__).parents[1]))
from key_effects import EXAMPLES, ROWS, YES  # the folder of tests is found now
from key_effects import KINDS as ALL_KINDS

pytestmark = pytest.mark.keras
CELLS = {name: dict(zip(ALL_KINDS, row.cells, strict=True)) for row in ROWS for name in row.names}
BASE = {"batch_size": 16, "learning_rate": 0.05}

SAME_NUMBERS = ("validation_batch_size", "cache_features", "gradient_checkpointing")
"""They change how numbers are computed, and not which."""


def params_of(kind: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a trial without a hyperparameter and with it, no other of which the kind refuses."""
    without, given = EXAMPLES[name]
    allowed = {key: value for key, value in {**BASE, **without}.items() if CELLS[key][kind] == YES}
    both = allowed, {**allowed, **given}
    return tuple({key: value for key, value in one.items() if value is not None} for one in both)  # type: ignore[return-value]  # a pair


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hyperparameter_acts_or_is_refused(kind: str, name: str) -> None:
    without, given = params_of(kind, name)
    cell = CELLS.get(name) or CELLS[f"{name.partition('.')[0]}.*"]
    found = effect(kind, without, given, name)
    if name in SAME_NUMBERS and cell[kind] == YES:
        assert found in ("silent", "rounding")
    else:
        assert found == ("works" if cell[kind] == YES else "refused")


@pytest.mark.parametrize("kind", ["train_step", "model_step"])
def test_label_smoothing_is_refused_where_a_step_has_a_loss_of_its_own(kind: str) -> None:
    make, training = KINDS[kind]
    with pytest.raises(
        Refused, match="the trial has label_smoothing, and training does not use the loss"
    ) as caught:
        train(make(), assignment(epochs=1, training=training, label_smoothing=0.1))
    assert caught.value.about == ("label_smoothing",)


def test_a_model_with_optimizers_of_its_own_has_no_rate_in_its_log_and_takes_none() -> None:
    make, _ = KINDS["own_optimizers"]
    given = assignment(epochs=1)
    (epoch,) = train(make(), replace(given, params={"batch_size": 16}))
    assert epoch.learning_rate is None
    with pytest.raises(
        Refused,
        match="optimizers of its own, and the trial has learning_rate, lr_schedule, clipnorm",
    ):
        train(
            make(),
            replace(given, params={"learning_rate": 0.1, "lr_schedule": "cosine", "clipnorm": 1.0}),
        )


def test_what_model_reads_for_its_own_optimizer_is_its_own() -> None:
    class Reading(KINDS["own_optimizers"][0]):  # type: ignore[name-defined,misc]  # a class that is chosen by name
        def model(self, hp: Hyperparameters) -> Any:
            model = super().model(hp)
            model.mine = keras.optimizers.SGD(
                hp.number("learning_rate"), momentum=hp.number("momentum", 0.0)
            )
            return model

    rates = [
        train(Reading(), assignment(epochs=1, learning_rate=rate))[0].metrics["loss"]
        for rate in (0.0, 0.5)
    ]
    assert rates[0] != rates[1]
    train(Reading(), assignment(epochs=1, learning_rate=0.1, momentum=0.5))
    with pytest.raises(
        Incompatible, match="and the trial has weight_decay, which would have no effect"
    ):
        train(Reading(), assignment(epochs=1, learning_rate=0.1, weight_decay=0.5))


def test_live_numbers_that_model_reads_for_its_own_optimizer_are_its_own() -> None:
    class Reading(KINDS["own_optimizers"][0]):  # type: ignore[name-defined,misc]  # as above
        def model(self, hp: Hyperparameters) -> Any:
            model = super().model(hp)
            rate = hp.live("layer_rates.head")
            model.mine = keras.optimizers.SGD(lambda: rate, weight_decay=hp.live("weight_decay"))
            return model

    trainable = Reading()
    given = {"batch_size": 16, "layer_rates.head": 0.05, "weight_decay": 0.0}
    losses = set()
    for more in ({}, {"layer_rates.head": 0.5}, {"weight_decay": 0.5}):
        trial = replace(assignment(epochs=1), params={**given, **more})
        losses.add(train(trainable, trial)[0].metrics["loss"])
    assert len(losses) == 3


class OwnCompile(OwnStep):
    """A model that trains itself with an optimizer of its own compile()."""

    def compile(self, rate: float) -> None:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        super().compile(keras.optimizers.SGD(rate), loss)


class ReadsItsRates(KINDS["own_optimizers"][0]):  # type: ignore[name-defined,misc]  # as above
    """A trial whose model() reads a factor of the rate, by the name ``factor``, for an optimizer that is idle."""

    factor = "factor"

    def model(self, hp: Hyperparameters) -> Any:
        model = super().model(hp)
        model.mine = keras.optimizers.SGD(0.1 * hp.number(self.factor))
        return model


class CompilesWithItsRates(ReadsItsRates):
    def model(self, hp: Hyperparameters) -> Any:
        model = self.made(OwnCompile, hp)
        model.compile(0.1 * hp.number(self.factor))
        return model


class CompiledWithItsRates(ReadsItsRates):
    def model(self, hp: Hyperparameters) -> Any:
        model = Compiled.model(self, hp)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1 * hp.number(self.factor)), loss)
        return model


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ReadsItsRates, "layer_rates.head"),
        (CompilesWithItsRates, "layer_rates.head"),
        (CompilesWithItsRates, "layer_decay"),
        (CompiledWithItsRates, "layer_rates.head"),
    ],
)
def test_layer_rates_that_model_reads_are_its_own(kind: type[ReadsItsRates], name: str) -> None:
    given = replace(assignment(epochs=1), params={"batch_size": 16})
    standard = type("Standard", (kind,), {"factor": name})()
    losses = []
    for factor in (0.5, 0.25):  # the second trial may reuse what the first one has compiled
        theirs = train(kind(), replace(given, params={**given.params, "factor": factor}))
        ours = train(standard, replace(given, params={**given.params, name: factor}))
        assert ours[0].metrics == theirs[0].metrics
        losses.append(ours[0].metrics["val_loss"])
    assert losses[0] != losses[1]
    unread = {**given.params, name: 0.5, "layer_rates.hidden": 0.5}
    with pytest.raises(Incompatible, match=r"layer_rates\.hidden, which would|layer rates"):
        train(standard, replace(given, params=unread))
