"""Starts a local Ray faster: by itself it starts its dashboard first, and waits for it and then for its agents."""

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
"""How long a node of Ray may take to be in its table; by itself Ray gives up after 30 s, however busy the machine."""
SPARE = 2
"""Ray starts a process ahead for each core: no more of them per trial at once are made to import what trials need."""
_NICENESS = 10  # what is started aside shall not take the cores from workers that start


@contextmanager
def importing_ahead(modules: Sequence[str], devices: Devices, most: int | None) -> Iterator[None]:
    """Let the processes that a local Ray, started in this block, starts ahead import what the trainable will.

    Not where trials take GPUs or many cores each, for then most of these processes would never get a trial. Libraries
    read how many threads they may start when they are imported: as many as Ray tells the worker of a trial later.
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
    """Let a Ray that is started in this block listen on 127.0.0.1 alone; it read its setting when it was imported."""
    return ray_private_api.replaced(ray_private_api.OWN_MACHINE, say, lambda theirs: False)


def patient(say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Let a node of Ray that is made in this block take its time: Ray gives up after 30 s, whatever else runs here."""

    def get_node(theirs: Callable[..., Any], *which: Any) -> Any:
        until = time.monotonic() + START_S
        while True:
            try:
                return theirs(*which)
            except RuntimeError:  # it has not come up yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    return ray_private_api.replaced(ray_private_api.PATIENT_START, say, lambda theirs: partial(get_node, theirs))


@contextmanager
def hastened(say: Callable[[str], None], meanwhile: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Let the head node of Ray that is made in this block start what no trial needs in another thread.

    Yields a function that ends that thread's starting, done or not: to be called before Ray is shut down.
    ``say`` is told, from that thread, where the dashboard is, or what did not start; ``meanwhile`` is called
    while the rest starts, or before where this Ray cannot be hastened.
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
        """It sends the workers' output to drivers that ask for it: ours does not."""

    def start_ray_processes(node: Any) -> None:
        here["start_ray_processes"](node)
        meanwhile()

    def work() -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)  # of this thread, and of what it starts
        while (start := aside.get()) is not None:
            try:
                start()
            except Exception as error:  # whatever it is, no trial needs it
                if not ending.is_set():
                    say(f"Ray runs without its dashboard or monitor: {first_line(error)}")
            finally:
                aside.task_done()

    def end() -> None:
        ending.set()
        ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = 0  # read again and again while Ray waits for the dashboard
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
        aside.put(None)  # not before the end: what it has started dies with the thread
