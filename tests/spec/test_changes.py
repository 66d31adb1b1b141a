"""What may change in a sweep that has begun."""

from __future__ import annotations

import pytest

from sweep.spec import parse_spec
from sweep.spec.changes import list_refusals, with_assignments

BEGAN = """
trainable: m:M
run_cap: 30
method: random
metric: {name: loss}
parameters: {a: {min: 0.0, max: 1.0}, rate: {value: 1}, flag: {value: true}}
"""


@pytest.mark.parametrize("change", ["rate.value=2", "rate.value=1.0", "flag.value=1"])
def test_a_constant_stays_the_same_value_of_the_same_type(change: str) -> None:
    before = parse_spec(BEGAN, "s.yaml")
    after = with_assignments(before, [f"parameters.{change}"], "s.yaml")
    (problem,) = list_refusals(before, after)
    assert problem.what == "has another value than in all trials so far"
