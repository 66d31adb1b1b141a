from __future__ import annotations

from itertools import pairwise

import pytest

from sweep.analysis.curve import MOST, Curve


@pytest.mark.parametrize("count", [0, 1, 2, 7, MOST - 1, MOST, MOST + 1, 1000, 4097])
@pytest.mark.parametrize("most", [0, 1, 5, 24, 1000])
def test_points_go_from_the_beginning_to_the_latest(count: int, most: int) -> None:
    curve = Curve()
    for value in range(count):
        curve.add(float(value))
    points = curve.points(most)
    assert points == sorted(points)
    assert len(points) == min(most, len(points), count)
    if points:
        assert points[-1] == count - 1
        widest = max((after - before for before, after in pairwise(points)), default=1.0)
        assert widest <= max(2 * count / len(points), 1) + 1


def test_a_long_curve_takes_little_room() -> None:
    curve = Curve()
    for value in range(100_000):
        curve.add(float(value))
    assert len(curve.points(10**9)) <= MOST + 1
