"""Runs a sweep's trials as Ray Tune trials."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ray
from ray import tune

from sweep.backends.driver import Driver
from sweep.backends.ray_tune import last_words
from sweep.backends.ray_tune.adapters import (
    DriverScheduler,
    DriverSearcher,
    DriverStopper,
    count_no_callbacks,
    name_workers,
    silence,
    survive_memory_kills,
    take_waiting_processes,
)
from sweep.backends.ray_tune.clock import DriverClock
from sweep.backends.ray_tune.job_page import JobPage
from sweep.backends.ray_tune.publishing import Publisher
from sweep.backends.ray_tune.worker import TrialWorker
from sweep.backends.vitals import Vitals
from sweep.backends.worker import Job
from sweep.errors import InputError, first_line

OPEN_PORT = (
    "the workers of a trial talk to one another over ports of TensorFlow's that all networks of their machines reach "
    "without a password: keep such machines in a network of their own, or behind a firewall"
)


def hand_over(job: Job) -> Any:
    """Put the class or function that no module has where all workers find it; None where a module has it.

    Raises InputError where it cannot be sent to another process.
    """
    if job.given is None:
        return None
    try:
        return ray.put(job.given)
    except Exception as error:  # whatever the objects that it uses raise when they are pickled
        cause = error.__cause__ or error
        hint = "make what it uses inside of its methods, or run it with inline=True"
        what = f"{job.trainable.partition(':')[2]} cannot be sent to Ray's workers: {type(cause).__name__}"
        what += f": {first_line(cause)}"
        raise InputError.one("trainable", what, hint) from error


def run(
    driver: Driver,
    job: Job,
    *,
    room: Callable[[], int],
    reuse: bool,
    local: bool,
    notice: Callable[[str], None],
    given: Any = None,
    vitals: Callable[[], Vitals] | None = None,
    page: JobPage | None = None,
) -> None:
    """Train all trials that the driver gives out, as many at a time as there is ``room`` for.

    Ray must be connected, ``local`` or elsewhere; ``given`` is what `hand_over` gave. It shows the ``vitals`` in its
    metrics and on the job's ``page``.
    """
    job = replace(job, given=None)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    survive_memory_kills(notice)
    count_no_callbacks(notice)
    if local:
        take_waiting_processes(notice)
    name_workers(job, notice)
    published = [Publisher(driver, job, vitals, room, page)] if vitals else []
    free: list[str] = []
    with last_words.kept(job), _told(published), tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        tune.run(
            TrialWorker,
            name=job.sweep,
            num_samples=-1,
            search_alg=DriverSearcher(driver, job, room, free, reuse=reuse, given=given),
            scheduler=DriverScheduler(driver, notice, free),
            stop=DriverStopper(driver),
            callbacks=[*silence(notice), DriverClock(driver, notice), *published],
            reuse_actors=reuse,
            max_failures=0,  # Tune's own restarts fail a trial twice where a node is lost: the driver's serve
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            storage_path=scratch,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
            raise_on_failed_trial=False,
            verbose=0,
            progress_reporter=tune.CLIReporter(),  # it is silent; that for notebooks clears the cell's output
        )


@contextmanager
def _told(published: Sequence[Publisher]) -> Iterator[None]:
    """Tell how it ended, in order or not."""
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        for publisher in published:
            publisher.close(error)
