"""Runs a sweep's trials as Ray Tune trials."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import ray
from ray import tune

from sweep import interruption
from sweep.backends import Driver, Job, SweepStatus
from sweep.backends.ray_tune import kept_ray, kept_workers, worker_exits
from sweep.backends.ray_tune.adapters import (
    DriverClock,
    DriverScheduler,
    DriverSearcher,
    DriverStopper,
    Publisher,
    Workers,
    create_silent_printer,
    name_workers,
    skip_callback_count,
    survive_memory_kills,
    use_prestarted_processes,
)
from sweep.backends.ray_tune.cluster import (
    Cluster,
    ClusterSharing,
    ConcurrencyLimits,
    RoomWaitReporter,
    anybody_waits,
)
from sweep.backends.ray_tune.dashboard import LiveDrivers
from sweep.backends.ray_tune.trial_actor import TrialWorker
from sweep.backends.ray_tune.worker_settings import WorkerSettings
from sweep.contract import Devices, count_allowed_trials
from sweep.errors import InputError, first_line
from sweep.events import Value

OPEN_PORT = (
    "the workers of a trial talk to one another over ports of TensorFlow's that all networks of their machines reach "
    "without a password: keep such machines in a network of their own, or behind a firewall"
)


def store_target(job: Job) -> Any:
    """Put the class or function of a job into Ray's object store for the workers; return Ray's reference to it.

    Return None if workers can import it from a module.

    Raises:
        InputError: if it cannot be sent to another process.
    """
    if job.given is None:
        return None
    try:
        return ray.put(job.given)
    except Exception as error:  # any error from pickling the objects that it uses
        # Ray raises its own error from the one that names the object
        cause = error.__cause__ or error
        hint = "make what it uses inside of its methods, or run it with inline=True"
        what = f"{job.trainable.partition(':')[2]} cannot be sent to Ray's workers: {type(cause).__name__}"
        what += f": {first_line(cause)}"
        raise InputError.one("trainable", what, hint) from error


@dataclass(slots=True, kw_only=True)
class RayTune:
    """A backend that trains trials in workers on a connected Ray. Raises InputError if no trial fits."""

    cluster: Cluster
    job: Job
    devices: Devices  # of a trial
    # the `training:` block of the sweep file
    training: Mapping[str, Value] = field(default_factory=dict)
    most: int | None = None  # limit on concurrent trials
    max_share: float | None = None  # of the trials that fit
    reuse: bool = True
    notice: Callable[[str], None] = lambda text: None
    # shown in Ray's metrics and on the job's page
    sweep_status: Callable[[], SweepStatus] | None = None
    # count how many trials may run at once: with `devices`, and with a number of GPUs each
    _count_room: Callable[[], int] = field(init=False, repr=False)
    _count_room_with_gpus: Callable[[float], int] = field(init=False, repr=False)
    # those that these two functions apply
    _limits: tuple[ConcurrencyLimits, ...] = field(init=False, repr=False)
    # the class or function of the job in Ray's object store; None if workers import it by its name
    _stored_target: Any = field(init=False, repr=False)
    _sharing: ClusterSharing | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make the functions that count the room, and store the job's class or function for the workers.

        Raises InputError if no trial fits.
        """
        self._sharing = None  # `train` sets it
        # returns how many of the trials that fit `max_share` allows
        limit_to_max_share = partial(count_allowed_trials, max_share=self.max_share)

        def limit_to_both(fits: int) -> int:
            return min(limit_to_max_share(fits), self._limit_to_part(fits))

        limits = ConcurrencyLimits(self.most, limit_to_both)
        self._count_room = self.cluster.room(self.devices, limits, self.job.workers, self.job.aside)
        # Trials with GPU shares are limited to the part of this sweep by `room`.
        limits_with_gpus = ConcurrencyLimits(self.most, limit_to_max_share)
        self._count_room_with_gpus = self.cluster.at_once(self.devices, limits_with_gpus)
        self._limits = (limits, limits_with_gpus)
        self._stored_target = store_target(self.job)

    def at_once(self, gpus: float) -> int:
        """Return how many trials with ``gpus`` GPUs each can run at once now, at least 1; InputError if none fits.

        The limits `most` and `max_share` apply, but not the part of this sweep on a cluster that it shares.
        """
        return self._count_room_with_gpus(gpus)

    def limit(self, most: int | None) -> None:
        """Run at most ``most`` trials at once from now on, None for as many as fit; running trials continue."""
        for limits in self._limits:
            limits.most = most

    def train(self, driver: Driver) -> None:
        """Train all trials that the driver hands out, as many at a time as there is room for; then return.

        On a cluster, other sweeps get their part of the room.
        """
        # other sweeps find it by its page
        if self.cluster.page is not None and not self.cluster.local:
            self._sharing = ClusterSharing(LiveDrivers().look, anybody_waits)
        try:
            # Workers get the class or function from Ray's object store, once, and not with each order.
            train_trials(self, replace(self.job, given=None), driver, self._sharing)
        finally:
            if self._sharing is not None:
                self._sharing.close()

    def room(self, driver: Driver) -> int:
        """Return how many trials may run at once now, at least 1: all that fit, or this sweep's part of them.

        If the driver chooses the GPU shares of trials, `Driver.room` takes the place of the number that fits on the
        cluster.
        """
        shared = driver.room
        if shared is None:
            return self._count_room()
        return self._limit_to_part(shared)

    def _limit_to_part(self, fits: int) -> int:
        """Return how many of the ``fits`` trials that fit this sweep may run: all if it has no `ClusterSharing`."""
        return fits if self._sharing is None else self._sharing(fits)


