"""The table of the standard hyperparameters."""

from __future__ import annotations

import math

import pytest

from sweep import standard_hyperparameters
from sweep.hyperparameters import Hyperparameters


@pytest.mark.parametrize("name", sorted(standard_hyperparameters.STANDARD))
def test_what_no_standard_hyperparameter_may_be(name: str) -> None:
    bounds = standard_hyperparameters.get_standard_bounds(name)
    assert not any(bounds.accepts(value) for value in (None, math.nan, math.inf, {"a": 1}, []))
    assert bounds.zero == "" or bounds.accepts(0)
    assert not (bounds.accepts(1) and bounds.accepts(True))


def test_off_is_0_and_below_it_is_nothing() -> None:
    for name in (
        "clipnorm",
        "global_clipnorm",
        "clipvalue",
        "weight_decay",
        "dropout",
        "mixup",
        "sam_rho",
    ):
        assert standard_hyperparameters.get_standard_bounds(name).zero == "off"
        assert [
            standard_hyperparameters.get_standard_bounds(name).accepts(value)
            for value in (-1, 0, 0.5)
        ] == [
            False,
            True,
            True,
        ]


def test_names_below_a_name_are_bounded_by_it() -> None:
    assert standard_hyperparameters.is_standard("layer_rates.head/*")
    assert not standard_hyperparameters.is_standard("aug.kind")
    assert not standard_hyperparameters.get_standard_bounds("layer_rates.head").accepts(-1)


def test_a_value_read_as_the_standard_one_is_held_to_its_bounds_and_one_of_the_authors_is_not() -> (
    None
):
    hp = Hyperparameters({"micro_batches": 0, "clipnorm": -1, "lr_schedule": "mine"})
    assert (hp.integer("micro_batches"), hp.number("clipnorm"), hp.text("lr_schedule")) == (
        0,
        -1.0,
        "mine",
    )
    with pytest.raises(ValueError, match="micro_batches is 0, expected a whole number from 1"):
        hp.integer("micro_batches", 1, standard=True)
    with pytest.raises(ValueError, match=r"clipnorm is -1, expected a number from 0 \(0: off\)"):
        hp.number("clipnorm", standard=True)
    with pytest.raises(ValueError, match="lr_schedule is 'mine', expected one of constant"):
        hp.text("lr_schedule", standard=True)


@pytest.mark.keras
def test_the_names_that_are_known_are_those_of_keras() -> None:
    import keras

    from sweep.ui.completion import ACTIVATIONS
    from trainables.recipe.optimizers import OPTIMIZERS

    assert set(standard_hyperparameters.OPTIMIZERS) <= set(OPTIMIZERS)
    assert all(callable(keras.activations.get(name)) for name in ACTIVATIONS)
