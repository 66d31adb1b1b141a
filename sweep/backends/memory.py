"""Measures the memory of a worker's process, limits it, and recognizes errors that mean that memory ran out."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from sweep.backends.checkpoints import is_disk_fault
from sweep.contract import OutOfMemory, Trainable, can_split, memory_bytes
from sweep.events import Params

BOUND = 0.8
"""Share of a machine's memory for all its workers together; one that exceeds its part trains no further trial."""

_NAMES = frozenset({"ResourceExhaustedError", "OutOfMemoryError"})
"""Names of TensorFlow's and PyTorch's errors, since this package imports neither."""

_STATM = Path("/proc/self/statm")


def measure_memory() -> int:
    """Return the bytes of memory that this process alone uses, without files and memory shared with others.

    On systems without /proc, return its peak memory of all kinds.
    """
    if _STATM.exists():
        # the second and third number are pages of memory
        resident, shared = map(int, _STATM.read_text().split()[1:3])
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    return peak * 1024  # other systems count in KiB, macOS in bytes


def divide_memory(workers: int) -> int:
    """Return the bytes of memory that each of ``workers`` worker processes, at least 1, on this machine may use.

    Together they may use 0.8 of the machine's memory, or of its container's limit. If neither is known, the result is
    so large that it limits nothing.
    """
    return int(BOUND * (memory_bytes() or sys.maxsize) / workers)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, by its type, says that memory of a device or the machine ran out; disks do not count.

    It does if it is an `OutOfMemory` or a MemoryError, or if its class has one of the names in `_NAMES`.
    """
    if is_disk_fault(error):  # TensorFlow raises ResourceExhaustedError for a full disk, too
        return False
    return isinstance(error, OutOfMemory | MemoryError) or type(error).__name__ in _NAMES


DEFAULT_BATCH = 32
"""Batch size of a trial that has no parameter for it: the default of the standard hyperparameters."""


def compute_batch_size(params: Params, replicas: int) -> int | None:
    """Return the batch size of a trial over all its ``replicas``, by its parameters; None if it is not a whole number.

    It is ``per_replica_batch_size`` times ``replicas`` if the trial has that parameter, else ``batch_size``, else 32.
    """
    if "per_replica_batch_size" in params:
        size = params["per_replica_batch_size"]
        batches = replicas
    else:
        size = params.get("batch_size", DEFAULT_BATCH)
        batches = 1  # all replicas divide it among themselves
    # the author's own parameter of this name may be a text, for instance
    if not isinstance(size, int):
        return None
    return size * batches


def choose_micro_batches(
    trainable: Trainable | None, batch: int | None, accumulate: int
) -> int | None:
    """Return the number of micro-batches to try after a trial ran out of memory with ``accumulate``: twice as many.

    ``batch`` is the batch size in examples, None if unknown. None is returned if the trainable cannot split batches, if
    ``batch`` is None, or if a micro-batch would have less than one example. A ``trainable`` of None counts as one that
    can split.
    """
    if can_split(trainable) and batch is not None and 2 * accumulate <= batch:
        return 2 * accumulate
    return None
