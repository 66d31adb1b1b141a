"""Memory of a trial's GPU: its total, the trial's limit, and the trial's peak.

Logical CPU devices that stand in for GPUs have a simulated memory, so that sharing can be tested without GPUs. It
counts what the process has allocated since it was bound to them, and a trial above its limit is out of memory, as on a
GPU.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import tensorflow as tf

from sweep.contract import Devices, OutOfMemory
from trainables.devices import nvml

SIMULATED_GB = "SWEEP_SIMULATED_GPU_GB"
"""Environment variable with the memory of each simulated GPU in GB; by default 8."""

MIG_ENABLED = "Enabled"
"""The MIG mode, in the output of nvidia-smi, of a GPU that is partitioned into instances."""

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
bytes_before: list[float] = []  # bytes that this process used when it was bound to simulated GPUs


def get_total_bytes(devices: Devices) -> float | None:
    """Return the memory of the smallest of the trial's GPUs in bytes; None if it is unknown.

    The GPUs are those that TensorFlow sees. NVIDIA's library is asked first, then nvidia-smi. For simulated GPUs the
    memory is read from the environment variable that `SIMULATED_GB` names, by default 8 GB.
    """
    if devices.simulated:
        return float(os.environ.get(SIMULATED_GB, "8")) * 1e9
    known = []
    for reader in nvml.create_readers():
        total = reader.memory_bytes()
        if total:
            known.append(total)
    return min(known) if known else _read_smallest_memory()


def get_limit_bytes(devices: Devices) -> float | None:
    """Return how many bytes of a GPU's memory the trial may use: its share, without what CUDA itself needs.

    The result is negative if the share is too small for that. Returns None if the trial has no GPU or whole GPUs, or if
    the GPU's memory is unknown.
    """
    if not 0 < devices.gpus < 1:
        return None
    total = get_total_bytes(devices)
    if total is None:
        return None
    return devices.memory_bytes(total)


class SimulatedMemory:
    """Measures the memory of this process as that of a simulated GPU.

    The memory that the process used when it created its first `SimulatedMemory` is subtracted.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        if not bytes_before:
            bytes_before.append(_read_process_bytes("VmRSS"))

    def begin(self) -> None:
        """Reset the process's peak in the Linux kernel; do nothing if the system does not support it."""
        try:
            _CLEAR.write_text("5")  # sets the peak, VmHWM, to the present memory
        except OSError:
            return

    def end(self) -> float:
        """Return the peak in bytes since `begin`, at least 1, without what the process used before it had the GPUs.

        If the system cannot reset the peak, it is that since the process started.
        Raises: OutOfMemory: if the peak is above the trial's limit.
        """
        peak = max(_read_process_bytes("VmHWM") - bytes_before[0], 1.0)
        limit = get_limit_bytes(self._devices)
        if limit is not None and peak > limit:
            raise OutOfMemory(
                f"{peak / 1e9:.2f} GB, and the share of the simulated GPU is {limit / 1e9:.2f} GB ({SIMULATED_GB})"
            )
        return peak


def _read_process_bytes(name: str) -> float:
    """Return a size of this process from /proc, such as "VmRSS", in bytes; 0 if the system does not report it."""
    if _STATUS.exists():
        lines = _STATUS.read_text().splitlines()
    else:
        lines = []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(name)), 0.0)


def explain_unknown_memory() -> str:
    """Return what must be installed so that the memory of the trial's GPU is known, as a phrase for messages.

    This runs nvidia-smi unless the process uses a MIG instance.
    """
    if _is_mig_instance_visible() or MIG_ENABLED in _query_nvidia_smi():
        return (
            "expected nvidia-ml-py (the extra gpu), which alone reads the memory of a MIG instance"
        )
    return "expected nvidia-smi in the path or nvidia-ml-py (the extra gpu)"


def _is_mig_instance_visible() -> bool:
    """Return whether ``CUDA_VISIBLE_DEVICES`` names a MIG instance, a part of a GPU."""
    return "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _read_smallest_memory() -> float | None:
    """Return the smallest total memory, in bytes, of the GPUs that TensorFlow uses, as listed by nvidia-smi.

    Returns None if nvidia-smi fails or lists none of these GPUs, and if the process uses a MIG instance or one of the
    GPUs is partitioned into such.
    """
    if _is_mig_instance_visible():
        return None  # nvidia-smi lists the memory of the whole GPU
    details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
    addresses = [str(detail["pci_bus_id"]) for detail in details if "pci_bus_id" in detail]
    return parse_smallest_memory(_query_nvidia_smi(), addresses)


def _query_nvidia_smi() -> str:
    """Run nvidia-smi and return a line ``address, MiB, MIG mode`` for each GPU; "" if it fails or takes over 30 s."""
    query = "--query-gpu=pci.bus_id,memory.total,mig.mode.current"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def parse_smallest_memory(listed: str, addresses: list[str]) -> float | None:
    """Return the smallest memory in bytes of the GPUs at the bus ``addresses``; None if none of them is listed.

    ``listed`` is the output of nvidia-smi: a line ``address, MiB, MIG mode`` for each GPU. Its addresses are longer
    than TensorFlow's, which ``addresses`` holds, but end with them. Also returns None if one of the GPUs is partitioned
    into MIG instances, whose memory is not listed.
    """
    totals = []
    for line in listed.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3:  # such as a warning
            continue
        address, mib, mode = fields
        if not any(address.lower().endswith(own.lower()) for own in addresses):
            continue
        if mode == MIG_ENABLED:
            return None
        if mib.isdecimal():
            totals.append(int(mib) * 2.0**20)
    return min(totals, default=None)
