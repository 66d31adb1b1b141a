"""The curve of a range test as text fits a terminal, whatever it holds."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from sweep.render import plans as drawn
from sweep.runner import lr_range_test
from sweep.runner.lr_range_test import RateCurve
from sweep.runner.throughput import Measured, SettingsCombination, Throughput


def test_the_curve_has_both_marks_where_they_belong() -> None:
    params = {"units": 8, "decay": 2e4, "nesterov": True}
    rates = lr_range_test.list_rising_rates()
    found = lr_range_test.compute_curve(
        params, ((r, 2.3 / (1 + (r / 1e-2) ** 2) + (r / 0.3) ** 2) for r in rates)
    )
    lines = drawn.rates_lines(found)
    assert lines[0] == "learning_rate of units=8 decay=20000 nesterov=true"
    marks = next(line for line in lines if "^" in line and "x" in line)
    assert marks.index("^") < marks.index("x")
    assert max(map(len, lines)) <= 80
    assert sum(line.count("•") for line in lines) >= 40
    assert "a tenth:" in lines[-1]


@pytest.mark.parametrize(
    "losses", [[], [1.0], [1.0, 1.0], [0.0] * 200, [-3.0] * 200, [1e300, 2e300] * 20]
)
def test_odd_curves_are_drawn(losses: list[float]) -> None:
    found = lr_range_test.compute_curve(
        {}, zip(lr_range_test.list_rising_rates(), losses, strict=False)
    )
    assert len(drawn.rates_lines(found)) >= 2
    json.dumps(drawn.rates_as_dict(found), allow_nan=False)


def test_what_diverges_at_once_says_so() -> None:
    assert (
        "diverged at 1e-06 already" in drawn.rates_lines(RateCurve({}, (), (), (), None, 1e-6))[1]
    )


FILE_S_OWN = SettingsCombination(32, "float32", 1, 1)


@pytest.mark.parametrize(
    ("way", "params", "said"),
    [
        (FILE_S_OWN, {}, ["fastest  what the file says"]),
        (
            SettingsCombination(64, "mixed_float16", 1, 1),
            {},
            [
                "fastest  2.5 times the examples a second with batch_size: {value: 64}, training: {precision: "
                "mixed_float16}",
                "         Another batch size trains another model: search the learning rate with it.",
            ],
        ),
        (
            SettingsCombination(64, "float32", 2, 1),
            {"lr_scaling": "linear"},
            [
                "fastest  2.5 times the examples a second with batch_size: {value: 64}, micro_batches: {value: 2}",
                "         Another batch size trains another model: search the learning rate with it and lr_scaling "
                "says how it follows.",
            ],
        ),
        (
            SettingsCombination(32, "float32", 1, 2),
            {},
            [
                "fastest  2.5 times the examples a second with resources: {gpus: 2}",
                "         Several replicas end each trial sooner, but a sweep trains more if each GPU has its own "
                "trial.",
            ],
        ),
    ],
)
def test_the_fastest_way_is_said_as_it_is_written(
    way: SettingsCombination, params: dict[str, str], said: list[str]
) -> None:
    own = Measured(FILE_S_OWN, 1000.0, 5e8)
    fastest = own if way == FILE_S_OWN else Measured(way, 2500.0)
    failed = Measured(SettingsCombination(4096, "float32", 1, 1), failed="out of memory")
    console = Console(file=StringIO(), width=120)
    drawn.show_throughput(Throughput((own, fastest, failed), fastest), params, console)
    lines = console.file.getvalue().splitlines()
    assert lines[-len(said) :] == said
    assert "out of memory" in lines[-len(said) - 1]
    assert "500 MB" in " ".join(lines)
