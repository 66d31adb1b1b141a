"""Connects a session to the workers of a Ray cluster, which it starts or joins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from sweep import forking
from sweep.analysis.live_status import Standing
from sweep.backends import Backend, Job, SweepStatus
from sweep.backends.ray_tune import kept_ray
from sweep.contract import Devices, count_allowed_trials
from sweep.events import Status
from sweep.inspection import Source
from sweep.runner import Options, View, features
from sweep.runner.interface import say_once
from sweep.spec import Spec
from sweep.spec.blocks import Resources

if TYPE_CHECKING:
    from sweep.backends.ray_tune.cluster import Cluster


@contextmanager
def connect_to_ray(
    options: Options, job: Job, spec: Spec, source: Source, view: View, leave: Callable[[str], None]
) -> Iterator[Backend]:
    """Start a local Ray, or join the cluster at `Options.address`; yield the backend that trains on it.

    A Ray that this process keeps warm, or is connected to already, is used again and left running after the block; any
    other connection ends with the block. ``view`` gets the steps of the start. ``leave`` is called with the reason,
    from another thread, if a local Ray that was started here dies.

    Raises:
        InputError: if Ray does not start, no cluster is at the address, a Ray that this process is connected to does
            not suit the options, or a machine of the cluster does not see the results folder.
    """
    say = view.say
    if options.address is None:
        view.step("starting Ray")
        connected = _connect_locally(
            options, job, spec, source, say, partial(leave, "Ray has died")
        )
    else:
        view.step(f"connecting to Ray at {options.address}")
        connected = _join_cluster(options.address, options, job, say)
    with connected as found:
        # imported only now: the start of Ray has imported it meanwhile (`_import_ray_tune`)
        from sweep.backends.ray_tune.backend import OPEN_PORT, RayTune

        devices = spec.resources.devices(options.simulated_gpus)
        trains = RayTune(
            cluster=found,
            job=job,
            devices=devices,
            training=spec.training,
            most=options.limit_concurrent(spec),
            max_share=spec.resources.max_share,
            reuse=options.reuse,
            notice=say_once(say),
            sweep_status=lambda: sweep_status(view.standing),
        )
        # the processes of a trial talk to one another over the network
        if job.workers + job.aside > 1:
            say(OPEN_PORT)
        with found.shared(job, devices), features.sending_messages(job):
            view.step(
                "starting workers: they import the code, load the data, and build the first model"
            )
            yield trains


@contextmanager
def _connect_locally(
    options: Options,
    job: Job,
    spec: Spec,
    source: Source,
    say: Callable[[str], None],
    lost: Callable[[], None],
) -> Iterator[Cluster]:
    """Start a Ray on this machine, or use the one that this process keeps warm; yield the connection.

    Without a Ray that is kept warm, the connection ends with the block. ``say`` prints a line for the user. ``lost`` is
    called, from another thread, if that Ray dies. Raises InputError if Ray does not start.
    """
    devices = spec.resources.devices(options.simulated_gpus)
    most = options.limit_concurrent(spec)
    start = partial(_start_ray, devices, options.simulated_gpus, most, source.first_imports)
    make_metadata = partial(_make_job_metadata, job, say)
    kept = kept_ray.get_kept_ray()  # None unless this process keeps a Ray warm
    if kept is None:
        connection = start(say, lost, make_metadata)
    else:
        # the Ray may outlive this session, so it reports to the object that keeps it, which tells its present listener
        begin = partial(start, kept.say, kept.report_loss, make_metadata)
        listener = kept_ray.Listener(say, lost)
        connection = kept.lend((devices, options.simulated_gpus), make_metadata, listener, begin)
    with connection as found:
        yield found


@contextmanager
def _start_ray(
    devices: Devices,
    simulated_gpus: int | None,
    most: int | None,
    first_imports: Sequence[str],
    say: Callable[[str], None],
    lost: Callable[[], None],
    make_metadata: Callable[[], dict[str, str]],
) -> Iterator[Cluster]:
    """Start a Ray on this machine and yield the connection, which ends with the block.

    If this process is connected to a Ray already, as in a notebook, that one is used and stays. Raises InputError if
    Ray does not start, or if the present one does not suit.

    Arguments:
        devices: devices of one worker.
        simulated_gpus: number of CPU devices that stand in for GPUs; None for the machine's own GPUs.
        most: limit on concurrent trials; None if there is none.
        first_imports: modules that are imported for the workers while Ray starts.
        say: prints a line for the user.
        lost: called from another thread if the Ray dies.
        make_metadata: returns the metadata of the sweep's page in Ray's dashboard; called once.
    """
    with forking.serving(devices.cpus, devices.real_gpus, first_imports, say) as fork_server:
        # imports Ray, while the fork server imports as well
        from sweep.backends.ray_tune import (
            cluster,
            local_ray,
        )

        # what happens while Ray starts: this process and the workers import what they need
        start = cluster.Start(
            lost=lost,
            meanwhile=_import_ray_tune,
            ahead=local_ray.importing_in_advance(first_imports, devices, most, fork_server, say),
            about=make_metadata(),
        )
        with cluster.connect(None, simulated_gpus, say, start) as found:
            yield found


@contextmanager
def _join_cluster(
    address: str, options: Options, job: Job, say: Callable[[str], None]
) -> Iterator[Cluster]:
    """Connect to the running Ray cluster at an address; yield the connection, which ends with the block.

    A connection of this process that exists already is used and stays. ``say`` prints a line for the user. Raises
    `InputError` if no cluster is at the address, or if the existing connection does not suit.
    """
    from sweep.backends.ray_tune import cluster

    start = cluster.Start(meanwhile=_import_ray_tune, about=_make_job_metadata(job, say))
    with cluster.connect(address, options.simulated_gpus, say, start) as found:
        yield found


def _make_job_metadata(job: Job, say: Callable[[str], None]) -> dict[str, str]:
    """Return the metadata with which Ray's dashboard shows the sweep as a job: names of job, sweep and user.

    Return {} if this Ray cannot show it, and pass a line that says so to ``say``. Imports Ray.
    """
    from sweep.backends.ray_tune import dashboard

    return dashboard.make_job_metadata(job.sweep, job.session, say)


def _import_ray_tune() -> None:
    """Import the backend with Ray Tune, which takes a second; called while Ray starts in other processes."""
    import_module("sweep.backends.ray_tune.backend")


def count_trials_that_fit_cluster(address: str, devices: Devices, asked: Resources) -> int:
    """Connect to the cluster at ``address`` and return how many trials may run there at once, at least 1.

    Machines that it may add are included, and trials that run there now are not subtracted. ``devices`` are those of
    one worker. ``asked`` are the sweep file's resources: its `max_share` limits the number, `max_concurrent` does not.
    The connection is ended. Raises `InputError` if no trial fits or the cluster does not answer.
    """
    from sweep.backends.ray_tune import cluster

    workers = asked.workers
    # processes of a trial that train nothing, such as parameter servers
    aside = asked.processes - asked.workers
    # real GPUs, and no lines for the user
    with cluster.connect(address, None, lambda text: None) as found:
        found.require(devices, workers, aside)  # raises the error if not even one trial fits
        return count_allowed_trials(found.fits(devices, workers, aside), asked.max_share)


def sweep_status(standing: Standing) -> SweepStatus:
    """Return the present state of a sweep as Ray's dashboard and metrics show it.

    Open trials without a worker, also paused ones, count as interrupted. The time left is None if it is unknown or the
    estimate is infinite. What it says of the best trials is None or () while there is none.
    """
    now = time.time()
    best = standing.best
    waiting = len(standing.open) - len(standing.running)
    counts: dict[str, int] = {}
    for status in Status:  # also those that no trial has: their number is 0
        counts[status.value] = standing.ended[status]
    # these two have not ended
    counts[Status.RUNNING.value] = len(standing.running)
    counts[Status.INTERRUPTED.value] = waiting
    left_s = standing.left_s(now)
    return SweepStatus(
        trials=counts,
        total=standing.total,
        epochs=standing.epochs,
        epochs_per_s=standing.epochs_per_s(now),
        metric=standing.outline.metric,
        goal=standing.outline.goal,
        best=None if best is None else best.value,
        best_trials=() if best is None else best.trials,
        left_s=left_s if left_s is not None and math.isfinite(left_s) else None,
    )
