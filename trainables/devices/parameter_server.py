"""A trial's processes under TensorFlow's parameter servers: rank 0 coordinates, the others train or keep weights.

Workers and servers run what the coordinator sends, and know nothing of the trial.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from sweep.contract import Ranks
from trainables import tensorflow_private
from trainables.devices.replicas import Replicas

PARAMETER_SERVER = "parameter_server"
_serving: list[Any] = []  # references, because a server ends when its object is deleted
_coordinated: list[Ranks] = []  # the ranks that this process coordinates; it can connect only once


def connect_to_servers(ranks: Ranks) -> tf.distribute.Strategy:
    """Connect to all workers and servers as rank 0, and return a strategy whose variables are on the servers.

    Waits for processes that are still starting. A process can connect only once, which is not checked here. Sets
    environment variables of TensorFlow's servers, and keeps ``ranks`` for the other functions of this module.
    """
    tensorflow_private.share_ports()  # the ranks already hold their ports
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # wait for processes that are still starting
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        _describe_cluster(ranks), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    _coordinated.append(ranks)
    return strategy


def create_coordinator(replicas: Replicas) -> Any:
    """Return TensorFlow's coordinator, which sends steps to the workers.

    TensorFlow creates one coordinator per strategy, so further calls return the same one.
    """
    return tf.distribute.coordinator.ClusterCoordinator(replicas.strategy)


def serve(ranks: Ranks, *, cpus: float, gpus: int) -> None:
    """Start this rank's TensorFlow server and return; the server runs until the process ends.

    Ranks from 1 to ``ranks.workers`` are workers, those above are parameter servers. ``cpus`` limits its threads: it is
    rounded down, but at least 1. ``gpus`` is how many GPUs it may use. Sets environment variables of TensorFlow's
    servers.
    """
    tensorflow_private.share_ports()
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # as in `connect_to_servers`
    threads = max(1, int(cpus))
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=max(threads, 2)
    )
    config.device_count["GPU"] = gpus
    config.gpu_options.allow_growth = True
    if ranks.rank <= ranks.workers:
        job, index = "worker", ranks.rank - 1
    else:
        job, index = "ps", ranks.rank - 1 - ranks.workers
    server = tf.distribute.Server(
        _describe_cluster(ranks),
        job_name=job,
        task_index=index,
        protocol="grpc",
        config=config,
        start=True,
    )
    _serving.append(server)


def free_server_weights() -> None:
    """Free the last trial's weights on the servers, if nothing refers to them any more, before a new trial.

    Collects garbage; does nothing if there are no servers.
    """
    if _coordinated:
        gc.collect()  # Keras's models contain reference cycles


def list_server_devices() -> tuple[str, ...]:
    """Return the names of the CPU devices of all parameter servers that this process coordinates.

    The tuple is empty if it coordinates none.
    """
    return tuple(
        f"/job:ps/replica:0/task:{i}/device:CPU:0"
        for ranks in _coordinated
        for i in range(ranks.servers)
    )


def create_variable_on_device(
    device: str, make: Callable[[], Any], *, trainable: bool, name: str | None = None
) -> Any:
    """Create a variable on ``device`` and return it; its initial value, the result of ``make()``, is computed there.

    Under a strategy, TensorFlow would choose the device.
    """
    with tf.device(device):
        return tensorflow_private.ResourceVariable(make(), trainable=trainable, name=name)


def count_workers() -> int:
    """Return the number of worker processes that this process coordinates; 0 if it is not a coordinator."""
    return sum(ranks.workers for ranks in _coordinated)


def _describe_cluster(ranks: Ranks) -> tf.train.ClusterSpec:
    """Return the addresses of ``ranks`` by their job for TensorFlow: rank 0 is the chief, servers come last."""
    coordinator = ranks.addresses[0]
    others = ranks.addresses[1:]
    return tf.train.ClusterSpec(
        {
            "chief": [coordinator],
            "worker": list(others[: ranks.workers]),
            "ps": list(others[ranks.workers :]),
        }
    )
