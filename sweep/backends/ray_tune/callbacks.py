"""What Ray Tune calls in each turn of its loop: the driver looks at its clock, and publishes where the sweep stands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ray
from ray.tune import Callback

from sweep.backends.protocol import Driver, Job, SweepStatus
from sweep.backends.ray_tune import dashboard, private
from sweep.backends.ray_tune.adapters import _number
from sweep.backends.ray_tune.dashboard import Gauges, JobPage


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


EVERY_S = 1.0


class Publisher(Callback):
    """Called by Tune in each turn of its loop; ``page`` is None where the dashboard cannot have one."""

    def __init__(
        self,
        driver: Driver,
        job: Job,
        sweep_status: Callable[[], SweepStatus],
        room: Callable[[], int],
        page: JobPage | None,
    ) -> None:
        self._driver, self._vitals, self._room, self._page = driver, sweep_status, room, page
        self._gauges = Gauges(job.sweep, job.session)
        self._next = 0.0

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Publish, if the last time is long enough ago."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._publish(dashboard.RUNNING)

    def close(self, error: BaseException | None = None) -> None:
        """Publish the end of the session."""
        stopping = self._driver.stopping
        if error is not None:
            self._publish(dashboard.FAILED, f"{type(error).__name__}: {error}")
        elif stopping is not None:
            self._publish(dashboard.STOPPED, stopping)
        else:
            self._publish(dashboard.SUCCEEDED)

    def _publish(self, status: str, why: str = "") -> None:
        sweep_status = self._vitals()
        if status != dashboard.RUNNING:
            sweep_status = replace(sweep_status, left_s=None)
        self._gauges.set(sweep_status, self._driver.running, self._room())
        if self._page is not None:
            line, words = dashboard.words(sweep_status)
            self._page.show(status, f"{why}; {line}" if why else line, words)