def train_trials(
    backend: RayTune, job: Job, driver: Driver, sharing: ClusterSharing | None = None
) -> None:
    """Train all trials that the driver hands out with Ray Tune, and return when it hands out no more.

    ``job`` is the job of ``backend`` with `given` None. If other sweeps share the cluster, ``sharing`` limits how many
    trials run at once. What Tune itself writes goes to a temporary folder. Some functions of Tune are replaced for the
    rest of this process.
    """
    notice = backend.notice
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    survive_memory_kills(notice)
    skip_callback_count(notice)
    if backend.cluster.local:
        use_prestarted_processes(notice)
    name_workers(job, notice)  # after the line before, whose cache of actor classes it wraps
    room = partial(backend.room, driver)
    publishers = []
    if backend.sweep_status:
        publishers.append(Publisher(driver, job, backend.sweep_status, room, backend.cluster.page))
    wait_reporters = []
    if sharing is not None:
        wait_reporters.append(RoomWaitReporter(backend.devices, sharing, notice))
    # what each worker gets besides its orders; with "watch", it looks whether its node is taken away
    config: dict[str, Any] = {
        "job": job,
        "reuse": backend.reuse,
        "watch": not backend.cluster.local,
    }
    if backend._stored_target is not None:
        config["given"] = backend._stored_target
    workers = Workers(job.together)
    with (
        worker_exits.make_exits_folder(job),
        _publish_end(publishers),
        _keep_workers(backend, job, driver),
        interruption.temporary_folder("sweep-") as scratch,
    ):
        tune.run(
            TrialWorker,
            name=job.sweep,
            num_samples=-1,  # as many as the searcher suggests
            search_alg=DriverSearcher(driver, room, workers, config),
            scheduler=DriverScheduler(
                driver, notice, workers, room=None if sharing is None else room
            ),
            stop=DriverStopper(driver),
            callbacks=[
                *create_silent_printer(notice),
                DriverClock(driver, notice, workers),
                *publishers,
                *wait_reporters,
            ],
            reuse_actors=backend.reuse,
            max_failures=0,  # if a node is lost, Tune's own restarts count as two failures; the driver restarts trials
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=0, checkpoint_at_end=False
            ),
            storage_path=scratch,  # nothing of what Tune writes is read later
            trial_dirname_creator=lambda trial: str(trial.trial_id),
            raise_on_failed_trial=False,
            verbose=0,
            progress_reporter=tune.CLIReporter(),  # silent; the one for notebooks would clear the cell's output
        )


def _keep_workers(backend: RayTune, job: Job, driver: Driver) -> AbstractContextManager[None]:
    """Return a context manager in which this sweep uses workers kept from an earlier one, and its own are kept.

    It does nothing unless this process keeps its Ray between commands. Kept workers that this sweep cannot use are
    ended now. If trials have several processes, have GPU shares that the driver chooses, are trained together or are
    profiled, or if their class or function is in no module or trainables are not reused, all kept workers are ended and
    none is kept.
    """
    kept = kept_ray.get_kept_ray()
    if kept is None or not backend.cluster.local:
        return nullcontext()
    are_plain = job.workers + job.aside == 1 and job.together == 1 and driver.room is None
    if not (are_plain and backend.reuse and backend._stored_target is None and not job.profile):
        kept.workers.end()
        return nullcontext()
    kept.workers.end_unfit(job, WorkerSettings(backend.devices, backend.training), backend.notice)
    return kept_workers.keeping_workers(kept.workers, backend.notice)


@contextmanager
def _publish_end(published: Sequence[Publisher]) -> Iterator[None]:
    """Call `close` of each of ``published`` after the block, with the error that the block raises or None.

    The error of the block passes.
    """
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        for publisher in published:
            publisher.close(error)
