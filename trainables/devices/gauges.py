"""Resources that an epoch used: memory and, if NVIDIA's library is available, utilization and energy of the GPUs."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import tensorflow as tf

from sweep.contract import Devices
from trainables.devices.placement import Placement

SAMPLE_S = 0.2  # seconds between two samples of the GPUs


class GpuReader(Protocol):
    """Reads one GPU; each method returns None if the device or its driver does not support it."""

    def energy_j(self) -> float | None:
        """Return the energy in joules used since some fixed time in the past; None if it is unsupported."""

    def power_w(self) -> float | None:
        """Return the present power in watts; None if it is unsupported."""

    def busy(self) -> float | None:
        """Return the fraction of the last moments, from 0 to 1, in which the GPU ran anything; None if unsupported."""

    def active(self) -> float | None:
        """Return the mean fraction of active multiprocessors, from 0 to 1, since the last call.

        The first call returns None, and every call if it is unsupported.
        """


class Meters:
    """Reads GPUs at the beginning and end of an epoch, and in a thread in between."""

    def __init__(
        self,
        readers: Sequence[GpuReader],
        share: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
        every_s: float = SAMPLE_S,
    ) -> None:
        """Store the readers of GPUs; from `begin` to `end`, they are read every ``every_s`` seconds.

        ``share`` is the fraction of the GPUs' energy and power that is counted for this trial. ``clock`` returns
        seconds since any fixed time. Nothing is read yet.
        """
        self._readers = readers
        self._share = share
        self._clock = clock
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start an epoch: read the counters, and start the thread that samples the GPUs.

        Without GPUs, there is no thread. Call `end` or `stop` before the next call.
        """
        self._busy_samples: list[float] = []  # of all GPUs
        # energy by GPU, from samples of the power, for GPUs without an energy counter
        self._sampled_j = [0.0] * len(self._readers)
        self._energy_at_start = [reader.energy_j() for reader in self._readers]
        self._began_at = self._sampled_at = self._clock()
        for reader in self._readers:
            reader.active()  # the mean that `end` reads begins here
        if self._readers:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def end(self) -> dict[str, float]:
        """Stop the thread and return the known columns of the epoch; an empty dict if no thread runs, as without GPUs.

        ``gpu_utilization`` and ``gpu_sm_activity`` are means over the epoch and the GPUs that report them, from 0 to 1,
        not multiplied by the trial's share. ``energy_j`` (joules) and ``gpu_power_w`` (the epoch's mean in watts) are
        sums over all GPUs, multiplied by it. What no GPU reports is left out; energy and power are left out if any GPU
        reports neither, or its energy counter fails meanwhile.
        """
        if not self.stop():
            return {}
        self.sample()  # covers the time since the thread's last sample, which may be all of a short epoch
        active = [value for reader in self._readers if (value := reader.active()) is not None]
        columns = {
            "gpu_utilization": _mean(self._busy_samples),
            "gpu_sm_activity": _mean(active),
            **self._energy(),
        }
        return {name: value for name, value in columns.items() if value is not None}

    def stop(self) -> bool:
        """Stop the thread, if one runs, and wait for its end; return whether there was one."""
        if self._thread is None:
            return False
        self._stop.set()
        self._thread.join()
        self._thread = None
        return True

    def sample(self) -> None:
        """Take one sample of all GPUs: their utilization, and their power if they have no energy counter.

        The power counts for the whole time since the last sample. Call `begin` first.
        """
        now = self._clock()
        for i, reader in enumerate(self._readers):
            busy = reader.busy()
            if busy is not None:
                self._busy_samples.append(busy)
            if self._energy_at_start[i] is None:
                self._sampled_j[i] += (reader.power_w() or 0.0) * (now - self._sampled_at)
        self._sampled_at = now

    def _energy(self) -> dict[str, float | None]:
        """Return the columns ``energy_j`` and ``gpu_power_w`` of the epoch; none if they are not known of all GPUs."""
        total = 0.0
        for before, drawn, reader in zip(
            self._energy_at_start, self._sampled_j, self._readers, strict=True
        ):
            if before is None:  # no counter: use the samples of the power, if there were any
                if reader.power_w() is None:
                    return {}
                total += drawn
                continue
            now = reader.energy_j()
            if now is None:  # it has failed since the beginning, when the power was not sampled
                return {}
            total += now - before
        total *= self._share
        epoch_s = max(self._sampled_at - self._began_at, 1e-9)
        return {"energy_j": total, "gpu_power_w": total / epoch_s}

    def _run(self) -> None:
        """Take a sample every `_every_s` seconds until `stop` is called; runs in the thread."""
        while not self._stop.wait(self._every_s):
            self.sample()


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values, or None if there are none."""
    if not values:
        return None
    return sum(values) / len(values)


class Gauges:
    """Measures the memory, GPU use, energy and CPU use of one epoch after another."""

    def __init__(self, placement: Placement, devices: Devices | None = None) -> None:
        """Create readers of the GPUs of ``placement``, and look up their memory.

        ``devices`` are the devices that the trial was assigned (None: no GPUs). If they are simulated GPUs, what the
        process uses now is not counted as their memory, see `SimulatedMemory`.
        """
        self._placement = placement
        gpus = 0.0 if devices is None else devices.gpus
        self.meters = None  # only on GPUs
        if placement.on_gpu:
            from trainables.devices import nvml

            self.meters = Meters(nvml.create_readers(), min(gpus, 1.0))
        self._fixed_columns: dict[str, float] = {}  # the same in every epoch
        self._simulated_memory = None  # only with simulated GPUs
        if devices is not None and gpus and (placement.on_gpu or devices.simulated):
            from trainables.devices import gpu_memory

            self._fixed_columns["gpus"] = gpus
            total = gpu_memory.get_total_bytes(devices)
            if total is not None:
                self._fixed_columns["gpu_memory_bytes"] = total
            if devices.simulated:
                self._simulated_memory = gpu_memory.SimulatedMemory(devices)

    def begin(self) -> None:
        """Start to measure an epoch; this resets TensorFlow's peak of GPU memory.

        With simulated GPUs it resets the process's peak of memory instead. On GPUs it starts a thread, see `Meters`.
        """
        self._began = time.perf_counter()
        self._cpu_s = time.process_time()
        if self._simulated_memory:
            self._simulated_memory.begin()
        if self.meters:
            for device in self._placement.devices:
                tf.config.experimental.reset_memory_stats(device.upper())
            self.meters.begin()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Stop measuring after the block, also an epoch that `end` was not called for because it failed or diverged."""
        try:
            yield
        finally:
            if self.meters:
                self.meters.stop()

    def end(self, trials: int = 1) -> dict[str, float]:
        """Return the columns of the epoch since `begin`.

        There are always ``memory_peak_bytes``, the peak since the process started (since `begin` with simulated GPUs,
        whose measuring resets it), and ``cpu_cores``, the mean number of busy cores. With GPUs, these are added as far
        as they are known: ``gpus``, the trial's number or fraction of them, ``gpu_memory_bytes`` of the smallest one,
        ``gpu_memory_peak_bytes`` of the one with the highest peak, and the columns of `Meters.end`. If several
        ``trials`` were trained together, ``cpu_cores`` and ``energy_j``, but no other column, are divided by their
        number, and ``together`` is this number.
        Raises: OutOfMemory: if GPUs are simulated and the trial exceeds its limit of memory.
        """
        wall = time.perf_counter() - self._began
        measures = {
            "memory_peak_bytes": float(get_peak_bytes()),
            "cpu_cores": (time.process_time() - self._cpu_s) / wall / trials,
        }
        measures |= self._fixed_columns
        if self._simulated_memory:
            measures["gpu_memory_peak_bytes"] = self._simulated_memory.end()
        if self.meters:
            peaks = []
            for device in self._placement.devices:
                peaks.append(tf.config.experimental.get_memory_info(device.upper())["peak"])
            measures |= {"gpu_memory_peak_bytes": float(max(peaks)), **self.meters.end()}
        if trials > 1:
            measures["together"] = float(trials)
            if "energy_j" in measures:
                measures["energy_j"] /= trials
        return measures


def get_peak_bytes() -> int:
    """Return the largest resident memory that this process has had since it started, in bytes.

    If `SimulatedMemory` has reset the peak meanwhile, the result is the largest since then.
    """
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return kilobytes
    return kilobytes * 1024
