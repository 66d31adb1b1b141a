"""Makes a local Ray start faster; by itself, Ray starts its dashboard first, waits for it, and then for its agents."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from queue import Queue
from typing import Any

from sweep import contract, interruption
from sweep.backends.ray_tune import dashboard, fork_client, ray_private_api
from sweep.contract import Devices
from sweep.errors import first_line
from sweep.forking import ForkServer

START_S = 120.0
"""Seconds that a Ray node may take to register; by itself Ray gives up after 30 s, however busy the machine."""
SPARE = 2
"""Largest number of processes, per concurrent trial, that import modules in advance; Ray starts one for each core."""
NO_WORKERS_IN_ADVANCE = ("RAY_prestart_worker_first_driver", "0")
"""Environment variable and value with which a driver does not wait until workers have started and imported modules."""
_NICENESS = 10  # what starts in the background must not slow down workers


@contextmanager
def forking_workers(server: ForkServer | None, say: Callable[[str], None]) -> Iterator[bool]:
    """Make a local Ray that starts inside the block get its workers from ``server``; yield whether it does.

    It does not if ``server`` is None or this Ray lacks the private names for it, of which ``say`` then gets a line.
    Environment variables are set inside the block.
    """
    if server is None or not ray_private_api.is_usable(ray_private_api.FORKED_WORKERS, say):
        yield False
        return
    node_class: Any = ray_private_api.import_private("ray._private.node").Node
    original = node_class.start_raylet

    def start_raylet(node: Any, *arguments: Any, **options: Any) -> Any:
        parameters = vars(node)["_ray_params"]
        # The raylet inherits the variable and starts `fork_client.py`, which needs the path of Ray's own program.
        os.environ[fork_client.PROGRAM_VARIABLE] = parameters.worker_path
        parameters.worker_path = fork_client.__file__
        return original(node, *arguments, **options)

    before = dict(os.environ)
    os.environ[fork_client.SERVER_VARIABLE] = server.name
    os.environ.setdefault(*NO_WORKERS_IN_ADVANCE)
    node_class.start_raylet = start_raylet
    try:
        yield True
    finally:
        node_class.start_raylet = original
        for name in (
            fork_client.SERVER_VARIABLE,
            fork_client.PROGRAM_VARIABLE,
            NO_WORKERS_IN_ADVANCE[0],
        ):
            if name not in before:  # a user may have set the last one
                os.environ.pop(name, None)


@contextmanager
def importing_in_advance(
    modules: Sequence[str],
    devices: Devices,
    most: int | None,
    server: ForkServer | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Make workers of a local Ray that starts inside the block import the trainable's libraries in advance.

    With ``server``, workers are forks of that process if this Ray allows it. Otherwise the processes that Ray starts in
    advance import ``modules`` themselves, unless trials use GPUs, or Ray would start more than twice as many processes
    as trials can run at once, which ``most`` limits unless it is None. ``devices`` are those of a trial. Libraries read
    their number of threads when they are imported, so it is set before, as Ray sets it for the worker of a trial.
    """
    with forking_workers(server, say) as are_forked:
        if are_forked:
            yield
            return
        cores = contract.cpus()
        # With GPUs, nothing is imported in advance: `cores <= SPARE * 0` is false.
        at_once = 0 if devices.real_gpus else min(cores / max(devices.cpus, 1), most or cores)
        wanted = {
            "RAY_preload_python_modules": ",".join(modules),
            "OMP_NUM_THREADS": str(max(int(devices.cpus), 1)),
        }
        given = {
            name: value
            for name, value in wanted.items()
            if name not in os.environ and cores <= SPARE * at_once
        }
        os.environ.update(given)
        try:
            yield
        finally:
            for name in given:
                del os.environ[name]


def listening_on_localhost(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context manager in which a Ray that starts listens only on 127.0.0.1.

    Ray's own setting for this cannot be used, because Ray has read it when it was imported. Without the private name
    that is needed, others can reach the Ray, as ``say`` is told.
    """
    return ray_private_api.replacing_name(ray_private_api.OWN_MACHINE, say, lambda theirs: False)


def waiting_longer(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context manager in which a Ray node may take `START_S` seconds to start, instead of Ray's 30.

    If this Ray lacks the private name, its time stays as it is, and ``say`` gets a line.
    """

    def get_node(theirs: Callable[..., Any], *which: Any) -> Any:
        """Call Ray's function until it returns the node, for at most `START_S` seconds; then raise its RuntimeError."""
        until = time.monotonic() + START_S
        while True:
            try:
                return theirs(*which)
            except RuntimeError:  # it has not started yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    return ray_private_api.replacing_name(
        ray_private_api.PATIENT_START, say, lambda theirs: partial(get_node, theirs)
    )


