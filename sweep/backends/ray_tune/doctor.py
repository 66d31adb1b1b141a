"""Checks a cluster for `doctor`: ``python -m sweep.backends.ray_tune.doctor HOST:PORT [SECONDS]`` prints JSON.

Reports its resources or, with SECONDS, whether processes on two nodes can compute a sum together, as the workers of a
trial do, for pairs of neighbours in the list of nodes. It runs in a process of its own because Ray tries for five
minutes to reach an address where nothing answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweep.backends.ray_tune import nodes
from sweep.errors import last_line

PROBE = "trainables.doctor.device_probe"
MOST = 8  # pairs
START_S = 60.0  # for Ray to start a process on a node


class ProbeRank:
    """Reserves a port on its node and runs TensorFlow there in a process of its own, which may abort or hang."""

    def reserve_port(self) -> str:
        """Reserve a port on this node, as long as this object exists; return its address as ``host:port``."""
        # the attribute keeps the socket open, and so the port reserved
        self._held, address = nodes.hold_port()
        return address

    def run_probe(
        self, addresses: str, rank: int, gpus: int, timeout_s: float
    ) -> tuple[int | None, str, str]:
        """Run the probe, which computes a sum with the other rank, in a process of at most ``timeout_s`` seconds.

        ``addresses`` are those of both ranks, separated by a comma, and ``rank`` is 0 or 1. Without ``gpus``, GPUs are
        hidden. Returns the exit code of the process, None after a timeout, and its standard output and errors.
        """
        command = [sys.executable, "-m", PROBE, "meet", addresses, str(rank)]
        # 2: of TensorFlow's log, only errors
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        if gpus:
            command.append("--gpu")
        else:
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        try:
            ran = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as late:
            return None, _decode(late.stdout), _decode(late.stderr)
        return ran.returncode, ran.stdout, ran.stderr


def try_sum_on_nodes(
    first: nodes.Node, second: nodes.Node, timeout_s: float
) -> list[tuple[int | None, str, str]]:
    """Let processes on two nodes compute a sum together; return the result of `ProbeRank.run_probe` on each, in order.

    Each process uses a GPU if both nodes have one. If Ray cannot run them, or they have not started after `START_S`
    seconds, both results have the exit code 1, no output and a line that says why as standard error. ``timeout_s`` is
    for the processes themselves. Waits until they have ended, and raises nothing.
    """
    gpus = int(first.gpus >= 1 and second.gpus >= 1)
    ranks = [
        ray.remote(ProbeRank)
        .options(
            num_cpus=0,
            num_gpus=gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        .remote()
        for node in (first, second)
    ]
    try:
        ports = [rank.reserve_port.remote() for rank in ranks]
        try:
            addresses: Sequence[str] = ray.get(ports, timeout=START_S)
        except GetTimeoutError:
            return [(1, "", _describe_late_start(gpus))] * 2
        calls = [
            rank.run_probe.remote(",".join(addresses), i, gpus, timeout_s)
            for i, rank in enumerate(ranks)
        ]
        # Longer than a probe may take, so that its own timeout comes first and its output is not lost.
        found: list[tuple[int | None, str, str]] = ray.get(calls, timeout=timeout_s + START_S)
        return found
    # whatever keeps Ray from running this would also keep it from running a trial
    except Exception as error:
        return [(1, "", last_line(error))] * 2
    finally:
        for rank in ranks:
            with suppress(Exception):  # it is already gone
                ray.kill(rank)


def _describe_late_start(gpus: int) -> str:
    """Return a message that processes with ``gpus`` GPUs each have not started in time, with a possible reason."""
    message = f"no process has started within {START_S:g} s"
    if gpus:
        message += "; perhaps all GPUs of its node are in use"
    return message


def get_resources() -> dict[str, float]:
    """Return the total numbers of CPUs and GPUs of the connected cluster, under the keys ``cpus`` and ``gpus``."""
    there = ray.cluster_resources()
    return {"cpus": there.get("CPU", 0.0), "gpus": there.get("GPU", 0.0)}


def measure_node_pairs(timeout_s: float) -> dict[str, Any]:
    """Let pairs of neighbouring nodes compute a sum, the first eight at most; return the results as JSON types.

    The key ``nodes`` has the number of nodes, of which those with less than one CPU are left out. ``pairs`` lists for
    each pair the two addresses under ``nodes``, and the results of `try_sum_on_nodes` under ``ran``.
    """
    # without head nodes that have no CPUs, for instance
    there = [node for node in nodes.list_alive_nodes() if node.cpus >= 1]
    pairs: list[dict[str, Any]] = [
        {"nodes": [one.address, other.address], "ran": try_sum_on_nodes(one, other, timeout_s)}
        for one, other in list(pairwise(there))[:MOST]
    ]
    return {"nodes": len(there), "pairs": pairs}


def _decode(output: str | bytes | None) -> str:
    """Return the output of a process as text: of bytes, which are UTF-8, after a timeout, and ``""`` for None."""
    if isinstance(output, str):
        return output
    return (output or b"").decode()


def main(address: str, *timeout_s: str) -> None:
    """Join the cluster at ``address``, print its resources as JSON, and leave.

    With one ``timeout_s``, in seconds, print the results of `measure_node_pairs` instead. Raises what `ray.init` raises
    if there is no cluster.
    """
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    found = measure_node_pairs(*map(float, timeout_s)) if timeout_s else get_resources()
    ray.shutdown()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
