"""What our side of Ray's schedulers relies on: their rungs are ours, and they leave NumPy alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sweep.events import EpochReported
from sweep.schedulers.ray_schedulers import RayScheduler
from sweep.space.objectives import Objective
from sweep.space.termination import Asha, brackets

LOSS = Objective("loss", "minimize")


@pytest.mark.parametrize("eta", [1.5, 2, 3, 4, 10])
@pytest.mark.parametrize("min_iter", [1, 2, 5])
@pytest.mark.parametrize("max_iter", [None, 9, 243])
def test_rungs_are_those_that_the_plan_prints(min_iter: int, max_iter: int | None, eta: float) -> None:
    for epochs in (6, 10, 82, 244, 245):
        rule = Asha(min_iter, max_iter, eta, 2)
        scheduler = RayScheduler(rule, LOSS, epochs)
        rungs = [[math.ceil(milestone) for milestone, _ in b._rungs] for b in scheduler._ray._brackets]
        assert tuple(tuple(sorted({e for e in b if e < epochs})) for b in rungs) == brackets(rule, epochs)


def test_the_bracket_of_a_trial_depends_on_its_number_alone() -> None:
    def first_rungs(order: list[int]) -> dict[int, float]:
        scheduler = RayScheduler(Asha(1, None, 2, 3), LOSS, 17)
        for trial in order:
            for epoch in range(1, 17):
                scheduler.observe(EpochReported(trial=trial, epoch=epoch, metrics={"loss": 1.0}, time=0.0, time_s=1.0))
        return {int(name): bracket._rungs[-1][0] for name, bracket in scheduler._ray._trial_info.items()}

    found = first_rungs(list(range(30)))
    assert found == first_rungs(list(reversed(range(30))))
    assert set(found.values()) == {1, 2, 4}


def test_numpys_global_state_is_left_as_it_was() -> None:
    np.random.seed(5)
    expected = np.random.random()
    np.random.seed(5)
    RayScheduler(Asha(), LOSS, 9).observe(EpochReported(trial=0, epoch=1, metrics={"loss": 1.0}, time=0.0, time_s=1.0))
    assert np.random.random() == expected
