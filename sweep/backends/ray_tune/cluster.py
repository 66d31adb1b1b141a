"""The Ray cluster that a sweep runs on: one started on this machine, or an existing one.

Sweeps share a cluster. While any of them waits for room, each is limited to its part; otherwise it may use everything.
Users have equal parts, and so have the sweeps of one user. A sweep above its part gives up workers as their trials end.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import AuthenticationError
from ray.job_config import JobConfig
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.util.placement_group import placement_group_table

from sweep import interruption
from sweep.backends import Job
from sweep.backends.ray_tune import agents, dashboard, local_ray, nodes, ray_folder, ray_private_api
from sweep.backends.ray_tune.dashboard import JobPage, LiveSweep
from sweep.backends.ray_tune.nodes import Node
from sweep.contract import Devices, cpus
from sweep.errors import InputError, first_line
from sweep.ray_settings import LOCAL_SETTINGS, SETTINGS
from sweep.store.object_store import repeat
from sweep.text import counted, printable

_SERVERS = ("gcs_server", "raylet")  # Ray cannot work without these
_HELPERS = ("dashboard", "monitor", "log_monitor")  # no trial needs these

LOOK_S = 1.0  # between checks of which machines exist


@dataclass(slots=True)
class ConcurrencyLimits:
    """Limits on the number of concurrent trials, which may change while a sweep runs."""

    most: int | None = None
    limit: Callable[[int], int] = lambda fits: fits  # applied to the number that fits


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connection to Ray, with what is needed to count the trials that fit."""

    local: bool = False  # started for this sweep alone
    there: Callable[[], Sequence[Node]] = nodes.list_alive_nodes
    promised: Callable[[], Sequence[tuple[Node, int]]] = nodes.list_promised_nodes
    page: JobPage | None = None  # page of this driver's job in the dashboard

    def fits(self, devices: Devices, workers: int = 1, aside: int = 0) -> int:
        """Return how many trials fit at once on the present machines and on those that an autoscaler adds.

        On machines to be added, at most as many processes are counted as fit on the present ones, or on one added
        machine if that is more, because the autoscaler may fail to add them. A trial has ``workers`` processes with
        ``devices`` each and ``aside`` processes with the same CPUs and no GPUs, which may be on several machines. The
        result is 0 if no trial fits.
        """
        with_devices = self._processes(devices) // workers
        if not aside:
            return with_devices
        # The processes without GPUs, too, must find room on all machines together.
        without_gpus = self._processes(replace(devices, gpus=0)) // (workers + aside)
        return min(with_devices, without_gpus)

    def _processes(self, devices: Devices) -> int:
        """Return how many processes with ``devices`` each fit at once; `fits` says how machines to come are counted."""
        present = sum(node.fits(devices) for node in self.there())
        # of each kind of machine that an autoscaler can have: processes that fit on one, largest number of machines
        kinds = [(kind.fits(devices), count) for kind, count in self.promised() if count]
        # those numbers include present machines
        to_come = max(sum(fits * count for fits, count in kinds) - present, 0)
        return present + min(to_come, max([present, *(fits for fits, _ in kinds)]))

    def require(self, devices: Devices, workers: int = 1, aside: int = 0) -> None:
        """Raise InputError if no trial fits on the machines that exist or that an autoscaler would add.

        A trial has ``workers`` processes with ``devices`` each and ``aside`` processes without GPUs. The error names
        the setting that asks for too much: servers, workers, CPUs or GPUs, or CPUs and GPUs together if there is enough
        of each, but not on one machine.
        """
        found = self._processes(devices)  # how many of the workers fit at once
        where = "this machine" if self.local else "the cluster"
        if found >= workers:
            room = self._processes(replace(devices, gpus=0))
            if aside and room < workers + aside:
                what = f"a trial takes {workers + aside} processes of {devices.cpus:g} CPU each (workers: {workers}, "
                what += f"servers: {aside - 1}, and a coordinator), {where} has room for {room}"
                raise InputError.one(
                    "resources.servers", what, "lower it or cpus, or join a larger cluster"
                )
            return
        if found:
            each = (
                f"{devices.cpus:g} CPU"
                + (f" and {devices.gpus:g} GPU" if devices.gpus else "")
                + " each"
            )
            what = f"a trial takes {workers} workers of {each}, {where} has room for {found}"
            raise InputError.one(
                "resources.workers", what, "lower it, or join a larger cluster with --address"
            )
        # Not even one worker fits. If there is no machine at all, the largest counts as one that has nothing.
        largest = [*self.there(), *(kind for kind, count in self.promised() if count)] or [
            Node(0, 0)
        ]
        hint = "lower it, join a larger cluster with --address"
        where = "this machine" if self.local else "the largest node"
        for name, asked, there in (
            ("cpus", devices.cpus, max(node.cpus for node in largest)),
            ("gpus", devices.gpus, max(node.gpus for node in largest)),
        ):
            if asked > there:
                more = ", or rehearse with --simulate-gpus" if name == "gpus" else ""
                raise InputError.one(
                    f"resources.{name}",
                    f"a trial takes {asked:g}, {where} has {there:g}",
                    f"{hint}{more}",
                )
        # Each number alone is there, but on different machines.
        raise InputError.one(
            "resources",
            f"no node has {devices.cpus:g} CPUs and {devices.gpus:g} GPUs together",
            hint,
        )

    def room(
        self, devices: Devices, bounds: ConcurrencyLimits, workers: int = 1, aside: int = 0
    ) -> Callable[[], int]:
        """Return a function that returns how many trials may run at once now, at least 1 and within ``bounds``.

        It counts the machines again if the last count is more than a second old. A local Ray is one machine and does
        not change. A change of ``bounds`` has an effect from the next call on.

        Raises:
            InputError: at once, if no trial fits, see `require`.
        """
        self.require(devices, workers, aside)
        looked = -math.inf  # when machines were last counted
        fits = 0  # how many trials fitted then

        def count_room() -> int:
            nonlocal looked, fits
            is_constant = self.local and fits > 0  # one machine, which was counted
            if not is_constant and time.monotonic() - looked > LOOK_S:
                looked, fits = time.monotonic(), self.fits(devices, workers, aside)
            return max(min(bounds.limit(fits), bounds.most or fits), 1)

        return count_room

    def at_once(self, devices: Devices, bounds: ConcurrencyLimits) -> Callable[[float], int]:
        """Return a function that takes a number of GPUs and returns how many trials with so many each may run at once.

        The trials have the CPUs of ``devices``. The function returns at least 1, and raises InputError if no such trial
        fits.
        """
        # by number of GPUs, a function that counts the room, because each keeps its last count
        rooms: dict[float, Callable[[], int]] = {}

        def count_room(gpus: float) -> int:
            if gpus not in rooms:
                rooms[gpus] = self.room(replace(devices, gpus=gpus), bounds)
            return rooms[gpus]()

        return count_room

    def shared(self, job: Job, devices: Devices) -> AbstractContextManager[None]:
        """Return the context manager `nodes.share_results_folder` for a job; for a local Ray, one that does nothing."""
        return nullcontext() if self.local else nodes.share_results_folder(job, devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Options for starting a Ray."""

    lost: Callable[[], None] = lambda: None  # called from another thread when a local Ray dies
    meanwhile: Callable[[], None] = lambda: None  # called while a local Ray starts
    ahead: AbstractContextManager[None] | None = None  # context in which a local Ray starts
    # metadata of this driver's job, see `dashboard.make_job_metadata`
    about: Mapping[str, str] | None = None


@contextmanager
def connect(
    address: str | None,
    simulated_gpus: int | None,
    say: Callable[[str], None],
    start: Start = Start(),
) -> Iterator[Cluster]:
    """Start a local Ray, or join the one at ``address``; after the block, shut it down or disconnect.

    A Ray to which this process is connected already is used and left as it is. A local Ray gets ``simulated_gpus``
    GPUs, or those of the machine if that is None; it listens only on 127.0.0.1 and keeps its token authentication.
    ``say`` gets the address of the dashboard, possibly from another thread. Environment variables are set and stay;
    ``CUDA_VISIBLE_DEVICES`` is removed inside the block if GPUs are simulated. Raises InputError if there is no cluster
    at the address, a local Ray does not start, or a connected one does not suit the arguments.
    """
    for name, value in (SETTINGS if address else {**SETTINGS, **LOCAL_SETTINGS}).items():
        os.environ.setdefault(name, value)
    there_already = ray.is_initialized()  # in a notebook or script that uses Ray itself
    if there_already:
        joined: AbstractContextManager[None] = _use_existing_connection(address, simulated_gpus)
    elif address:
        joined = _join_cluster(address, say, start.about)
    else:
        joined = _start_ray(simulated_gpus, say, start)
    with _simulating_gpus(simulated_gpus), redirect_ray_messages(say), joined:
        context = ray.get_runtime_context()
        if ray_private_api.is_usable(ray_private_api.LOGS, say, context):
            session = context.get_session_name()
            sys.stderr.write(
                f"Ray {session}: its processes write to the folder logs below that name in Ray's folder\n"
            )
        own = address is None and not there_already  # started here, so that no other driver uses it
        page = None
        if start.about and not _is_client(address):
            page = JobPage(start.about, shared=not own)
        try:
            yield Cluster(local=own, page=page)
        finally:
            if page is not None:
                page.close()


@contextmanager
def _simulating_gpus(simulated_gpus: int | None) -> Iterator[None]:
    """Remove ``CUDA_VISIBLE_DEVICES`` inside the block if GPUs are simulated, that is unless the argument is None.

    Otherwise Ray would refuse to start with more GPUs than the variable names. Workers hide all GPUs themselves. The
    variable has its earlier value after the block.
    """
    if simulated_gpus is None:
        yield
        return
    before = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def redirect_ray_messages(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context manager in which Ray's long messages about lost workers go to standard error, the debug log.

    If this Ray lacks the private name, they stay where they are, and ``say`` gets a line.
    """
    return ray_private_api.replacing_name(
        ray_private_api.WORDS, say, lambda theirs: _write_to_debug_log
    )


def _write_to_debug_log(data: dict[str, Any], *rest: object, **more: object) -> None:
    """Write the lines of a message of Ray, in ``data`` under ``lines``, to standard error, which is the debug log."""
    for line in data.get("lines", ()):
        sys.stderr.write(f"Ray: {printable(str(line))}\n")


def _use_existing_connection(
    address: str | None, simulated_gpus: int | None
) -> AbstractContextManager[None]:
    """Return a context manager that does nothing, so that the Ray to which this process is connected goes on running.

    Raises:
        InputError: if ``address`` names another Ray, or GPUs are to be simulated.
    """
    present = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", present):
        what = f"this process is connected to another Ray, at {present}"
        raise InputError.one(
            "address",
            f"{address!r}, but {what}",
            "leave address out, or call ray.shutdown() before",
        )
    if simulated_gpus is not None:
        what = "a Ray that runs already cannot be given GPUs"
        raise InputError.one("simulate_gpus", what, "call ray.shutdown() before")
    return nullcontext()


@contextmanager
def _join_cluster(
    address: str, say: Callable[[str], None], about: Mapping[str, str] | None
) -> Iterator[None]:
    """Connect to the Ray at ``address``, and disconnect after the block. Raises `InputError` if that fails.

    ``about`` is the metadata of the sweep's page, and ``say`` gets the address of the dashboard.
    """
    _check_address(address)
    try:
        # a Ray client cannot show a page
        config = None if _is_client(address) else _make_job_config(about)
        context = ray.init(
            address=address, job_config=config, log_to_driver=False, logging_level="ERROR"
        )
    except AuthenticationError as error:
        hint = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's own"
        raise InputError.one(
            "--address", f"{address!r}: {_describe_token_error(error)}", hint
        ) from error
    except (ConnectionError, RuntimeError, ValueError) as error:
        what = f"{address!r}: {first_line(error)}"
        raise InputError.one("--address", what, "expected a running cluster's host:port") from error
    try:
        if context.dashboard_url:
            say(dashboard.describe_address(context.dashboard_url))
        yield
    finally:
        ray.shutdown()


@contextmanager
def _start_ray(
    simulated_gpus: int | None, say: Callable[[str], None], start: Start
) -> Iterator[None]:
    """Start a local Ray; shut it down after the block. Raises InputError if it does not start.

    ``simulated_gpus`` is its number of GPUs; None: those of the machine. ``say`` gets the address of the dashboard, and
    a line for each feature whose private names this Ray lacks. ``start`` has a function to call and a context to enter
    during the start, whose errors pass unchanged, and a function to call after a loss.
    """
    is_ending = threading.Event()
    dashboard.protect_token()
    with (
        ray_folder.ensure_usable_folder(say),
        local_ray.listening_on_localhost(say),
        agents.starting_later(say),
        local_ray.starting_in_background(say, start.meanwhile) as end_starting,
        local_ray.waiting_longer(say),
    ):
        try:
            with (
                # outside of `_report_failed_start`, because its errors are not Ray's
                start.ahead or nullcontext(),
                interruption.blocking_sighup(),
                _report_failed_start(),
            ):
                ray.init(
                    address="local",
                    num_cpus=cpus(),
                    num_gpus=simulated_gpus,
                    job_config=_make_job_config(start.about),
                    include_dashboard=True,
                    dashboard_host="127.0.0.1",
                    log_to_driver=False,
                    logging_level="ERROR",
                )
            if ray_private_api.is_usable(ray_private_api.WATCH, say):
                _start_watching_servers(is_ending, start.lost)
            yield
        finally:
            end_starting()  # nothing may be starting when Ray is shut down
            is_ending.set()  # the servers end now, which is no loss
            _shut_down_ray(say)


@contextmanager
def _report_failed_start() -> Iterator[None]:
    """Convert the errors of a Ray that does not start inside the block to `InputError`.

    They are OSError, plain `Exception` and RuntimeError, and AuthenticationError if the token that the environment
    names cannot be used. Exceptions of other classes pass unchanged.
    """
    try:
        yield
    except AuthenticationError as error:
        hint = "unset RAY_AUTH_TOKEN and RAY_AUTH_TOKEN_PATH, or let them name a token"
        what = f"it has not started: {_describe_token_error(error)}"
        raise InputError.one("ray", what, hint) from error
    except Exception as error:
        # a subclass of these two may come from any code
        if type(error) not in (Exception, RuntimeError) and not isinstance(error, OSError):
            raise
        hint = "is the machine overloaded, or its disk full? try again; python -m sweep doctor looks at the machine"
        raise InputError.one("ray", f"it has not started: {str(error).strip()}", hint) from error


def _describe_token_error(error: AuthenticationError) -> str:
    """Return why Ray refuses the token of this process, without Ray's advice, which is several times as long."""
    return first_line(error).partition(". Ensure ")[0]


def _make_job_config(about: Mapping[str, str] | None) -> JobConfig | None:
    """Return the configuration that gives Ray the metadata ``about`` of the sweep's page; None if there is none."""
    return JobConfig(metadata=dict(about)) if about else None


def _is_client(address: str | None) -> bool:
    """Return whether an address is that of a Ray client, as ``ray://...``, which cannot do all that a driver can."""
    return address is not None and "://" in address


def _check_address(address: str) -> None:
    """Raise InputError if nothing listens at host:port within 10 s, for which Ray itself would wait for minutes.

    Addresses of another form, such as "auto", are not checked.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        return  # "auto" or a Ray client, which Ray handles itself
    try:
        # an IPv6 address is written in brackets
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise InputError.one(
            "--address",
            f"nobody answers at {address} ({error})",
            "expected a running cluster's host:port",
        ) from error


def _shut_down_ray(say: Callable[[str], None]) -> None:
    """Shut down a local Ray, after killing its helper processes, for each of which it would wait a second.

    If this Ray lacks the private name for that, ``say`` gets a line, and the helpers are not killed before.
    """
    if ray.is_initialized() and ray_private_api.is_usable(ray_private_api.FASTER_END, say):
        processes = ray_private_api.import_private("ray._private.worker")._global_node.all_processes
        helpers = [
            info.process for kind, infos in processes.items() if kind in _HELPERS for info in infos
        ]
        for process in helpers:
            process.kill()
        for process in helpers:  # after all were killed, so that they end at the same time
            process.wait()
    ray.shutdown()


def _start_watching_servers(is_ending: threading.Event, report_loss: Callable[[], None]) -> None:
    """Start a thread that calls ``report_loss`` if one of Ray's two servers ends before ``is_ending`` is set.

    It is called in that thread, at most once. Without the servers, a driver hangs or dies without a message.
    """
    node = ray_private_api.import_private("ray._private.worker")._global_node
    servers = [info.process for kind in _SERVERS for info in node.all_processes[kind]]

    def watch() -> None:
        while not is_ending.wait(1.0):
            if any(server.poll() is not None for server in servers):
                report_loss()
                return

    threading.Thread(target=watch, name="sweep-ray-watch", daemon=True).start()


LOOK_AROUND_S = 2.0
"""Seconds between checks for other sweeps."""
PATIENCE_S = 10.0
"""Seconds before a sweep says that it is waiting."""


def count_trials_of_user(fits: int, user: str, others: Sequence[LiveSweep]) -> int:
    """Return how many trials a sweep of ``user`` may run at once while others wait for room; at least one.

    Users have equal parts, and so have the sweeps of one user. Parts are rounded up, so that no room is left unused.

    Arguments:
        fits: the number of trials that fit on the whole cluster.
        others: the other sweeps on the cluster.
    """
    users = len({user, *(other.user for other in others)})
    sweeps = 1 + sum(other.user == user for other in others)
    return max(math.ceil(fits / (users * sweeps)), 1)


class ClusterSharing:
    """Computes how many trials one sweep may run on a cluster that it shares; a thread watches the other sweeps."""

    def __init__(
        self, drivers: Callable[[], Sequence[LiveSweep]], waits: Callable[[], bool]
    ) -> None:
        """Initialize, and start the thread, which `close` stops; Ray must be connected.

        ``drivers`` returns the sweeps on the cluster, this one included, and ``waits`` whether anything waits for room.
        """
        self._list_sweeps, self._anything_waits = drivers, waits
        self._user, self._job = dashboard.get_user(), ray.get_runtime_context().get_job_id()
        self.others: tuple[LiveSweep, ...] = ()
        self._is_contested = False  # there are other sweeps, and anything waits for room
        self.close = repeat(self.look, LOOK_AROUND_S, "sweeps that share the cluster")

    def look(self) -> None:
        """Update `others`, and whether anything on the cluster waits for room; errors of Ray are ignored.

        Without other sweeps, nothing counts as waiting. What waits may be this sweep itself.
        """
        # the head node is away for a moment; the next attempt may succeed
        with suppress(Exception):
            self.others = tuple(one for one in self._list_sweeps() if one.job != self._job)
            self._is_contested = bool(self.others) and self._anything_waits()

    def __call__(self, fits: int) -> int:
        """Return how many of the ``fits`` trials that fit this sweep may run now, by the last `look`.

        All, unless there are other sweeps and anything waits for room.
        """
        return count_trials_of_user(fits, self._user, self.others) if self._is_contested else fits


def anybody_waits() -> bool:
    """Return whether any placement group of the cluster, of any program, is waiting for resources."""
    return any(group["state"] == "PENDING" for group in placement_group_table().values())


class RoomWaitReporter(Callback):
    """Reports why a sweep waits if none of its trials is running; called in each turn of Tune's loop."""

    def __init__(
        self, devices: Devices, sharing: ClusterSharing, notice: Callable[[str], None]
    ) -> None:
        self._devices, self._sharing, self._notice = devices, sharing, notice
        self._waits_since = math.inf  # infinity unless a trial waits and none runs
        self._reported: set[tuple[str, ...]] = set()  # the jobs of the other sweeps at each report

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: object) -> None:
        """Report what the sweep waits for after 10 s with a trial that waits and none that runs.

        It is reported only once for the same other sweeps on the cluster.
        """
        states = {trial.status for trial in trials}
        if Trial.RUNNING in states or Trial.PENDING not in states:
            self._waits_since = math.inf
            return
        now = time.monotonic()
        self._waits_since = min(self._waits_since, now)  # it was infinity if the waiting begins now
        others = tuple(one.job for one in self._sharing.others)
        if now - self._waits_since > PATIENCE_S and others not in self._reported:
            self._reported.add(others)
            self._notice(
                describe_wait(self._devices, ray.available_resources(), self._sharing.others)
            )


def describe_wait(devices: Devices, free: dict[str, float], others: Sequence[LiveSweep]) -> str:
    """Return in words which resources a sweep waits for, and which sweeps use them.

    ``devices`` are those of one process of a trial, and ``free`` are Ray's available resources by name, such as
    ``CPU``. ``others`` are the other sweeps on the cluster; without any, the text says that other programs have them.
    """
    asked = [("CPU", devices.cpus), ("GPU", devices.gpus)]
    each = " and ".join(f"{count:g} {name}" for name, count in asked if count)
    there = " and ".join(f"{free.get(name, 0.0):g} {name}" for name, count in asked if count)
    held = ", ".join(
        f"{one.user}/{one.sweep} runs {counted(one.running, 'trial')}" for one in others
    )
    who = held or "no other sweep is there: other programs have it, or its nodes are yet to come"
    return f"waits for room: a trial takes {each}, {there} are free on all nodes together; {who}"
