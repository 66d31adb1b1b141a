"""W&B's hyperband, by example."""

from __future__ import annotations

import pytest

from sweep.events import EpochReported
from sweep.schedulers.hyperband import HyperbandScheduler
from sweep.space.objectives import Objective
from sweep.space.termination import Hyperband


def reasons(scheduler: HyperbandScheduler, trial: int, values: list[float]) -> dict[int, str]:
    found = {}
    for epoch, value in enumerate(values, start=1):
        event = EpochReported(trial=trial, epoch=epoch, metrics={"m": value}, time=0.0, time_s=1.0)
        if reason := scheduler.observe(event):
            found[epoch] = reason
    return found


def build(goal: str = "minimize", *, strict: bool = False, eta: float = 2) -> HyperbandScheduler:
    return HyperbandScheduler(Hyperband(min_iter=2, eta=eta, strict=strict), Objective("m", goal), 10)


def test_the_best_half_of_those_that_came_so_far_goes_on() -> None:
    scheduler = build()
    stopped = [bool(reasons(scheduler, trial, [9.0, loss])) for trial, loss in enumerate([5, 6, 4, 5, 4.5])]
    # cutoffs, of rank n // 2: 5 of [5]; 6 of [5, 6]; 5 of [4, 5, 6]; 5 of [4, 5, 5, 6]; 5 of [4, 4.5, 5, 5, 6]
    assert stopped == [False, False, False, False, False]
    assert reasons(scheduler, 5, [9.0, 5.5]) == {2: "hyperband: m 5.5 at epoch 2 above the cutoff 5"}


@pytest.mark.parametrize(("strict", "stopped"), [(False, False), (True, True)])
def test_only_a_strict_rule_forgets_what_a_trial_reached_before(strict: bool, stopped: bool) -> None:
    scheduler = build(strict=strict)
    for trial in range(4):
        reasons(scheduler, trial, [9.0, 5.0])
    assert bool(reasons(scheduler, 4, [3.0, 8.0])) is stopped


def test_maximizing_names_values_as_they_were_reported() -> None:
    scheduler = build("maximize", eta=3)
    for trial in range(3):
        reasons(scheduler, trial, [0.1, 0.9])
    assert reasons(scheduler, 3, [0.1, 0.4]) == {2: "hyperband: m 0.4 at epoch 2 below the cutoff 0.9"}


def test_each_bracket_has_values_of_its_own() -> None:
    scheduler = build()
    for trial in range(3):
        assert reasons(scheduler, trial, [5.0] * 9) == {}
    assert list(reasons(scheduler, 3, [4.0, 4.0, 4.0, 9.0, 9.0])) == []
    assert list(reasons(scheduler, 4, [9.0, 9.0, 1.0, 1.0])) == [2]
