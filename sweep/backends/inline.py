"""The backend that trains a sweep in this process, one trial after the other, without Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sweep import interruption
from sweep.backends import (
    Crowded,
    Driver,
    Job,
    Order,
    Outgrown,
    is_released,
    refill,
    request_orders,
)
from sweep.backends.group import WorkerGroup
from sweep.backends.worker import Worker

QUIET = ("tensorflow", "absl")
"""Loggers of libraries that log their internals to the terminal."""


@contextmanager
def _hiding_logs() -> Iterator[None]:
    """Hide records below the level ERROR of the loggers in `QUIET` inside the block.

    Ray's workers do not need this, because their records go into files.
    """

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    loggers = [logging.getLogger(name) for name in QUIET]
    for logger in loggers:
        logger.addFilter(is_error)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """A backend that trains trials in this process, one after the other."""

    job: Job
    reuse: bool = True
    notice: Callable[[str], None] = lambda text: None

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver hands out, in this process, and return when it hands out no more.

        Notices go to `notice`. Raises `StoppedAtOnce` if the user stops a running step at once. If the job allows to
        train trials together, raises what importing or creating the trainable raises; otherwise, such an error ends
        trials and is not raised.
        """
        group = WorkerGroup(self.job, lambda make: Worker(self.job, reuse=self.reuse, make=make))
        together = self.job.together
        with _hiding_logs(), interruption.blocking_sighup():
            try:
                # the only worker, which has no name
                while found := request_orders(driver, "", together, 1):
                    together = self._train(driver, group, found, together)
            finally:
                group.close()

    def limit(self, most: int | None) -> None:
        """Do nothing: this process trains one trial, or one group of trials, at a time."""

    def at_once(self, gpus: float) -> int:
        """Return 1: this process trains one trial, or one group of trials, at a time."""
        return 1

    def _train(
        self, driver: Driver, group: WorkerGroup, given: Sequence[Order], together: int
    ) -> int:
        """Train the trials in ``given``, and new ones that may join while others are training, until none is left.

        The driver is told of each trial that begins, and of the progress of each step. Return how many trials to train
        together from now on: ``together``, or fewer if not so many fit into memory or can be trained as one program.
        """
        group.take(given)
        trials = [order.assignment.trial for order in given]
        for trial in trials:
            driver.begun(trial)
        while trials:
            with interruption.breakable():
                steps = group.step()
            together = min(together, steps.together)
            trials = []  # refilled with those that go on
            for trial, progress in steps.found.items():
                for text in progress.notices:
                    self.notice(text)
                goes_on = driver.take(trial, progress)
                if progress.spoilt or isinstance(progress, Outgrown | Crowded):
                    # The driver waits for this call before it hands the trial out again, to this same process.
                    driver.lose(trial, "replaced")
                if goes_on and not is_released(progress):
                    trials.append(trial)
            # trials that took too long: their training could not be interrupted during the step
            for trial in driver.tick():
                driver.lose(trial, "ended")
                trials = [other for other in trials if other != trial]
            # before new trials are taken, so that they get the workers of those that end
            group.keep(trials)
            # empty unless trials are trained together and enough of them have ended
            more = refill(driver, "", steps, len(trials), 1)
            group.take(more)
            for order in more:
                driver.begun(order.assignment.trial)
                trials.append(order.assignment.trial)
        return together
