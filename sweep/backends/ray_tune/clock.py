"""Lets the driver look at its clock between Tune's events, and ends the workers of trials that hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.tune import Callback

from sweep.backends.driver import Driver
from sweep.backends.ray_tune import private
from sweep.backends.worker import Order


class DriverClock(Callback):
    """Called by Tune in each turn of its loop, whether anything has happened or not."""

    def __init__(self, driver: Driver, notice: Callable[[str], None]) -> None:
        self._driver, self._notice = driver, notice

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A worker is there and takes the trial."""
        self._driver.begun(_number(trial))

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Kill the processes of trials that the driver has ended while they trained."""
        doomed = set(self._driver.tick())
        for trial in trials if doomed else ():
            if trial.is_finished() or _number(trial) not in doomed:
                continue
            if private.usable(private.KILLING, self._notice, trial) and trial.temporary_state.ray_actor is not None:
                ray.kill(trial.temporary_state.ray_actor)  # Tune hears of it as of any lost worker


def _number(trial: Any) -> int:
    order: Order = trial.config["order"]
    return order.assignment.trial
