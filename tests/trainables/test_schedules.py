from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.hyperparameters import Hyperparameters
from trainables import schedules


def _rates(name: str, first: int = 0, count: int = 20, warmup: int = 0) -> list[float]:
    schedule = schedules.build(Hyperparameters({"lr_schedule": name}))
    return [float(r) for r in schedules.rates(schedule, peak=2.0, first=first, count=count, total=20, warmup=warmup)]


@pytest.mark.parametrize("name", schedules.SCHEDULES)
def test_never_rises_after_the_peak(name: str) -> None:
    rates = _rates(name)
    assert rates[0] == 2.0
    assert all(a >= b for a, b in itertools.pairwise(rates))
    assert (rates[-1] < 1.0) == (name != "constant")


@pytest.mark.parametrize("name", schedules.SCHEDULES)
@given(cut=st.integers(0, 20), warmup=st.integers(0, 8))
def test_epochs_join_without_a_seam(name: str, cut: int, warmup: int) -> None:
    parts = _rates(name, 0, cut, warmup) + _rates(name, cut, 20 - cut, warmup)
    assert parts == _rates(name, warmup=warmup)


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    np.testing.assert_allclose(_rates("cosine", warmup=4)[:5], [0.5, 1.0, 1.5, 2.0, 2.0])


def test_values() -> None:
    np.testing.assert_allclose(_rates("cosine")[10], 1.0)
    np.testing.assert_allclose(_rates("polynomial")[5], 1.5)
    np.testing.assert_allclose(_rates("step")[::7], [2.0, 0.2, 0.02], rtol=1e-6)
    np.testing.assert_allclose(_rates("exponential")[10], 0.2, rtol=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lr_schedule": "cosinus"}, "lr_schedule is 'cosinus', expected one of constant"),
        ({"lr_schedule": "cosine", "lr_final": 2.0}, "expected a share"),
        ({"lr_schedule": "exponential", "lr_final": 0.0}, "share above 0"),
    ],
)
def test_wrong_values(params: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedules.build(Hyperparameters(params))  # type: ignore[arg-type]


def test_warmup_in_epochs_or_steps() -> None:
    assert schedules.warmup_updates(Hyperparameters({"warmup_epochs": 1.5}), 10) == 15
    assert schedules.warmup_updates(Hyperparameters({"warmup_steps": 7}), 10) == 7
    with pytest.raises(ValueError, match="both set"):
        schedules.warmup_updates(Hyperparameters({"warmup_steps": 7, "warmup_epochs": 1}), 10)
