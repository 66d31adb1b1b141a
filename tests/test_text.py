"""How numbers are formatted for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.text import figure, format_setting, is_typo, money, score

SIZES = st.floats(min_value=1e-4, max_value=999_999_999, allow_nan=False)


@given(SIZES, st.sampled_from([1, -1]))
def test_from_a_ten_thousandth_to_a_billion_no_exponent_is_needed(size: float, sign: int) -> None:
    for text in (figure(sign * size), score(sign * size), format_setting(sign * size)):
        assert "e" not in text
        assert float(text) == pytest.approx(sign * size, rel=5.1e-4)


@pytest.mark.parametrize(
    ("value", "short", "aligned"),
    [
        (0.5, "0.5", "0.5000"),
        (9999.4, "9999", "9999."),
        (9999.5, "10000", "10000"),
        (9999.7, "10000", "10000"),
        (12345.6, "12346", "12346"),
        (1e-5, "1e-05", "1e-05"),
        (2.5e9, "2.5e+09", "2.5e+09"),
        (float("inf"), "inf", "inf"),
    ],
)
def test_four_digits(value: float, short: str, aligned: str) -> None:
    assert figure(value) == short
    assert score(value) == aligned


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "0.00"),
        (1e-5, "< 0.0001"),
        (0.0001, "0.0001"),
        (0.00424, "0.0042"),
        (0.05, "0.05"),
        (0.0994, "0.099"),
        (0.0995, "0.10"),
        (0.5, "0.50"),
        (0.996, "1.00"),
        (2.5, "2.50"),
        (1234.5, "1,234.50"),
    ],
)
def test_money_has_cents(amount: float, text: str) -> None:
    assert money(amount) == text


@pytest.mark.parametrize("name", ["dropuot", "dropot", "dropoutt", "dropoux", "dropout"])
def test_a_typo_is_one_letter_or_two_that_are_swapped(name: str) -> None:
    assert is_typo(name, "dropout")


@pytest.mark.parametrize(
    ("name", "other"), [("batch_time", "batch_size"), ("latency", "latent"), ("val_loss", "loss")]
)
def test_other_words_are_no_typos(name: str, other: str) -> None:
    assert not is_typo(name, other)
