"""How much memory this process has for itself, how much a worker may have, and whether an error says it is short."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from sweep.backends.checkpoints import is_disk_fault
from sweep.contract import OutOfMemory, Trainable, memory_bytes
from sweep.events import Params
from sweep.functions import FunctionTrainable

BOUND = 0.8
"""Of a machine's memory, shared by the workers that run on it at once: one that has more trains no further trial."""

_NAMES = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})
"""TensorFlow's and torch's own types, which are named, not imported: this package knows neither."""

_STATM = Path("/proc/self/statm")


def used() -> int:
    """Return bytes of this process alone that are in memory now, without files and what it shares with others.

    Where the system does not tell, the most that there ever were, of all kinds.
    """
    if _STATM.exists():
        resident, shared = map(int, _STATM.read_text().split()[1:3])
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def part(workers: int) -> int:
    """Return bytes that one of so many workers on this machine may have."""
    return int(BOUND * (memory_bytes() or sys.maxsize) / workers)


def is_short(error: BaseException) -> bool:
    """Return whether an error says that a device or the machine has no more memory."""
    if is_disk_fault(error):
        return False
    return isinstance(error, OutOfMemory | MemoryError) or type(error).__name__ in _NAMES


DEFAULT_BATCH = 32
"""Examples of a batch where a trial does not say: that of the standard hyperparameters."""


def batch_size(params: Params, replicas: int) -> int | None:
    """Return the examples of a trial's batch, over all its replicas; None where what it says is no number of them."""
    whole = "per_replica_batch_size" not in params
    size = params.get("batch_size", DEFAULT_BATCH) if whole else params["per_replica_batch_size"]
    return size * (1 if whole else replicas) if isinstance(size, int) else None


def parts(trainable: Trainable | None, batch: int | None, accumulate: int) -> int | None:
    """Into how many parts the batches of a trial that does not fit are cut next; None where they are small enough."""
    splits = not isinstance(trainable, FunctionTrainable) or trainable.splits
    return 2 * accumulate if splits and batch is not None and 2 * accumulate <= batch else None
