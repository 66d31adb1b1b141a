"""What an epoch cost its machine: memory and, where NVIDIA's library answers, how busy the GPUs were."""

from __future__ import annotations

import resource
import sys
import threading
import time
from types import ModuleType
from typing import Any

import tensorflow as tf

from trainables.devices.placement import Placement

SAMPLE_S = 0.2


class Gauges:
    """Reads the gauges over one epoch after another."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._nvml = _Nvml(placement) if placement.on_gpu else None

    def begin(self) -> None:
        """Start an epoch."""
        self._began, self._cpu_s = time.perf_counter(), time.process_time()
        if self._nvml:
            for device in self._placement.devices:
                tf.config.experimental.reset_memory_stats(device.upper())
            self._nvml.begin()

    def end(self) -> dict[str, float]:
        """Columns of the epoch: memory in bytes, use of a GPU as a share of 1, CPUs as cores at work."""
        wall = time.perf_counter() - self._began
        measures = {"memory_peak_bytes": float(_host_peak()), "cpu_cores": (time.process_time() - self._cpu_s) / wall}
        if self._nvml:
            peaks = [tf.config.experimental.get_memory_info(d.upper())["peak"] for d in self._placement.devices]
            measures |= {"gpu_memory_peak_bytes": float(max(peaks)), **self._nvml.end()}
        return measures


def _host_peak() -> int:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024


class _Nvml:
    """Samples how busy the trial's GPUs are, in a thread, while an epoch runs."""

    def __init__(self, placement: Placement) -> None:
        self._library = _library()
        self._handles = self._open() if self._library else []
        self._stop = threading.Event()
        self._samples: list[float] = []
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._handles:
            self._samples = []
            self._stop.clear()
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def end(self) -> dict[str, float]:
        if self._thread is None:
            return {}
        self._stop.set()
        self._thread.join()
        self._thread = None
        return {"gpu_utilization": sum(self._samples) / len(self._samples)} if self._samples else {}

    def _open(self) -> list[Any]:
        library = self._library
        if library is None:
            return []
        library.nvmlInit()
        # TensorFlow sees the trial's GPUs renumbered; their bus addresses say which they are.
        details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.get_visible_devices("GPU")]
        addresses = [str(detail["pci_bus_id"]) for detail in details if "pci_bus_id" in detail]
        return [library.nvmlDeviceGetHandleByPciBusId(address) for address in addresses]

    def _sample(self) -> None:
        library = self._library
        while library is not None and not self._stop.wait(SAMPLE_S):
            rates = [library.nvmlDeviceGetUtilizationRates(handle).gpu for handle in self._handles]
            self._samples.append(sum(rates) / len(rates) / 100)


def _library() -> ModuleType | None:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml  # type: ignore[no-any-return]  # untyped
