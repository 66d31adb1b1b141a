"""The machines of a cluster: what fits on each, and tasks that run on all of them."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweep import backends
from sweep.backends import Job
from sweep.backends.ray_tune import ray_private_api
from sweep.contract import Devices
from sweep.errors import Problem, last_line, refuse
from sweep.store.object_store import repeat

PATIENCE_S = 60.0  # for all nodes to answer, some of which must start a process first
DRAINING_S = 1.0  # between checks for machines that are about to be taken away
AT_FIRST = 8  # trials requested at first, if an autoscaler does not say which machines it can add
UNBOUNDED = 1000  # machines, or CPUs of one, assumed if an autoscaler has no limit


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster, with the resources that it offers to Ray."""

    cpus: float
    gpus: float
    id: str = ""
    address: str = ""
    is_known: bool = True  # false: an autoscaler may add it, without saying what it has

    def fits(self, devices: Devices) -> int:
        """Return how many processes with ``devices`` fit on the machine at once; 8 if its resources are unknown.

        Raises ValueError if the resources are known and ``devices`` are neither CPUs nor GPUs.
        """
        if not self.is_known:
            return AT_FIRST
        return devices.fits(self.cpus, self.gpus)


def list_alive_nodes() -> tuple[Node, ...]:
    """Return the machines of the connected cluster that are alive and will not be taken away soon.

    Those without CPUs or GPUs for trials are among them.
    """
    leaving = find_draining_nodes()
    found = (node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in leaving)
    return tuple(
        Node(
            node["Resources"].get("CPU", 0.0),
            node["Resources"].get("GPU", 0.0),
            node["NodeID"],
            node["NodeName"],
        )
        for node in found
    )


def find_draining_nodes() -> Mapping[str, int]:
    """Return the machines that will be taken away soon, by id, with the time of that in ms since 1970 (0 if unknown).

    The mapping is empty if this Ray lacks the private name for it.
    """
    if ray_private_api.list_missing(ray_private_api.DRAINING):
        return {}
    found: Mapping[str, int] = ray_private_api.import_private(
        "ray._private.state"
    ).state.get_draining_nodes()
    return found


class DrainWatcher:
    """Checks every second, in a thread, whether the machine of this worker will be taken away soon."""

    def __init__(self) -> None:
        group = ray.util.get_current_placement_group()
        # ids of all machines of the trial
        self._own_nodes = set(ray.util.placement_group_table(group)["bundles_to_node_id"].values())
        self._reason: str | None = None  # why they must be left
        self.close = repeat(self._look, DRAINING_S, "nodes that are taken away")

    def __call__(self) -> str | None:
        """Return in words why trials must leave this machine, with the seconds left if known; None if they can stay.

        Any machine of the trial counts. The answer is that of the last check that has found one which is taken away;
        it remains, even if the machine stays after all.
        """
        return self._reason

    def _look(self) -> None:
        """Store why the trial's machines must be left, if Ray says that one of them will be taken away.

        Otherwise, what is stored remains. Errors of Ray are ignored.
        """
        # the head node is away for a moment; the next attempt may succeed
        with suppress(Exception):
            ends_ms = []  # when they are taken away, in ms since 1970
            for node, end_ms in find_draining_nodes().items():
                if node in self._own_nodes:
                    ends_ms.append(end_ms)
            if not ends_ms:
                return
            when = ""
            if all(ends_ms):  # otherwise the time of one machine is not known (0)
                when = f" in {max(min(ends_ms) / 1000 - time.time(), 0):.0f} s"
            self._reason = f"its node is taken away{when}"


def list_promised_nodes() -> tuple[tuple[Node, int], ...]:
    """Return the kinds of machines that an autoscaler can add, each as (machine, largest number of such machines).

    The number is 1000 if there is no limit. The tuple is empty if there is no autoscaler or this Ray does not tell.
    Ray's own autoscaler does not say what its machines have: a single kind without resources stands for them, whose
    `Node.is_known` is False.
    """
    if ray_private_api.list_missing(ray_private_api.PROMISES):  # then only present machines count
        return ()
    config = ray_private_api.import_private("ray._private.state").state.get_cluster_config()
    groups = getattr(config, "node_group_configs", ())
    # Ray's own autoscaler describes no groups of machines
    if not groups and not ray_private_api.list_missing(ray_private_api.AUTOSCALES):
        grows = ray_private_api.import_private("ray.autoscaler.v2.utils").is_autoscaler_v2()
        return ((Node(0, 0, is_known=False), UNBOUNDED),) if grows else ()
    machines = []
    for group in groups:
        cpus, gpus = (_read_amount(group.resources, name) for name in ("CPU", "GPU"))
        node = Node(cpus, gpus)
        # Ray has a negative number for no limit
        count = UNBOUNDED if group.max_count < 0 else group.max_count
        machines.append((node, count))
    return tuple(machines)


def _read_amount(resources: Mapping[str, float], name: str) -> float:
    """Return how much of the resource ``name`` a kind of machine has; 0 if it is not named, 1000 if it has no limit.

    Ray has a negative number for no limit.
    """
    amount = resources.get(name, 0)
    return UNBOUNDED if amount < 0 else amount


