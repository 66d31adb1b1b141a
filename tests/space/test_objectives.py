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
