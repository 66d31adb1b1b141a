"""The backend without Ray: one trial after the other in this process, for tests and for debuggers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sweep import interruption
from sweep.backends.protocol import Driver, Job, Order
from sweep.backends.worker import Worker

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """One worker in this process."""

    job: Job
    reuse: bool = True
    notice: Callable[[str], None] = lambda text: None

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver gives out."""
        worker = Worker(self.job, reuse=self.reuse)
        with _quiet():
            try:
                while (order := driver.next()) is not None:
                    self._train(driver, worker, order)
            finally:
                worker.close()

    def at_once(self, gpus: float) -> int:
        """Return one: this process trains one trial after the other."""
        return 1

    def _train(self, driver: Driver, worker: Worker, order: Order) -> None:
        trial = order.assignment.trial
        worker.take(order)
        driver.begun(trial)
        go_on = True
        while go_on:
            with interruption.breakable():
                progress = worker.step()
            for text in progress.notices:
                self.notice(text)
            go_on = driver.take(trial, progress)
            if progress.spoilt:
                driver.lose(trial, "replaced")
            if trial in driver.tick():  # it took too long; while it trains, nobody can end it here
                driver.lose(trial, "ended")
                go_on = False
