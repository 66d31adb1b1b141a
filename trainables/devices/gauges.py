"""What an epoch cost its machine: memory and, where NVIDIA's library answers, work and energy of the GPUs."""

from __future__ import annotations

import resource
import sys
import time

import tensorflow as tf

from sweep.contract import Devices
from trainables.devices import gpu_memory, nvml
from trainables.devices.meters import Meters
from trainables.devices.placement import Placement


class Gauges:
    """Reads the gauges over one epoch after another."""

    def __init__(self, placement: Placement, devices: Devices | None = None) -> None:
        """``devices`` that the trial was given."""
        self._placement, gpus = placement, 0.0 if devices is None else devices.gpus
        self._meters = Meters(nvml.readers(), min(gpus, 1.0)) if placement.on_gpu else None
        self._given: dict[str, float] = {}
        self._stands_in = None
        if devices is not None and gpus and (placement.on_gpu or devices.simulated):
            total = gpu_memory.whole(devices)
            self._given = {"gpus": gpus, **({} if total is None else {"gpu_memory_bytes": total})}
            self._stands_in = gpu_memory.Simulated(devices) if devices.simulated else None

    def begin(self) -> None:
        """Start an epoch."""
        self._began, self._cpu_s = time.perf_counter(), time.process_time()
        if self._stands_in:
            self._stands_in.begin()
        if self._meters:
            for device in self._placement.devices:
                tf.config.experimental.reset_memory_stats(device.upper())
            self._meters.begin()

    def end(self, trials: int = 1) -> dict[str, float]:
        """Columns of the epoch: memory in bytes, use of a GPU as a share of 1, CPUs as cores at work.

        Of several ``trials`` that were trained together each has its share of the energy and of the cores.

        Raises OutOfMemory where GPUs are simulated and their share is not enough.
        """
        wall = time.perf_counter() - self._began
        measures = {
            "memory_peak_bytes": float(_host_peak()),
            "cpu_cores": (time.process_time() - self._cpu_s) / wall / trials,
        }
        measures |= self._given
        if self._stands_in:
            measures["gpu_memory_peak_bytes"] = self._stands_in.end()
        if self._meters:
            peaks = [tf.config.experimental.get_memory_info(d.upper())["peak"] for d in self._placement.devices]
            measures |= {"gpu_memory_peak_bytes": float(max(peaks)), **self._meters.end()}
        if trials > 1:
            measures["together"] = float(trials)
            measures |= {name: measures[name] / trials for name in ("energy_j",) if name in measures}
        return measures


def _host_peak() -> int:
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024
