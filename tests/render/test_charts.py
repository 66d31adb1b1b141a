from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.render import charts


def labels(axis: charts.Axis) -> list[str]:
    return [label for _, label in axis.ticks]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 10.0], ["0", "2", "4", "6", "8", "10"]),
        ([0.31, 0.98], ["0.4", "0.6", "0.8"]),
        ([-3.0, 3.0], ["-2", "0", "2"]),
        ([0.001, 0.1], ["0.001", "0.01", "0.1"]),
        ([2e-5, 3e-1], ["0.0001", "0.001", "0.01", "0.1"]),
        ([5.0, 5.0], ["3", "4", "5", "6", "7"]),
        ([0.0, 5e-324], ["-0.4", "-0.2", "0", "0.2", "0.4"]),
        ([0.0, 0.0], ["-0.4", "-0.2", "0", "0.2", "0.4"]),
    ],
)
def test_ticks_are_round(values: list[float], expected: list[str]) -> None:
    assert labels(charts.numbers(values, decades=2)) == expected


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40), st.sampled_from([1, math.inf]))
def test_all_values_lie_on_the_axis(values: list[float], decades: float) -> None:
    axis = charts.numbers(values, decades=decades)
    assert all(-1e-6 <= axis.scale(value) <= 1 + 1e-6 for value in values)
    assert all(-1e-6 <= at <= 1 + 1e-6 for at, _ in axis.ticks)
    assert len(axis.ticks) <= 25


def test_decades_are_evenly_spaced() -> None:
    axis = charts.numbers([1e-4, 1e-1], decades=3)
    assert [round(axis.scale(10.0**power), 9) for power in (-4, -3, -2, -1)] == [0, 0.333333333, 0.666666667, 1]


def test_outliers_are_cut() -> None:
    values = [*(at / 100 for at in range(100)), 1e6]
    assert charts.numbers(values).scale(0.5) < 1e-3
    cut = charts.numbers(values, cut=True)
    assert 0.3 < cut.scale(0.5) < 0.7
    assert cut.scale(1e6) > 1


def test_choices_have_a_place_each_and_trials_lie_beside_it() -> None:
    axis = charts.choices(["low", True, None, "low"])
    assert labels(axis) == ["low", "true", "null"]
    places = [axis.scale(value) for value in ("low", True, None)]
    assert places == [pytest.approx(at) for at in (1 / 6, 3 / 6, 5 / 6)]
    shifted = {charts.beside(axis, trial).scale("low") for trial in range(9)}
    assert len(shifted) == 9
    assert all(abs(place - places[0]) < 1 / 6 for place in shifted)


@pytest.mark.parametrize(
    ("values", "are"), [([1, 2.5], True), ([True, False], False), (["a", 1], False), ([None], False)]
)
def test_what_is_a_number(values: list[object], are: bool) -> None:
    assert charts.are_numbers(values) is are


def test_coordinates_are_inside_the_box() -> None:
    series = [([(1.0, 5.0), (3.0, 7.0)], "completed", "trial 0")]
    made = charts.chart("x", "y", charts.numbers([1.0, 3.0]), charts.numbers([5.0, 7.0]), series)
    assert made.marks[0].points == (
        (charts.LEFT, charts.HEIGHT - charts.BOTTOM),
        (charts.WIDTH - charts.RIGHT, charts.TOP),
    )
    assert not any(math.isnan(tick.at) for tick in (*made.x_ticks, *made.y_ticks))
