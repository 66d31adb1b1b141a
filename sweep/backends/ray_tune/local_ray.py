"""Makes a local Ray start faster: by itself it starts its dashboard first, and waits for it and then for its agents."""

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

from sweep import contract
from sweep.backends.ray_tune import dashboard, ray_private_api
from sweep.contract import Devices
from sweep.errors import first_line

START_S = 120.0
"""Seconds that a Ray node may take to register; by itself Ray gives up after 30 s, however busy the machine."""
SPARE = 2
"""Largest number of processes, per concurrent trial, that import modules in advance; Ray starts one for each core."""
_NICENESS = 10  # what starts in the background must not slow down workers


@contextmanager
def importing_ahead(modules: Sequence[str], devices: Devices, most: int | None) -> Iterator[None]:
    """Make the processes that a local Ray starts in advance, inside the block, import what the trainable will import.

    This is left out if trials use GPUs or many cores each, because most of these processes would never get a trial.
    Libraries read their number of threads when they are imported, so it is set as Ray sets it for the worker of a
    trial.
    """
    cores = contract.cpus()
    at_once = 0 if devices.real_gpus else min(cores / max(devices.cpus, 1), most or cores)
    wanted = {"RAY_preload_python_modules": ",".join(modules), "OMP_NUM_THREADS": str(max(int(devices.cpus), 1))}
    given = {name: value for name, value in wanted.items() if name not in os.environ and cores <= SPARE * at_once}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


def own_machine(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Make a Ray started inside the block listen only on 127.0.0.1; it read its setting when it was imported."""
    return ray_private_api.replaced(ray_private_api.OWN_MACHINE, say, lambda theirs: False)


def patient(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Give a Ray node created inside the block `START_S` to start; Ray gives up after 30 s, however busy it is."""

    def get_node(theirs: Callable[..., Any], *which: Any) -> Any:
        until = time.monotonic() + START_S
        while True:
            try:
                return theirs(*which)
            except RuntimeError:  # it has not started yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    return ray_private_api.replaced(ray_private_api.PATIENT_START, say, lambda theirs: partial(get_node, theirs))


@contextmanager
def hastened(say: Callable[[str], None], meanwhile: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Make the head node of Ray, created inside the block, start what no trial needs in a background thread.

    Yields a function that ends the thread's work, finished or not, to be called before Ray is shut down. From the
    thread, ``say`` gets the address of the dashboard or what failed to start. ``meanwhile`` is called while the rest
    starts, or before that if this Ray cannot be changed in this way.
    """
    if not ray_private_api.usable(ray_private_api.FASTER_START, say):
        meanwhile()
        yield lambda: None
        return
    node_class: Any = ray_private_api.module("ray._private.node").Node
    ray_constants: Any = ray_private_api.module("ray._private.ray_constants")
    patience = ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S
    aside: Queue[Callable[[], None] | None] = Queue()
    ending = threading.Event()

    def start_monitor(node: Any) -> None:
        aside.put(lambda: here["start_monitor"](node))

    def start_api_server(node: Any, **how: Any) -> None:
        def start() -> None:
            here["start_api_server"](node, **how)
            say(dashboard.address_line(node.webui_url))

        aside.put(start)

    def start_log_monitor(node: Any) -> None:
        """Do nothing: the log monitor would send the workers' output to drivers that ask for it, and ours does not."""

    def start_ray_processes(node: Any) -> None:
        here["start_ray_processes"](node)
        meanwhile()

    def work() -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)  # of this thread and of what it starts
        while (start := aside.get()) is not None:
            try:
                start()
            except Exception as error:  # whatever fails, no trial needs it
                if not ending.is_set():
                    say(f"Ray runs without its dashboard or monitor: {first_line(error)}")
            finally:
                aside.task_done()

    def end() -> None:
        ending.set()
        ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = 0  # Ray reads it repeatedly while it waits for the dashboard
        aside.join()

    stand_ins = {
        stand_in.__name__: stand_in
        for stand_in in (start_monitor, start_api_server, start_log_monitor, start_ray_processes)
    }
    here = {name: getattr(node_class, name) for name in stand_ins}
    for name, stand_in in stand_ins.items():
        setattr(node_class, name, stand_in)
    threading.Thread(target=work, name="sweep-ray-start", daemon=True).start()
    try:
        yield end
    finally:
        for name, method in here.items():
            setattr(node_class, name, method)
        ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = patience
        aside.put(None)  # not earlier, because processes started by the thread die with it
