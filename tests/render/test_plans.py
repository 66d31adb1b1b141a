"""The curve of a range test as text fits a terminal, whatever it holds."""

from __future__ import annotations

import json

import pytest

from sweep.render import plans as drawn
from sweep.runner import lr_range_test
from sweep.runner.lr_range_test import Curve


def test_the_curve_has_both_marks_where_they_belong() -> None:
    params = {"units": 8, "decay": 2e4, "nesterov": True}
    rates = lr_range_test.rising()
    found = lr_range_test.curve(params, ((r, 2.3 / (1 + (r / 1e-2) ** 2) + (r / 0.3) ** 2) for r in rates))
    lines = drawn.rates_lines(found)
    assert lines[0] == "learning_rate of units=8 decay=20000 nesterov=true"
    marks = next(line for line in lines if "^" in line and "x" in line)
    assert marks.index("^") < marks.index("x")
    assert max(map(len, lines)) <= 80
    assert sum(line.count("•") for line in lines) >= 40
    assert "a tenth:" in lines[-1]


@pytest.mark.parametrize("losses", [[], [1.0], [1.0, 1.0], [0.0] * 200, [-3.0] * 200, [1e300, 2e300] * 20])
def test_odd_curves_are_drawn(losses: list[float]) -> None:
    found = lr_range_test.curve({}, zip(lr_range_test.rising(), losses, strict=False))
    assert len(drawn.rates_lines(found)) >= 2
    json.dumps(drawn.rates_as_dict(found), allow_nan=False)


def test_what_diverges_at_once_says_so() -> None:
    assert "diverged at 1e-06 already" in drawn.rates_lines(Curve({}, (), (), (), None, 1e-6))[1]
