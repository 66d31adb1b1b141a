"""How much memory this process has for itself, and how much a worker may have before it is replaced."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from sweep.store import provenance

BOUND = 0.8
"""Of a machine's memory, shared by the workers that run on it at once: one that has more trains no further trial."""

_STATM = Path("/proc/self/statm")
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def used() -> int:
    """Bytes of this process alone that are in memory now, without files and what it shares with others.

    Where the system does not tell, the most that there ever were, of all kinds.
    """
    if _STATM.exists():
        resident, shared = map(int, _STATM.read_text().split()[1:3])
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def part(workers: int) -> int:
    """Bytes that one of so many workers on this machine may have."""
    return int(BOUND * _total() / workers)


def _total() -> int:
    limits = [path.read_text().strip() for path in _CGROUPS if path.exists()]
    return min([provenance.memory_bytes() or sys.maxsize, *(int(limit) for limit in limits if limit.isdigit())])
