"""Trials of Keras that end after some minutes of training: their end, their schedule, their checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import Small, assignment, go_on, train

from sweep.contract import Assignment
from sweep.progress import UNBOUNDED_EPOCHS
from trainables.keras_trainable import session_of
from trainables.loop.trial import TrialClock
from trainables.recipe import schedules

pytestmark = pytest.mark.keras


def timed(epochs: int = UNBOUNDED_EPOCHS, minutes: float = 0.01, **params: Any) -> Assignment:
    return replace(assignment(epochs=epochs, **params), minutes=minutes)


def test_a_trial_ends_with_the_epoch_in_which_its_minutes_are_over() -> None:
    epochs = train(Small(), timed())
    spent = [epoch.time_s for epoch in epochs]
    assert sum(spent[:-1]) < 0.6 <= sum(spent)
    assert len(train(Small(), timed(epochs=2, minutes=10.0))) == 2


def test_schedules_end_with_the_minutes() -> None:
    epochs = train(Small(), timed(minutes=0.02, lr_schedule="linear"))
    rates = [epoch.learning_rate or 0.0 for epoch in epochs]
    assert rates[0] == pytest.approx(0.05)
    assert rates[-1] < 0.025
    assert all(rate <= 0.05 + 1e-9 for rate in rates)


def test_what_was_trained_before_an_interruption_counts(tmp_path: Path) -> None:
    given = timed(minutes=0.05)
    first, second = Small(), Small()
    first.begin(given)
    go_on(first, pause_after=3)
    clock = session_of(first).trial.clock
    session_of(first).save(tmp_path)()
    second.begin(given)
    assert session_of(second).restore(tmp_path) == 3
    assert session_of(second).trial.clock == clock
    rest = go_on(second)
    assert clock.trained_s + sum(epoch.time_s for epoch in rest[:-1]) < 3.0


def test_the_number_of_epochs_is_not_known() -> None:
    class Reading(Small):
        def model(self, hp: Any) -> Any:
            assert hp.epochs
            return super().model(hp)

    with pytest.raises(
        AttributeError,
        match=r"hp.epochs is not known here: the sweep file has minutes and no epochs",
    ):
        train(Reading(), timed())
    assert len(train(Reading(), timed(epochs=1))) == 1


def linear(
    epoch: int, epochs: int, warmup: int = 0, by_time: tuple[float, float] | None = None
) -> list[float]:
    schedule = schedules.polynomial(0.0, 1.0)
    found = schedules.compute_rates(
        schedule, peak=1.0, epoch=epoch, count=4, epochs=epochs, warmup=warmup, by_time=by_time
    )
    return [float(rate) for rate in found]


@pytest.mark.parametrize("warmup", [0, 3])
def test_shares_of_time_decay_like_the_same_shares_of_epochs(warmup: int) -> None:
    for epoch in range(1, 6):
        by_time = (epoch - 1) / 5, epoch / 5
        expected = linear(epoch, 5, warmup)
        np.testing.assert_allclose(
            linear(epoch, UNBOUNDED_EPOCHS, warmup, by_time), expected, atol=1e-6
        )


def test_with_both_the_decay_goes_by_what_is_further() -> None:
    assert linear(2, 5, by_time=(0.0, 0.1)) == linear(2, 5)
    np.testing.assert_allclose(linear(2, 5, by_time=(0.8, 1.2)), [0.2, 0.1, 0.0, 0.0], atol=1e-6)


def test_a_phase_has_the_time_that_is_left() -> None:
    clock = TrialClock(trained_s=30.0, epoch_s=10.0, phase_s=20.0)
    assert clock.shares(60.0) == (0.25, 0.5)
    assert TrialClock(trained_s=70.0, phase_s=70.0).shares(60.0) == (1.0, 1.0)