@contextmanager
def share_results_folder(job: Job, devices: Devices) -> Iterator[None]:
    """Check that all machines with room for ``devices`` see a job's results folder; delete shared data afterwards.

    If the results are in an object store, the folder is not checked. Data that the workers of killed sessions have
    shared are deleted on these machines before the block. Those of this session, with its local copies of results, are
    deleted on all machines after it, where errors are ignored. Each time, machines have 60 s to answer.

    Raises:
        InputError: naming each machine that does not see the folder, cannot write to it, or does not answer.
        OSError: if this machine cannot write to the folder.
        ValueError: if ``devices`` are neither CPUs nor GPUs.
    """
    used = tuple(node for node in list_alive_nodes() if node.fits(devices))
    if job.store is None:
        _require_shared(job.results_folder.resolve(), used)
    # left over by a killed session
    _call_on_nodes(
        used, backends.remove_shared_data, backends.shared_data_prefix(job.results_folder)
    )
    try:
        yield
    finally:
        with suppress(Exception):  # a lost cluster has nothing left to clean
            # Only the names of this session, not all with the prefix: another session may have begun elsewhere.
            for name in filter(None, [job.shared, job.stand_in]):
                _call_on_nodes(list_alive_nodes(), backends.remove_shared_data, name)


def _require_shared(folder: Path, nodes: Iterable[Node]) -> None:
    """Raise an `InputError` that names each of ``nodes`` that cannot use the results folder ``folder``, unless all can.

    They must read a file that is written here, and write one that is found here, within 60 s. These files are deleted
    again. Raises OSError if this machine cannot write to the folder.
    """
    text = secrets.token_hex(16)
    probe = folder / f".probe-{text}"
    probe.write_text(text)
    try:
        answers = _call_on_nodes(nodes, _probe_folder, str(probe), text)
        problems = []
        hint = "share the results folder, or keep results in an object store: --results s3://bucket/prefix"
        for node, answer in answers:
            reply = probe.with_name(f"{probe.name}-{node.id}")  # what `_probe_folder` has created
            # It has read the file and written its own, which does not arrive here, as on an overlay file system.
            if answer is None and not reply.exists():
                answer = "writes into another folder of that name"
            reply.unlink(missing_ok=True)
            if answer is not None:
                problems.append(Problem(f"--address: node {node.address}", answer, hint))
    finally:
        probe.unlink(missing_ok=True)
    refuse(problems)


def _probe_folder(probe: str, text: str, node: str) -> str | None:
    """Return why this machine cannot use the results folder; None if it can.

    Checks that the file at the path ``probe`` contains ``text``, and creates an empty file beside it, named with the id
    ``node``.
    """
    path = Path(probe)
    try:
        if path.read_text() != text:
            return f"has another {path.parent}"
        path.with_name(f"{path.name}-{node}").touch()
    except FileNotFoundError:
        return f"does not see {path.parent} as it is here"
    except OSError as error:
        return f"cannot write to {path.parent}: {error.strerror}"
    return None


def _call_on_nodes(
    nodes: Iterable[Node], function: Callable[..., Any], *arguments: str
) -> list[tuple[Node, Any]]:
    """Call a function on each machine; return each machine with the function's result or, as a text, why it has none.

    The function gets ``arguments``; `_probe_folder` also gets the machine's id after them. Waits for 60 s at most for
    all machines together.
    """
    calls = [(node, _call_on_node(node, function, arguments)) for node in nodes]
    if calls:
        ray.wait([call for _, call in calls], num_returns=len(calls), timeout=PATIENCE_S)
    return [(node, _get_result(call)) for node, call in calls]


def _call_on_node(node: Node, function: Callable[..., Any], arguments: tuple[str, ...]) -> Any:
    """Call a function with ``arguments`` on a machine without waiting for it; return Ray's reference to the result.

    `_probe_folder` also gets the machine's id.
    """
    task = ray.remote(function).options(
        num_cpus=0,
        max_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    )
    return (
        task.remote(*arguments, node.id) if function is _probe_folder else task.remote(*arguments)
    )


def _get_result(call: Any) -> Any:
    """Return the result of a remote call without waiting for it; if it has failed or not ended, say that in a text."""
    try:
        return ray.get(call, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"does not answer within {PATIENCE_S:g} s"
    # whatever keeps it from running a function would also keep it from running a trial
    except Exception as error:
        return last_line(error)


def hold_port(before: str = "") -> tuple[socket.socket, str]:
    """Reserve a port of this node; return (the socket that holds it, the address as ``host:port``).

    The port is held until the socket is closed, but a server of this user may listen on it meanwhile. ``before`` is the
    address to reserve, ``""`` for any free port. Raises OSError if that address is not available or belongs to another
    node.
    """
    host = ray.util.get_node_ip_address()
    old_host, _, old_port = before.rpartition(":")
    if before and old_host.strip("[]") != host:  # an IPv6 address is written in brackets
        raise OSError(f"its bundle has moved from {old_host} to {host}")
    is_v6 = ":" in host
    held = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # a server may use the port, too
    held.bind((host, int(old_port or 0)))  # 0: any free port
    port = held.getsockname()[1]
    return held, f"[{host}]:{port}" if is_v6 else f"{host}:{port}"


def prepare_process(devices: Devices) -> None:
    """Prepare this process for training: let SIGTERM end it, and hide all GPUs from TensorFlow if the trial has none.

    The GPUs are hidden by setting ``CUDA_VISIBLE_DEVICES`` to -1. Signals can only be set in the main thread;
    elsewhere, SIGTERM stays as it is.
    """
    with suppress(ValueError):  # not in the main thread
        # Ray's handler would raise SystemExit in the trial's code, which would look like its failure.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if not devices.real_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # before TensorFlow looks
