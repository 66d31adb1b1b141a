"""What processes of `rank_processes` do to notice one another."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from rank_processes import Here

from trainables.devices import replicas
from trainables.devices.placement import choose_placement, leave_ranks
from trainables.devices.replicas import Replicas


def meet(here: Here) -> tuple[str, int, int]:
    """The kind of strategy, the replicas of all, and those of this process."""
    placement = choose_placement(here.devices, {})
    return placement.name, placement.replicas.number, len(placement.replicas.devices)


def sums(here: Here) -> list[float]:
    """The sum of all replicas' ids, as each replica of this process sees it."""
    given = choose_placement(here.devices, {}).replicas
    return [float(value) for value in given.of_each(_summing(given)())]


def threads_of_sums(here: Here, times: int) -> int:
    """How many threads this process has more after so many sums."""
    summing = _summing(choose_placement(here.devices, {}).replicas)
    summing()
    before = len(list(Path("/proc/self/task").iterdir()))
    for _ in range(times):
        summing()
    return len(list(Path("/proc/self/task").iterdir())) - before


def _summing(given: Replicas) -> Any:
    def on_each() -> Any:
        return replicas.sum_over_replicas([tf.cast(replicas.get_replica_index()[1], tf.float32)])[0]

    return tf.function(lambda: given.run(on_each), autograph=False)


def sum_without(here: Here, rank: int, leaves: str = "", after_s: float = 1.0) -> tuple[str, float]:
    """Take part in sums but on one rank, which only waits; ``leaves``: "it" or "they" leave after a while.

    The error that ends it, and seconds until then.
    """
    mine = here.devices.ranks is not None and here.devices.ranks.rank == rank
    if leaves and mine == (leaves == "it"):
        threading.Timer(after_s, leave_ranks, ("enough of it",)).start()
    began = time.monotonic()
    if mine:
        time.sleep(after_s + 1)
        return "", time.monotonic() - began
    try:
        sums(here)
    except tf.errors.OpError as error:
        return str(error), time.monotonic() - began
    return "a sum", time.monotonic() - began
