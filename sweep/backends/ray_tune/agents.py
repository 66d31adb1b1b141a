"""Lets the raylet of a local Ray start without waiting for its agents, two Python processes that no trial needs.

A raylet starts its agents and waits, for seconds, until each has written to a file of the session on which port it
listens. This module chooses and writes the ports before the raylet starts, so that it does not wait, and gives the
agents, which serve Ray's dashboard and its runtime environments, less processor time than workers.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sweep.backends.ray_tune import ray_private_api

PORTS = range(20_000, 30_000)
"""Ports below those that Linux gives to outgoing connections, and above those of Ray's own workers."""
NICENESS = 10  # of the agents, which must not slow down workers
WATCH_S = 20.0  # within which a raylet has started its agents
_FILES = {
    "metrics_agent_port": "METRICS_AGENT_PORT_NAME",
    "metrics_export_port": "METRICS_EXPORT_PORT_NAME",
    "dashboard_agent_listen_port": "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "runtime_env_agent_port": "RUNTIME_ENV_AGENT_PORT_NAME",
}
"""The parameter of each port, and the constant of Ray that names its file."""
_PROGRAMS = (
    b"dashboard/agent.py",
    b"runtime_env/agent/main.py",
    b"ray::DashboardAgent",
    b"ray::RuntimeEnvAgent",
)
"""How an argument of an agent's command line ends; the last two are the titles that they give themselves."""
PROC = Path("/proc")

reservations: list[socket.socket] = []  # of the Ray that this process has started last


@contextmanager
def starting_later(say: Callable[[str], None]) -> Iterator[None]:
    """Make raylets that this process starts inside the block not wait for their agents.

    The ports of the agents are reserved for this process, and those of an earlier Ray are released. A thread lowers the
    agents' priority once they have started. Does nothing on systems other than Linux. If this Ray lacks the private
    names that are needed, ``say`` gets a line that says so, and raylets wait. Starting a raylet raises OSError if no
    port is free.
    """
    if sys.platform != "linux" or not ray_private_api.is_usable(ray_private_api.AGENTS_LATER, say):
        yield
        return
    node_class: Any = ray_private_api.import_private("ray._private.node").Node
    ray_core: Any = ray_private_api.import_private("ray._raylet")
    original = node_class.start_raylet

    # takes the place of `original`, the method of Ray's `Node`
    def start_raylet(node: Any, *arguments: Any, **options: Any) -> None:
        parameters, node_id = vars(node)["_ray_params"], vars(node)["_node_id"]
        release_ports()
        for parameter, constant in _FILES.items():  # one port for each purpose
            port = reserve_port()
            setattr(parameters, parameter, port)
            ray_core.persist_port(
                node.get_session_dir_path(), node_id, getattr(ray_core, constant), port
            )
        # finds the files of the ports, and so does not wait for the agents
        original(node, *arguments, **options)
        raylet = node.all_processes["raylet"][0].process.pid
        threading.Thread(
            target=lower_priority, args=(raylet,), name="sweep-ray-agents", daemon=True
        ).start()

    node_class.start_raylet = start_raylet
    try:
        yield
    finally:
        node_class.start_raylet = original


def reserve_port() -> int:
    """Return a free TCP port of this machine from `PORTS`, and reserve it so that no other process of sweep gets it.

    The reservation is an abstract Unix socket, kept until `release_ports` or the end of this process, because an agent
    binds its port only seconds later. Raises OSError if no port is free.
    """
    for port in random.sample(PORTS, len(PORTS)):
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # first: it keeps off processes of sweep until the agent binds
            reservation.bind(f"\0sweep-port-{port}")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind(("", port))
        except OSError:
            reservation.close()
            continue
        reservations.append(reservation)
        return port
    raise OSError("no port is free")


def release_ports() -> None:
    """Release all ports that this process has reserved.

    Raylets that start inside `starting_later` call this before they reserve ports of their own; those that are released
    are then of a Ray that this process has started before.
    """
    while reservations:
        reservations.pop().close()


def lower_priority(raylet: int) -> None:
    """Wait up to 20 s until the raylet with this process id has started its two agents, and lower their priority.

    They then get less processor time than workers. Return after 20 s if they have not started, and raise nothing.
    """
    deadline = time.monotonic() + WATCH_S
    lowered: set[int] = set()
    while len(lowered) < 2 and time.monotonic() < deadline:
        for agent in list_agents(raylet):
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, agent, NICENESS)
                lowered.add(agent)
        time.sleep(0.05)


def list_agents(raylet: int) -> list[int]:
    """Return the process ids of the agents that the raylet with this process id has started; empty if it has ended."""
    found = []
    with suppress(OSError):  # the raylet has ended
        for child in (PROC / str(raylet) / "task" / str(raylet) / "children").read_text().split():
            with suppress(OSError):  # the child has ended
                arguments = (PROC / child / "cmdline").read_bytes().split(b"\0")
                if any(argument.endswith(_PROGRAMS) for argument in arguments):
                    found.append(int(child))
    return found
