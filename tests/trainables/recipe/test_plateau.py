from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.hyperparameters import Hyperparameters
from sweep.patience import Plateau
from trainables.recipe.schedules import Reduction, make_reduction


def test_counts_epochs_since_the_best() -> None:
    plateau = Plateau(maximize=True)
    waited = []
    for value in (0.5, 0.6, 0.6, math.nan, 0.7, 0.1):
        plateau.count_epoch(value)
        waited.append(plateau.waited)
    assert waited == [0, 0, 1, 2, 0, 1]
    assert plateau.best == 0.7


def lowered() -> Reduction:
    found = make_reduction(
        Hyperparameters(
            {"lr_schedule": "plateau", "lr_patience": 2, "lr_drop_factor": 0.5, "lr_final": 0.2}
        ),
        maximize=False,
    )
    assert found is not None
    return found


def test_lowers_the_rate_after_its_patience_and_not_below_the_floor() -> None:
    rate = lowered()
    scales = []
    for value in (1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        rate.update(value)
        scales.append(rate.scale)
    assert scales == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2]


@given(st.lists(st.floats(-10, 10), max_size=20), st.integers(0, 20))
def test_state_goes_on_where_it_was(values: list[float], cut: int) -> None:
    whole, first, second = lowered(), lowered(), lowered()
    for value in values:
        whole.update(value)
    for value in values[:cut]:
        first.update(value)
    second.restore(first.state())
    for value in values[cut:]:
        second.update(value)
    assert second == whole


@pytest.mark.parametrize("name", ["constant", "cosine"])
def test_other_schedules_have_none(name: str) -> None:
    assert make_reduction(Hyperparameters({"lr_schedule": name}), maximize=False) is None
