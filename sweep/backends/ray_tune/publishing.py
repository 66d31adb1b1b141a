"""Tells Ray's dashboard and metrics where the sweep stands, between Tune's events and at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray.tune import Callback

from sweep.backends.driver import Driver
from sweep.backends.ray_tune import job_page
from sweep.backends.ray_tune.gauges import Gauges
from sweep.backends.ray_tune.job_page import JobPage
from sweep.backends.vitals import Vitals
from sweep.backends.worker import Job

EVERY_S = 1.0


class Publisher(Callback):
    """Called by Tune in each turn of its loop; ``page`` is None where the dashboard cannot have one."""

    def __init__(
        self,
        driver: Driver,
        job: Job,
        vitals: Callable[[], Vitals],
        room: Callable[[], int],
        page: JobPage | None,
    ) -> None:
        self._driver, self._vitals, self._room, self._page = driver, vitals, room, page
        self._gauges = Gauges(job.sweep, job.session)
        self._next = 0.0

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """Publish, if the last time is long enough ago."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._publish(job_page.RUNNING)

    def close(self, error: BaseException | None = None) -> None:
        """Publish the end of the session."""
        stopping = self._driver.stopping
        if error is not None:
            self._publish(job_page.FAILED, f"{type(error).__name__}: {error}")
        elif stopping is not None:
            self._publish(job_page.STOPPED, stopping)
        else:
            self._publish(job_page.SUCCEEDED)

    def _publish(self, status: str, why: str = "") -> None:
        vitals = self._vitals()
        if status != job_page.RUNNING:
            vitals = replace(vitals, left_s=None)
        self._gauges.set(vitals, self._driver.running, self._room())
        if self._page is not None:
            line, words = job_page.words(vitals)
            self._page.show(status, f"{why}; {line}" if why else line, words)
