"""How much memory this process has, and how much a worker may have before it is replaced."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from sweep.store import provenance

BOUND = 0.8
"""Of the machine's memory, shared out by CPUs: a worker that has grown past its part trains no further trial."""

_STATM, _CGROUP = Path("/proc/self/statm"), Path("/sys/fs/cgroup/memory.max")


def used() -> int:
    """Bytes of this process that are in memory now; where the system does not tell, the most there ever were."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bound(cpus: float) -> int:
    """Bytes that a worker with so many CPUs may have."""
    return int(BOUND * _total() * min(cpus / provenance.cpus(), 1.0))


def _total() -> int:
    machine = provenance.memory_bytes() or sys.maxsize
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    return min(machine, int(limit)) if limit.isdigit() else machine
