"""What processes of `rank_processes` do to notice one another."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from rank_processes import Here

from trainables.devices import ranks
from trainables.devices.placement import placed


def meet(here: Here) -> tuple[str, int, int]:
    """The kind of strategy, the replicas of all, and those of this process."""
    placement = placed(here.devices, {})
    strategy = placement.strategy
    return placement.name, strategy.num_replicas_in_sync, len(strategy.extended.worker_devices)


def sums(here: Here) -> list[float]:
    """The sum of all replicas' ids, as each replica of this process sees it."""
    strategy = placed(here.devices, {}).strategy
    return [float(value) for value in strategy.experimental_local_results(_summing(strategy)())]


def threads_of_sums(here: Here, times: int) -> int:
    """How many threads this process has more after so many sums."""
    summing = _summing(placed(here.devices, {}).strategy)
    summing()
    before = len(list(Path("/proc/self/task").iterdir()))
    for _ in range(times):
        summing()
    return len(list(Path("/proc/self/task").iterdir())) - before


def _summing(strategy: tf.distribute.Strategy) -> Any:
    def on_each() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(context.replica_id_in_sync_group, tf.float32))

    return tf.function(lambda: strategy.run(on_each), autograph=False)


def sum_without(here: Here, rank: int, leaves: str = "", after_s: float = 1.0) -> tuple[str, float]:
    """Take part in sums but on one rank, which only waits; ``leaves``: "it" or "they" leave after a while.

    The error that ends it, and seconds until then.
    """
    mine = here.devices.ranks is not None and here.devices.ranks.rank == rank
    if leaves and mine == (leaves == "it"):
        threading.Timer(after_s, ranks.leave, ("enough of it",)).start()
    began = time.monotonic()
    if mine:
        time.sleep(after_s + 1)
        return "", time.monotonic() - began
    try:
        sums(here)
    except tf.errors.OpError as error:
        return str(error), time.monotonic() - began
    return "a sum", time.monotonic() - began
