"""Objectives: a metric and its direction."""

from __future__ import annotations

import math

import pytest

from sweep.space.objectives import Objective


def test_the_sign_makes_lower_better() -> None:
    assert Objective("loss", "minimize").sign * 2 < Objective("loss", "minimize").sign * 3
    assert Objective("acc", "maximize").sign * 3 < Objective("acc", "maximize").sign * 2


@pytest.mark.parametrize(
    ("metrics", "value"),
    [({"loss": 0.5}, 0.5), ({"loss": 0}, 0), ({}, None), ({"loss": math.nan}, None), ({"loss": -math.inf}, None)],
)
def test_only_a_finite_number_is_a_value(metrics: dict[str, float], value: float | None) -> None:
    assert Objective("loss", "minimize").value(metrics) == value


@pytest.mark.parametrize(("value", "reached"), [(0.4, True), (0.5, True), (0.6, False), (math.nan, False)])
def test_a_target_is_reached_from_its_good_side(value: float, reached: bool) -> None:
    assert (Objective("loss", "minimize").reached(0.5, {"loss": value}) is not None) is reached
    assert (Objective("acc", "maximize").reached(-0.5, {"acc": -value}) is not None) is reached
    assert Objective("loss", "minimize").reached(None, {"loss": value}) is None
