"""Texts of others on a terminal, and numbers and times as they are read."""

from __future__ import annotations

import math

import pytest

from sweep.errors import first_line, in_short, last_line
from sweep.text import (
    counted,
    duration,
    figure,
    format_setting,
    format_settings,
    moment,
    printable,
    roughly,
    score,
    shortened,
    trials_named,
)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[36mray::A.go()\x1b[39m", "ray::A.go()"),
        ("\x1b[1;31;48;5;9mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "after link"),
        ("\x1b[2J\x1b[H\x1bMup", "up"),
        ("\x9b31mred", "red"),
        (
            "bell \x07, back \x08, return \r, lone \x1b",
            "bell \\x07, back \\x08, return \\r, lone \\x1b",
        ),
        ("lines\nand\ttabs, ümläute, 漢字", "lines\nand\ttabs, ümläute, 漢字"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_nothing_moves_the_cursor_or_changes_colours(text: str, plain: str) -> None:
    assert printable(text) == plain


def test_long_texts_end_after_a_word() -> None:
    assert shortened("all of it", 9) == "all of it"
    assert shortened("nothing is cut in mid-word", 18) == "nothing is cut..."
    assert shortened("no room for more than this", 14) == "no room for..."
    assert shortened("x" * 50, 20) == f"{'x' * 17}..."
    assert first_line(ValueError("\n\x1b[31mwhat it says\nand more"), 12) == "what it says"
    assert (first_line(ValueError()), first_line("")) == ("ValueError", "")


def test_one_has_no_plural_and_rows_of_numbers_are_short() -> None:
    assert [counted(count, "trial") for count in (0, 1, 1200)] == [
        "0 trials",
        "1 trial",
        "1,200 trials",
    ]
    assert [trials_named(trials) for trials in ([3], [5, 3], [4, 3, 5], [3, 5, 6])] == [
        *("trial 3", "trials 3, 5", "trials 3 to 5", "trials 3, 5, 6")
    ]


def test_an_error_in_short_has_its_type_once() -> None:
    assert in_short(ValueError("\nwhat it says\nand more")) == "ValueError: what it says"
    assert in_short(ValueError("\n")) == "ValueError"
    assert [last_line(error) for error in (ValueError("\nfirst\nthe cause\n"), OSError())] == [
        "the cause",
        "OSError",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "0.001"),
        (1e-05, "1e-05"),
        (0.95113, "0.9511"),
        (12345.678, "12346"),
        (1234567.0, "1234567"),
        (3e12, "3e+12"),
        (-2.0, "-2"),
        (0.0, "0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_figures_have_four_significant_digits(value, text):
    assert figure(value) == text


def test_scores_line_up():
    assert [score(value) for value in (0.95, 0.95113, 1.0, 12.5, 0.0, 1e-9, math.inf)] == [
        *("0.9500", "0.9511", "1.000", "12.50", "0", "1e-09", "inf")
    ]


def test_settings_read_like_the_file():
    params = {"lr": 1e-3, "n": 123456, "aug": "low", "layers": [8, 4], "on": True, "none": None}
    text = "lr=0.001 n=123456 aug=low layers=[8, 4] on=true none=null"
    assert format_settings(params, (*params, "absent")) == text
    assert format_setting("[red]") == "[red]"
    assert format_setting("two\nlines") == r"two\nlines"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.94, "1.9 s"),
        (59.96, "1 min 00 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (3600 * 76, "3 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_moments_are_utc():
    assert moment(1_700_000_000.0) == "2023-11-14 22:13 UTC"


def test_an_estimate_has_no_figures_that_nobody_knows():
    assert [roughly(seconds) for seconds in (0.2, 45.4, 119, 18000)] == [
        *("about 1 s", "about 45 s", "about 1 min 59 s", "about 5 h 00 min")
    ]
