"""A learning-rate range test finds where the loss falls fastest, and where it diverges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.contract import Devices
from sweep.errors import TrainableError
from sweep.runner import lr_range_test
from sweep.spec import parse_spec

FILE = """
trainable: tried:Tried
method: grid
metric: {name: loss, goal: minimize}
parameters: {learning_rate: {values: [1, 2]}, units: {values: [4, 8, 16]}}
epochs: 2
"""
TRAINABLE = """
import math

class Tried:
    begun = []
    def begin(self, assignment):
        self.begun.append(dict(assignment.params))
    def try_rates(self, rates):
        for rate in rates:
            yield math.nan if rate > 0.5 else 1 / (1 + 100 * rate)
    train = save = restore = facts = begin
"""


def tried(loss: Any) -> Iterator[tuple[float, float]]:
    for rate in lr_range_test.list_rising_rates():
        yield rate, loss(rate)


def test_rates_rise_by_the_same_factor() -> None:
    found = lr_range_test.list_rising_rates(1e-4, 1.0, 5)
    assert found == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0])


def test_the_steepest_place_and_the_end() -> None:
    def loss(rate: float) -> float:
        return 2.3 / (1 + (rate / 1e-2) ** 2) + (rate / 0.3) ** 2

    found = lr_range_test.compute_curve({}, tried(loss))
    assert found.steepest == pytest.approx(1e-2, rel=1.0)  # smoothing is late by some updates
    assert found.diverged is not None
    assert 0.1 < found.diverged < 2.0
    assert found.tenth == found.diverged / 10
    assert len(found.rates) == len(found.losses) == len(found.smoothed) < lr_range_test.UPDATES


@pytest.mark.parametrize("loss", [lambda rate: 1.0, lambda rate: 0.0, lambda rate: -5.0])
def test_a_flat_loss_suggests_nothing(loss: Any) -> None:
    found = lr_range_test.compute_curve({}, tried(loss))
    assert (found.steepest, found.diverged, len(found.rates)) == (None, None, lr_range_test.UPDATES)


def test_a_loss_below_zero_does_not_diverge_by_falling() -> None:
    found = lr_range_test.compute_curve({}, tried(lambda rate: -10 * rate))
    assert found.diverged is None
    assert found.steepest is not None


def test_not_finite_from_the_first_is_divergence() -> None:
    found = lr_range_test.compute_curve({}, tried(lambda rate: math.nan))
    assert (found.rates, found.steepest, found.diverged) == ((), None, lr_range_test.LOWEST)


def test_the_first_configurations_that_differ_beside_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tried.py").write_text(TRAINABLE)
    sample: Sequence[Any] = [
        {"learning_rate": lr, "units": units} for units in (4, 8, 16) for lr in (1, 2)
    ]
    found = lr_range_test.find_learning_rates(parse_spec(FILE, "f"), Devices(), [tmp_path], sample)
    assert [curve.params for curve in found] == [{"units": 4}, {"units": 8}]
    assert found[0].diverged == pytest.approx(0.5, rel=0.1)


def test_a_trainable_that_cannot_and_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "cannot.py").write_text(TRAINABLE.replace("def try_rates", "def others"))
    with pytest.raises(TrainableError, match=r"cannot:Tried has no try_rates\(\)"):
        lr_range_test.find_learning_rates(
            parse_spec(FILE.replace("tried:", "cannot:"), "f"), Devices(), [tmp_path], [{}]
        )
    (tmp_path / "fails.py").write_text(TRAINABLE.replace("in rates:", "in [int('no rates here')]:"))
    with pytest.raises(TrainableError, match="could not be tried: ValueError: invalid literal"):
        lr_range_test.find_learning_rates(
            parse_spec(FILE.replace("tried:", "fails:"), "f"), Devices(), [tmp_path], [{}]
        )
    (tmp_path / "unmade.py").write_text(
        f"{TRAINABLE}    def __init__(self): raise OSError('no such folder')\n"
    )
    with pytest.raises(TrainableError, match="could not be tried: OSError: no such folder"):
        lr_range_test.find_learning_rates(
            parse_spec(FILE.replace("tried:", "unmade:"), "f"), Devices(), [tmp_path], [{}]
        )


def test_parameters_may_be_lists_and_mappings(tmp_path: Path) -> None:
    (tmp_path / "tried.py").write_text(TRAINABLE)
    spec = parse_spec(
        FILE.replace("units: {values: [4, 8, 16]}", "units: {values: [[4, 8], [16], {a: 1}]}"),
        "file.yaml",
    )
    sample = [
        {"learning_rate": rate, "units": units}
        for units in ([4, 8], [16], {"a": 1})
        for rate in (1, 2)
    ]
    found = lr_range_test.find_learning_rates(spec, Devices(cpus=1), [tmp_path], sample)
    assert [curve.params for curve in found] == [{"units": [4, 8]}, {"units": [16]}]
