"""The backend without Ray: one trial after the other in this process, for tests and for debuggers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweep import interruption
from sweep.backends.driver import Driver
from sweep.backends.worker import Job, Worker


def run(driver: Driver, job: Job, *, reuse: bool, notice: Callable[[str], None]) -> None:
    """Train all trials that the driver gives out."""
    with _quiet():
        _run(driver, job, reuse=reuse, notice=notice)


QUIET = ("tensorflow", "absl")
"""The loggers of a library that tells of its own workings, in the terminal of whoever runs a sweep in it."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep from the terminal what Ray's workers write into files; errors are told."""

    def tell(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    loggers = [logging.getLogger(name) for name in QUIET]
    for logger in loggers:
        logger.addFilter(tell)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(tell)


def _run(driver: Driver, job: Job, *, reuse: bool, notice: Callable[[str], None]) -> None:
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
