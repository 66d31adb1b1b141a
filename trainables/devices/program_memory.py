"""How much memory a worker may fill with programs that it keeps between trials, and how much it has filled."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from sweep.contract import Devices
from trainables.devices import nvml
from trainables.devices.placement import Placement

KEPT_ON_HOST, KEPT_ON_GPU = 0.25, 0.4
"""Of a trial's part of a machine's memory, by its CPUs, and of its GPUs: the rest is for data and activations."""

_STATM, _CGROUP = Path("/proc/self/statm"), Path("/sys/fs/cgroup/memory.max")


def used(placement: Placement) -> dict[str, float]:
    """Bytes in use now: by this process on the host, and by TensorFlow on each GPU."""
    gpus = placement.devices if placement.on_gpu else ()
    return {"host": _host_used(), **{gpu: _on_gpu(gpu) for gpu in gpus}}


def most(placement: Placement, devices: Devices) -> dict[str, float]:
    """Bytes that programs may have together, in each of these places as far as its size is known."""
    part = min(devices.cpus / (os.cpu_count() or 1), 1.0)
    found = {"host": KEPT_ON_HOST * part * _host_total()}
    if placement.on_gpu:
        readers = nvml.readers()
        for gpu, reader in zip(placement.devices, readers, strict=len(readers) == len(placement.devices)):
            total = reader.memory_bytes()
            if total:
                found[gpu] = KEPT_ON_GPU * min(devices.gpus, 1.0) * total
    return found


def share(before: Mapping[str, float], after: Mapping[str, float], bounds: Mapping[str, float]) -> float:
    """The part of the room that went from one moment to another: where least is left, as a share of 1."""
    return max((after[place] - before[place]) / bound for place, bound in bounds.items())


def _on_gpu(name: str) -> float:
    return float(tf.config.experimental.get_memory_info(name.upper())["current"])


def _host_used() -> float:
    if _STATM.exists():
        resident, shared = map(int, _STATM.read_text().split()[1:3])
        return float((resident - shared) * os.sysconf("SC_PAGE_SIZE"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def _host_total() -> float:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else ""
    return float(min(total, int(limit)) if limit.isdigit() else total)
