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
    Inside the block, a method of Ray is replaced and environment variables are set, which are removed after it. One of
    them makes Ray start no workers in advance, unless the user has set it.
    """
    if server is None or not ray_private_api.is_usable(ray_private_api.FORKED_WORKERS, say):
        yield False
        return
    node_class: Any = ray_private_api.import_private("ray._private.node").Node
    original = node_class.start_raylet

    # Stands in for Ray's method, which starts the process that starts the workers of this machine.
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
    """Make workers of a local Ray that starts inside the block have the trainable's libraries imported in advance.

    With ``server``, workers are forks of that process if this Ray allows it; if not, ``say`` gets a line. Otherwise the
    processes that Ray starts in advance, one for each core, import ``modules`` themselves. They do not if trials use
    GPUs, or if there are more than twice as many cores as trials that run at once. ``devices`` are those of a trial,
    and ``most`` is the largest number of trials at once, None if only the cores limit it.

    Environment variables are set inside the block, except those that are set already: the modules, and the number of
    threads, which libraries read when they are imported.
    """
    with forking_workers(server, say) as are_forked:
        if are_forked:
            yield
            return
        cores = contract.cpus()
        trials_at_once = min(cores / max(devices.cpus, 1), most or cores)
        # Ray starts a process for each core, and those without a trial would import in vain.
        is_worthwhile = not devices.real_gpus and cores <= SPARE * trials_at_once
        wanted = {
            "RAY_preload_python_modules": ",".join(modules),
            # as Ray sets it for the worker of a trial, but later
            "OMP_NUM_THREADS": str(max(int(devices.cpus), 1)),
        }
        added = {}
        for name, value in wanted.items():
            if is_worthwhile and name not in os.environ:
                added[name] = value
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                del os.environ[name]


def listening_on_localhost(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context manager in which a Ray that starts listens only on 127.0.0.1.

    Ray's own setting for this cannot be used, because Ray has read it when it was imported. If this Ray lacks the
    private name that is needed, nothing is changed: others in the network can reach the Ray, and ``say`` gets a line.
    """
    return ray_private_api.replacing_name(ray_private_api.OWN_MACHINE, say, lambda theirs: False)


def waiting_longer(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Return a context manager in which a Ray node may take 120 s to start, instead of Ray's 30.

    If this Ray lacks the private name, its time stays as it is, and ``say`` gets a line.
    """

    # Stands in for Ray's function `theirs`, which raises RuntimeError for a node that has not started.
    def get_node(theirs: Callable[..., Any], *which: Any) -> Any:
        """Call Ray's function until it returns the node, for at most `START_S` seconds; then raise its RuntimeError."""
        until = time.monotonic() + START_S
        while True:
            try:
                return theirs(*which)
            except RuntimeError:
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

    Its log monitor is not started at all. Yields a function to be called before Ray is shut down: it waits for what the
    thread is starting, which ends soon, and lets it start nothing more. From the thread, ``say`` gets the address of
    the dashboard or what failed to start. ``meanwhile`` is called once, while the dashboard starts. If this Ray lacks
    the private names that are needed, Ray starts as usual, ``say`` gets a line, ``meanwhile`` is called before Ray
    starts, and the yielded function does nothing.
    """
    if not ray_private_api.is_usable(ray_private_api.FASTER_START, say):
        meanwhile()
        yield lambda: None
        return
    node_class: Any = ray_private_api.import_private("ray._private.node").Node
    ray_constants: Any = ray_private_api.import_private("ray._private.ray_constants")
    # restored below, because `background.finish` sets it to 0
    timeout_before = ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S
    background = _BackgroundStart(say, ray_constants)
    after_dashboard: list[Callable[[], None]] = []

    # The next four functions stand in for methods of Ray's `Node`, which `originals` has, see below.

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
        ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = timeout_before
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
        """Call the added functions one after another, and wait for further ones until `end_thread` is called.

        If one raises an error, ``say`` of the class gets a line, and the next one is called. After `finish` was called,
        functions are skipped and errors ignored. On Linux, this thread gets a lower priority.
        """
        if sys.platform == "linux":
            # Of this thread and of what it starts; on other systems, it would be that of the whole process.
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
        while (start := self._starts.get()) is not None:  # None is put by `end_thread`
            try:
                if not self._finishing.is_set():
                    with interruption.blocking_sighup():  # also for the processes that it starts
                        start()
            except Exception as error:  # whatever fails, no trial needs it
                if not self._finishing.is_set():
                    self._say(f"Ray runs without its dashboard or monitor: {first_line(error)}")
            finally:
                self._starts.task_done()

    def finish(self) -> None:
        """Wait for the added function that runs now, and do not call the others.

        The function that runs ends soon, because Ray's time limit for the dashboard is set to 0 for the whole process;
        its error is not reported.
        """
        self._finishing.set()
        # Ray reads it repeatedly while it waits for the dashboard
        self._ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = 0
        self._starts.join()  # until `run` has called or skipped all

    def end_thread(self) -> None:
        """Make `run` return after the functions that were added so far."""
        self._starts.put(None)
