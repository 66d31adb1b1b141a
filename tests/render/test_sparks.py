from __future__ import annotations

import math

import pytest

from sweep.render.sparks import bar, sparkline


def test_a_curve_goes_from_its_least_to_its_greatest() -> None:
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == "▁▂▃▄▅▆▇█"
    assert sparkline([7.0, 0.0], ascii_only=True) == "'_"
    assert sparkline([]) == ""


def test_what_is_no_number_is_marked_and_bends_nothing() -> None:
    assert sparkline([0.0, math.nan, math.inf, 1.0]) == "▁xx█"
    assert sparkline([math.nan], ascii_only=True) == "x"


def test_a_flat_curve_and_the_largest_numbers() -> None:
    assert sparkline([3.0, 3.0]) == "▅▅"
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.013, 0.5, 0.99, 1.0, 7.0, math.nan])
@pytest.mark.parametrize("width", [0, 1, 2, 10, 33])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_bar_is_as_wide_as_told(share: float, width: int, ascii_only: bool) -> None:
    filled, empty = bar(share, width, ascii_only=ascii_only)
    assert len(filled) + len(empty) == (max(width, 2) if ascii_only else width)
    assert (filled + empty).isascii() is (ascii_only or not width)


def test_a_bar_grows_by_eighths() -> None:
    assert bar(0.5, 4) == ("██", "░░")
    assert bar(0.0625, 2) == ("▏", "░")
    assert bar(1.0, 6, ascii_only=True) == ("[####", "]")
