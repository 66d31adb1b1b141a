"""The backend without Ray: one trial after the other in this process, for tests and for debuggers."""

from __future__ import annotations

from collections.abc import Callable

from sweep import interruption
from sweep.backends.driver import Driver
from sweep.backends.worker import Job, Worker


def run(driver: Driver, job: Job, *, reuse: bool, notice: Callable[[str], None]) -> None:
    """Train all trials that the driver gives out."""
    worker = Worker(job, reuse=reuse)
    try:
        while (order := driver.next()) is not None:
            trial = order.assignment.trial
            worker.take(order)
            driver.begun(trial)
            go_on = True
            while go_on:
                with interruption.breakable():
                    progress = worker.step()
                for text in progress.notices:
                    notice(text)
                go_on = driver.take(trial, progress)
                if progress.spoilt:
                    driver.lose(trial, "replaced")
                if trial in driver.tick():  # it took too long; while it trains, nobody can end it here
                    driver.lose(trial, "ended")
                    go_on = False
    finally:
        worker.close()
