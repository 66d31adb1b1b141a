"""Numbers, times and JSON as they are read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep.events import Status
from sweep.render import document, duration, figure, moment, score, setting, settings


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
    assert settings(params, (*params, "absent")) == text
    assert setting("[red]") == "[red]"


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


@dataclass(frozen=True)
class Inner:
    """With all that JSON has no word for."""

    state: Status
    values: tuple[float, ...]
    path: Path


@dataclass(frozen=True)
class Outer:
    """A tuple of data classes in a data class."""

    inner: tuple[Inner, ...]
    params: dict[str, object]


def test_data_classes_tuples_enumerations_and_numbers_that_are_none() -> None:
    inner = Inner(Status.COMPLETED, (0.5, math.nan), Path("results/a"))
    told = json.loads(document(Outer((inner,), {"x": [1, None, True]})))
    assert told == {
        "inner": [{"state": "completed", "values": [0.5, "nan"], "path": "results/a"}],
        "params": {"x": [1, None, True]},
    }


def test_what_has_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="is of type object"):
        document({"x": object()})
