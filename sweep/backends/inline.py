"""The backend without Ray: one trial after the other in this process, for tests and for debuggers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sweep import interruption
from sweep.backends.group import WorkerGroup
from sweep.backends.protocol import Driver, Job, Order, orders
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
        group = WorkerGroup(self.job, lambda make: Worker(self.job, reuse=self.reuse, make=make))
        together = self.job.together
        with _quiet():
            try:
                while found := orders(driver, "", together, 1):
                    together = self._train(driver, group, found, together)
            finally:
                group.close()

    def at_once(self, gpus: float) -> int:
        """Return one: this process trains one trial, or one group of them, after the other."""
        return 1

    def _train(self, driver: Driver, group: WorkerGroup, given: Sequence[Order], together: int) -> int:
        """Train trials to their ends; how many to train at once from now on."""
        group.take(given)
        trials = [order.assignment.trial for order in given]
        for trial in trials:
            driver.begun(trial)
        while trials:
            with interruption.breakable():
                steps = group.step()
            together = min(together, steps.together)
            trials = []
            for trial, progress in steps.found.items():
                for text in progress.notices:
                    self.notice(text)
                goes_on = driver.take(trial, progress)
                if progress.spoilt or progress.outgrown:
                    driver.lose(trial, "replaced")
                if goes_on and not progress.over:
                    trials.append(trial)
            for trial in driver.tick():  # it took too long; while it trains, nobody can end it here
                driver.lose(trial, "ended")
                trials = [other for other in trials if other != trial]
            group.keep(trials)
        return together
