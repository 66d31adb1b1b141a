"""One strategy over the devices of several processes: each sums up over all ranks what it computes.

TensorFlow joins other processes at its first operation or never, so a process has the ranks that it began with.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.distribute import collective_all_reduce_strategy as multi_worker
from tensorflow.python.distribute.cluster_resolver import SimpleClusterResolver
from tensorflow.python.eager import context

from sweep.contract import Ranks

_UNKNOWN, _UNAVAILABLE = 2, 14  # codes of TensorFlow's errors


def joined(ranks: Ranks, names: tuple[str, ...], cross_device: str) -> tf.distribute.Strategy:
    """Meet the other ranks and mirror over the devices of all; ``names`` are this process's own.

    Whoever calls it holds this rank's port until then.
    """
    os.environ["TF_GRPC_REUSE_PORT"] = "1"
    _serve_heartbeats(ranks)
    resolver = SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(ranks.addresses)}),
        task_type="worker",
        task_id=ranks.rank,
        rpc_layer="grpc",
    )
    kinds = tf.distribute.experimental.CommunicationImplementation
    wanted = {"nccl": kinds.NCCL, "ring": kinds.RING}.get(cross_device)
    # No timeout: for each sum, TensorFlow would keep a thread asleep until it is up, thousands after a while.
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=wanted or (kinds.NCCL if names[0].startswith("gpu") else kinds.RING)
    )
    return _Strategy(names, resolver, options)


def leave(reason: str) -> None:
    """End all sums of this process, and tell the other ranks why; from any thread."""
    here: Any = context.context()
    for tell, code in ((here.report_error_to_cluster, _UNKNOWN), (here.abort_collective_ops, _UNAVAILABLE)):
        with suppress(Exception):  # nothing was joined yet, or nobody is there any more: there is nothing to end
            tell(code, reason[:300])


class _Extended(multi_worker.CollectiveAllReduceExtended):
    def __init__(self, strategy: Any, names: tuple[str, ...], resolver: Any, options: Any) -> None:
        self._names = names
        super().__init__(strategy, cluster_resolver=resolver, communication_options=options)

    def _initialize_local_devices(self, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        """Theirs takes one CPU device of each process."""
        kind = self._names[0].partition(":")[0].upper()
        return tuple(f"{worker_device}/device:{name.upper()}" for name in self._names), kind


class _Strategy(tf.distribute.MultiWorkerMirroredStrategy):
    def __init__(self, names: tuple[str, ...], resolver: Any, options: Any) -> None:
        tf.distribute.Strategy.__init__(self, _Extended(self, names, resolver, options))  # theirs has its own Extended


def _serve_heartbeats(ranks: Ranks) -> None:
    """Let ranks hear of it when one of them is gone; rank 0 keeps the list."""
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=int(ranks.register_s * 1000),
        heartbeat_timeout_in_ms=int(ranks.heartbeat_s * 1000),
        shutdown_barrier_timeout_in_ms=0,
        coordinated_jobs=[coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=len(ranks.addresses))],
    )
