from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import drawn_domains

from sweep.space.domains import Categorical, Domain, LogUniform, Uniform, contains
from sweep.space.draws import CONFIDENCES, WIDTHS, Belief, Confidence, from_unit

NUMBERS = Uniform(0, 1)


@given(st.data(), st.floats(0, 1, exclude_max=True), st.sampled_from(CONFIDENCES))
def test_what_is_drawn_lies_in_the_domain_and_has_a_density(
    data: st.DataObject, u: float, confidence: Confidence
) -> None:
    domain: Domain = data.draw(drawn_domains)
    believed = from_unit(domain, data.draw(st.floats(0, 1, exclude_max=True)))
    belief = Belief(believed, confidence)
    value = belief.draw(domain, u)
    assert contains(domain, value)
    assert math.isfinite(belief.log_density(domain, value))
    assert belief.log_density(domain, believed) >= belief.log_density(domain, value) - 1e-9


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_draws_are_as_far_off_as_the_confidence_says(confidence: Confidence) -> None:
    numbers = random.Random(0)
    # type of NUMBERS
    drawn = [float(Belief(0.5, confidence).draw(NUMBERS, numbers.random())) for _ in range(4000)]
    width = WIDTHS[confidence]
    inside = math.erf(1 / math.sqrt(2)) / math.erf(0.5 / width / math.sqrt(2))
    assert fmean(abs(one - 0.5) < width for one in drawn) == pytest.approx(min(inside, 1), abs=0.03)


def test_a_density_is_one_of_the_own_distribution() -> None:
    rates = LogUniform(1e-5, 1e-1)
    belief = Belief(1e-3, "high")
    grid = [(place + 0.5) / 2000 for place in range(2000)]
    assert fmean(
        math.exp(belief.log_density(rates, from_unit(rates, u))) for u in grid
    ) == pytest.approx(1, abs=1e-3)


def test_a_choice_is_so_many_times_as_likely_as_each_other_one() -> None:
    three = Categorical(("a", "b", "c"), (0.25, 0.25, 0.5))
    density = {value: Belief("a", "medium").log_density(three, value) for value in ("a", "b", "c")}
    assert math.exp(density["a"] - density["b"]) == pytest.approx(4)
    assert density["b"] == pytest.approx(density["c"])
    drawn = [Belief("a", "medium").draw(three, (place + 0.5) / 700) for place in range(700)]
    assert [drawn.count(value) for value in ("a", "b", "c")] == [400, 100, 200]
