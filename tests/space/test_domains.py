"""Domains: what a parameter can be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from strategies import drawn_domains, numeric_domains

from sweep.space.domains import (
    MAX_CHOICES,
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
    configuration_key,
    contains,
    get_domain_bounds,
    is_log,
    key,
    list_choices,
    snap,
)
from sweep.space.expressions import Expression


@given(drawn_domains)
def test_every_choice_is_contained_and_none_repeats(domain: Domain) -> None:
    values = list_choices(domain)
    if values is not None:
        assert all(contains(domain, value) for value in values)
        assert len({key(value) for value in values}) == len(values) > 0


@given(numeric_domains)
def test_a_snapped_number_is_in_the_domain_and_stays_where_it_is(domain: Domain) -> None:
    for x in (-1e9, 0.0, 1.2345, 1e9):
        value = snap(domain, x)
        assert contains(domain, value)
        assert snap(domain, value) == value


@pytest.mark.parametrize(
    ("domain", "value", "nearest"),
    [
        (IntUniform(5, 2**62), 2**60 + 3, 2**60 + 3),
        (IntUniform(5, 2**62, log=True), 2**60 + 3, 2**60 + 3),
        (IntUniform(0, 2**62, 3), 3 * (2**58 + 1), 3 * (2**58 + 1)),
        (IntUniform(0, 2**62, 3), 3 * (2**58 + 1) + 1, 3 * (2**58 + 1)),
    ],
)
def test_integers_that_are_no_floats_keep_all_their_digits(
    domain: IntUniform, value: int, nearest: int
) -> None:
    assert snap(domain, value) == nearest
    assert contains(domain, value) is (value == nearest)


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (Constant("x"), ("x",)),
        (Categorical(("b", "a", "b")), ("b", "a")),
        (Categorical((1, 1.0, True, "1")), (1, 1.0, True, "1")),
        (Categorical(("a", "b", "c"), (0.5, 0.0, 0.5)), ("a", "c")),
        (IntUniform(-1, 2), (-1, 0, 1, 2)),
        (IntUniform(3, 12, 4), (4, 8, 12)),
        (Uniform(0.3, 0.7, 0.1), (0.3, 0.4, 0.5, 0.6, 0.7)),
        (Uniform(32, 128, 32), (32, 64, 96, 128)),
        (Beta(2, 2, 0.5), (0.0, 0.5, 1.0)),
        (Uniform(0, 1), None),
        (LogUniform(1e-5, 1), None),
        (Normal(0, 1, 1), None),
        (LogNormal(), None),
        (IntUniform(1, MAX_CHOICES + 1), None),
        (Tied(Expression.parse("1")), None),
    ],
)
def test_choices(domain: Domain, values: tuple[object, ...] | None) -> None:
    found = list_choices(domain)
    assert found == values
    assert key(list(found or ())) == key(list(values or ())), "types differ"


def test_as_many_choices_as_allowed_are_listed() -> None:
    assert len(list_choices(IntUniform(1, MAX_CHOICES)) or ()) == MAX_CHOICES


@pytest.mark.parametrize(
    ("domain", "x", "value"),
    [
        (Uniform(0, 1, 0.1), 0.1 + 0.2, 0.3),
        (Uniform(0.25, 1, 0.1), 0.0, 0.3),
        (Uniform(0, 0.95, 0.1), 2.0, 0.9),
        (LogUniform(1e-5, 1e-1, 1e-5), 3.14159e-3, 0.00314),
        (Normal(0, 1, 0.05), -0.7000001, -0.7),
        (IntUniform(1, 10), 3.6, 4),
        (Uniform(16, 512, 16), 100.0, 96),
    ],
)
def test_snap_is_free_of_float_dust(domain: Domain, x: float, value: float) -> None:
    assert repr(snap(domain, x)) == repr(value)


@pytest.mark.parametrize(
    ("domain", "value"),
    [
        (IntUniform(1, 5), 2.0),
        (IntUniform(0, 5), True),
        (IntUniform(1, 5), 6),
        (IntUniform(0, 10, 5), 4),
        (Uniform(0, 1), "0.5"),
        (Uniform(0, 1), math.nan),
        (Normal(), math.inf),
        (Uniform(0, 1, 0.1), 0.15),
        (LogNormal(), -1.0),
        (Beta(1, 1), 1.5),
        (Categorical((1, 2)), 1.0),
        (Categorical(("a", "b"), (0.0, 1.0)), "a"),
        (Constant(1), 2),
    ],
)
def test_what_a_domain_does_not_contain(domain: Domain, value: object) -> None:
    assert not contains(domain, value)


def test_what_domains_do_contain() -> None:
    assert contains(Uniform(0, 1), 0)
    assert contains(Uniform(0, 2, 1), 1.0)
    assert contains(Constant([1, 2]), [1, 2])
    assert contains(Tied(Expression.parse("x")), "anything")
    assert get_domain_bounds(Normal()) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: Categorical(()),
        lambda: Categorical(("a",), (0.5, 0.5)),
        lambda: Categorical(("a", "b"), (0.5, 0.4)),
        lambda: Categorical(("a", "b"), (1.5, -0.5)),
        lambda: IntUniform(2, 1),
        lambda: IntUniform(0, 5, log=True),
        lambda: IntUniform(1, 5, 10),
        lambda: Uniform(0, math.inf),
        lambda: Uniform(0, 1, 0),
        lambda: Uniform(0.11, 0.19, 0.1),
        lambda: LogUniform(0, 1),
        lambda: Normal(0, 0),
        lambda: LogNormal(1000, 1),
        lambda: Beta(0, 1),
    ],
)
def test_nonsense_is_refused(nonsense: object) -> None:
    with pytest.raises(ValueError, match="not so"):
        nonsense()


def test_keys_are_canonical() -> None:
    assert key({"a": 1, "b": [1.0, None]}) == key({"b": [1.0, None], "a": 1})
    assert len({key(value) for value in (1, 1.0, True, "1", None, [1], {"1": 1})}) == 7


def test_configurations_are_the_same_out_of_a_log_and_out_of_a_table() -> None:
    assert configuration_key({"a": 1, "b": None, "c": True}) == configuration_key(
        {"c": True, "a": 1.0}
    )
    assert configuration_key({"a": True}) != configuration_key({"a": 1})
    assert configuration_key({"a": [1, {"x": 2, "y": 3}]}) == configuration_key(
        {"a": [1, {"y": 3, "x": 2}]}
    )
    assert configuration_key({"a": [1]}) != configuration_key({"a": "[1]"})


def test_whole_numbers_of_any_size_are_told_apart() -> None:
    assert (
        len(
            {
                configuration_key({"a": number})
                for number in (2**53, 2**53 + 1, 10**400, 10**400 + 1)
            }
        )
        == 4
    )
    assert configuration_key({"a": 2**53}) == configuration_key({"a": 2.0**53})
    assert configuration_key({"a": math.inf}) != configuration_key({"a": math.nan})


RATES = (0.0001, 0.001, 0.003, 0.03, 0.1)
EVEN = (1.0, 30.0, 50.0, 70.0, 99.0)


@pytest.mark.parametrize(
    ("domain", "numbers", "log"),
    [
        (LogUniform(0.1, 0.3), (0.1, 0.2), True),  # of a narrow one as well
        (LogNormal(), EVEN, True),
        (IntUniform(1, 100, log=True), EVEN, True),
        (LogUniform(0.1, 1, 0.5), (0.0, 1.0), False),  # what a trial had, not this domain, was 0
        (Uniform(0, 1), RATES, False),
        (IntUniform(1, 100), EVEN, False),
        (Normal(), RATES, False),
        (Categorical(RATES), RATES, True),
        (Tied(Expression.parse("a / 2")), RATES, True),
        (None, RATES, True),
        (None, EVEN, False),  # not most at the low end
        (None, (1.0, 2.0, 9.0), False),
        (None, (0.0, *RATES), False),
        (Constant(3), (3.0,), False),
    ],
)
def test_which_numbers_belong_on_a_logarithmic_scale(
    domain: Domain | None, numbers: tuple[float, ...], log: bool
) -> None:
    assert is_log(domain, numbers) is log
