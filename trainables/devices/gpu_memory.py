"""The memory of a trial's GPU: how much there is, which part of it the trial may have, and how much it had at most.

Logical CPU devices that stand in for GPUs have some as well, so that sharing can be rehearsed: what the process took
since it was bound to them counts, and a trial that takes more than its share is out of memory as it would be there.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import tensorflow as tf

from sweep.contract import Devices, OutOfMemory
from trainables.devices import nvml

SIMULATED_GB = "SWEEP_SIMULATED_GPU_GB"
"""The environment variable that says how much a GPU has that a CPU device stands in for; 8 unless set."""

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_began: list[float] = []  # bytes of this process when it was bound to simulated GPUs


def whole(devices: Devices) -> float | None:
    """Bytes of the first of the trial's GPUs, all of it; None where nobody tells."""
    if devices.simulated:
        return float(os.environ.get(SIMULATED_GB, "8")) * 1e9
    told = [total for reader in nvml.readers() if (total := reader.memory_bytes())]
    return min(told) if told else _by_program()


def limit(devices: Devices) -> float | None:
    """Bytes of a GPU that the trial may have; None: it has all of it."""
    total = whole(devices) if 0 < devices.gpus < 1 else None
    return None if total is None else devices.memory_bytes(total)


class Simulated:
    """How much a process took of simulated GPUs, as far as the system tells."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        if not _began:
            _began.append(_host("VmRSS"))

    def begin(self) -> None:
        """Forget the peak, where the system can."""
        try:
            _CLEAR.write_text("5")
        except OSError:
            return

    def end(self) -> float:
        """The peak since then; raises OutOfMemory where that is more than the trial may have."""
        peak, most = max(_host("VmHWM") - _began[0], 1.0), limit(self._devices)
        if most is not None and peak > most:
            raise OutOfMemory(
                f"{peak / 1e9:.2f} GB, and the share of the simulated GPU is {most / 1e9:.2f} GB ({SIMULATED_GB})"
            )
        return peak


def _host(name: str) -> float:
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(name)), 0.0)


def _by_program() -> float | None:
    """As nvidia-smi tells, which comes with the driver."""
    command = ["nvidia-smi", "--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
    return told(listed, [str(detail["pci_bus_id"]) for detail in details if "pci_bus_id" in detail])


def told(listed: str, addresses: list[str]) -> float | None:
    """The least memory of the GPUs at these addresses of the bus, of which nvidia-smi has longer ones."""
    found = []
    for line in listed.splitlines():
        address, _, mib = line.partition(",")
        known = any(address.strip().lower().endswith(own.lower()) for own in addresses)
        if known and mib.strip().isdecimal():
            found.append(int(mib) * 2.0**20)
    return min(found, default=None)