@contextmanager
def starting_in_background(
    say: Callable[[str], None], meanwhile: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Make a local Ray that starts inside the block start its dashboard and monitor in a thread: no trial needs them.

    Its log monitor is not started at all. Yields a function that ends the thread's work, finished or not, to be called
    before Ray is shut down. From the thread, ``say`` gets the address of the dashboard or what failed to start.
    ``meanwhile`` is called while the dashboard starts, or before Ray starts if this Ray lacks the private names that
    are needed.
    """
    if not ray_private_api.is_usable(ray_private_api.FASTER_START, say):
        meanwhile()
        yield lambda: None
        return
    node_class: Any = ray_private_api.import_private("ray._private.node").Node
    ray_constants: Any = ray_private_api.import_private("ray._private.ray_constants")
    patience = ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S  # `background.finish` sets it to 0
    background = _BackgroundStart(say, ray_constants)
    after_dashboard: list[Callable[[], None]] = []

    def start_monitor(node: Any) -> None:
        """Let Ray's monitor start in the background, after the dashboard: nobody waits for it."""
        after_dashboard.append(lambda: originals["start_monitor"](node))

    def start_api_server(node: Any, **how: Any) -> None:
        """Start Ray's dashboard in the background, and say its address."""

        def start() -> None:
            originals["start_api_server"](node, **how)
            say(dashboard.describe_address(node.webui_url))

        background.add(start)
        for other in after_dashboard:  # Ray has called `start_monitor` before this function
            background.add(other)

    def start_log_monitor(node: Any) -> None:
        """Do nothing: the log monitor sends the workers' output to drivers that ask for it; a sweep does not."""

    def start_ray_processes(node: Any) -> None:
        """Start the other processes of Ray, then call ``meanwhile``."""
        originals["start_ray_processes"](node)
        meanwhile()

    replacements: dict[str, Callable[..., None]] = {
        "start_monitor": start_monitor,
        "start_api_server": start_api_server,
        "start_log_monitor": start_log_monitor,
        "start_ray_processes": start_ray_processes,
    }
    originals = {name: getattr(node_class, name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(node_class, name, replacement)
    threading.Thread(target=background.run, name="sweep-ray-start", daemon=True).start()
    try:
        yield background.finish
    finally:
        for name, method in originals.items():
            setattr(node_class, name, method)
        ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = patience
        background.end_thread()  # not earlier, because processes started by the thread die with it


class _BackgroundStart:
    """Starts parts of Ray one after another in a thread, which calls `run`."""

    def __init__(self, say: Callable[[str], None], ray_constants: Any) -> None:
        self._say = say
        self._ray_constants = ray_constants
        self._starts: Queue[Callable[[], None] | None] = Queue()
        self._finishing = threading.Event()

    def add(self, start: Callable[[], None]) -> None:
        """Have ``start`` called in the thread, after the functions that were added before."""
        self._starts.put(start)

    def run(self) -> None:
        """Call the added functions one after another, until `end_thread` is called; pass their errors to ``say``.

        After `finish` was called, further functions are skipped. On Linux, the thread gets a lower priority.
        """
        if sys.platform == "linux":
            # Of this thread and of what it starts; on other systems, it would be that of the whole process.
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
        while (start := self._starts.get()) is not None:
            try:
                if not self._finishing.is_set():
                    with interruption.blocking_sighup():
                        start()
            except Exception as error:  # whatever fails, no trial needs it
                if not self._finishing.is_set():
                    self._say(f"Ray runs without its dashboard or monitor: {first_line(error)}")
            finally:
                self._starts.task_done()

    def finish(self) -> None:
        """Wait for the added function that runs now, and do not call the others.

        The function that runs ends soon, because Ray's time limit for the dashboard is set to 0; its error is not
        reported.
        """
        self._finishing.set()
        # Ray reads it repeatedly while it waits for the dashboard
        self._ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = 0
        self._starts.join()

    def end_thread(self) -> None:
        """Make `run` return after the functions that were added so far."""
        self._starts.put(None)
