"""Draws: distributions by their inverse CDF."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strategies import drawn_domains, numeric_domains

from sweep.space.domains import (
    Beta,
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogNormal,
    LogUniform,
    Normal,
    Tied,
    Uniform,
    contains,
    key,
    list_choices,
)
from sweep.space.draws import from_unit, space_out_values, to_unit
from sweep.space.expressions import Expression

units = st.floats(0, 1, exclude_max=True)


@given(drawn_domains, units | st.sampled_from([0.0, 1 - 2**-53, 1.0]))
def test_a_draw_is_in_its_domain_and_on_its_quantum(domain: Domain, u: float) -> None:
    assert contains(domain, from_unit(domain, u))


@given(drawn_domains, units)
def test_to_unit_finds_a_number_that_draws_the_same_value(domain: Domain, u: float) -> None:
    value = from_unit(domain, u)
    back = to_unit(domain, value)
    assert 0 <= back < 1
    if list_choices(domain) is not None or getattr(domain, "q", None):
        assert key(from_unit(domain, back)) == key(value)
    else:
        assert from_unit(domain, back) == pytest.approx(value, rel=1e-6, abs=1e-9)


@given(numeric_domains, units, units)
def test_a_larger_number_never_draws_a_smaller_value(domain: Domain, u: float, v: float) -> None:
    low, high = sorted((u, v))
    assert from_unit(domain, low) <= from_unit(domain, high)


@pytest.mark.parametrize(
    ("domain", "distribution"),
    [
        (Uniform(-1, 3), stats.uniform(-1, 4)),
        (LogUniform(1e-4, 1e-1), stats.loguniform(1e-4, 1e-1)),
        (Normal(2, 3), stats.norm(2, 3)),
        (LogNormal(0.5, 0.7), stats.lognorm(s=0.7, scale=2.718281828459045**0.5)),
        (Beta(2, 5), stats.beta(2, 5)),
    ],
)
def test_draws_follow_the_distribution(domain: Domain, distribution: object) -> None:
    for u in (0.01, 0.3, 0.5, 0.9, 0.999):
        assert from_unit(domain, u) == pytest.approx(distribution.ppf(u))


@pytest.mark.parametrize(
    ("domain", "counts"),
    [
        (IntUniform(1, 4), {1: 250, 2: 250, 3: 250, 4: 250}),
        (IntUniform(0, 10, 5), {0: 333, 5: 333, 10: 334}),
        (Uniform(0, 1, 0.5), {0.0: 250, 0.5: 500, 1.0: 250}),  # round(x / q) * q, as in W&B
        (Categorical(("a", "b"), (0.9, 0.1)), {"a": 900, "b": 100}),
        (Categorical(("a", "b", "c"), (0.0, 1.0, 0.0)), {"b": 1000}),
    ],
)
def test_how_often_each_value_is_drawn(domain: Domain, counts: dict[object, int]) -> None:
    found = Counter(from_unit(domain, (i + 0.5) / 1000) for i in range(1000))
    assert found == pytest.approx(counts, abs=1)


def test_small_whole_numbers_are_likelier_on_a_log_scale() -> None:
    found = Counter(from_unit(IntUniform(1, 8, log=True), (i + 0.5) / 1000) for i in range(1000))
    assert [n for n, _ in found.most_common()] == list(range(1, 9))


def test_quanta_of_whole_numbers_are_whole_numbers() -> None:
    assert isinstance(from_unit(Uniform(32, 256, 32), 0.5), int)
    assert isinstance(from_unit(Uniform(32, 256, 32.0), 0.5), float)


def test_a_whole_float_is_the_number_that_it_equals() -> None:
    assert to_unit(IntUniform(0, 9), 3.0) == to_unit(IntUniform(0, 9), 3)


def test_constants_and_ties_have_no_place_on_a_scale() -> None:
    assert from_unit(Constant("x"), 0.3) == "x"
    with pytest.raises(TypeError, match="computed"):
        from_unit(Tied(Expression.parse("1")), 0.3)
    with pytest.raises(TypeError, match="cannot be drawn"):
        to_unit(Constant("x"), "x")


@pytest.mark.parametrize(
    ("domain", "count", "values"),
    [
        (Uniform(0, 1), 11, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        (Uniform(0, 1), 1, (0.5,)),
        (Uniform(0, 1, 0.25), 3, (0.0, 0.5, 1.0)),
        (LogUniform(1e-5, 1e-1), 5, (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)),
        (IntUniform(1, 10), 4, (1, 4, 7, 10)),
        (IntUniform(1, 3), 9, (1, 2, 3)),
        (IntUniform(1, 256, log=True), 5, (1, 4, 16, 64, 256)),
        (Normal(0, 1), 3, (-0.967421566102, 0.0, 0.967421566102)),
        # where the nearest values are the same, their neighbors are taken
        (IntUniform(1, 10, log=True), 10, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
        (IntUniform(1, 16, log=True), 8, (1, 2, 3, 4, 5, 7, 11, 16)),
        (Uniform(1, 4.9, 1), 4, (1, 2, 3, 4)),
        # narrow ranges of large numbers are not rounded to 12 digits
        (Uniform(1e15, 1e15 + 1), 3, (1e15, 1e15 + 0.5, 1e15 + 1)),
        (Normal(1e13, 1), 3, (9999999999999.033, 1e13, 10000000000000.967)),
        (
            IntUniform(123456789012345, 123456789912345),
            3,
            (123456789012345, 123456789462345, 123456789912345),
        ),
    ],
)
def test_count_grid(domain: Domain, count: int, values: tuple[float, ...]) -> None:
    assert repr(space_out_values(domain, count)) == repr(values)


@given(numeric_domains, st.integers(1, 20))
def test_a_count_grid_ascends_within_the_domain(domain: Domain, count: int) -> None:
    values = space_out_values(domain, count)
    assert 1 <= len(values) <= count
    assert len(values) == min(count, len(list_choices(domain) or values))
    assert sorted(set(values)) == list(values)
    assert all(contains(domain, value) for value in values)
