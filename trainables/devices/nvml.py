"""Readings of the trial's GPUs by NVIDIA's management library; none if it is not installed or does not respond."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf


def create_readers() -> list[NvmlReader]:
    """Return a reader for each GPU that TensorFlow sees, in its order, except GPUs whose bus address it does not tell.

    Return [] if NVIDIA's library or driver is missing, or does not know one of the GPUs.
    """
    library = _start_library()
    if library is None:
        return []
    # TensorFlow renumbers the trial's GPUs; their bus addresses identify them.
    details = []
    for gpu in tf.config.get_visible_devices("GPU"):
        details.append(tf.config.experimental.get_device_details(gpu))
    addresses = []
    for detail in details:
        if "pci_bus_id" in detail:
            addresses.append(str(detail["pci_bus_id"]))
    try:
        readers = []
        for address in addresses:
            readers.append(NvmlReader(library, library.nvmlDeviceGetHandleByPciBusId(address)))
        return readers
    except library.NVMLError:
        return []


def list_supported_gauges() -> dict[str, bool] | None:
    """Return for each gauge whether all GPUs support it; None if the package pynvml is not installed.

    The gauges are "energy", "power", "utilization" and "sm_activity". If there are no GPUs or no driver, all values are
    False. Used by `doctor`.
    """
    if _import_library() is None:
        return None
    readers = create_readers()
    # for each gauge, whether each GPU supports it
    by_gpu: dict[str, list[bool]] = {
        "energy": [reader.energy_j() is not None for reader in readers],
        "power": [reader.power_w() is not None for reader in readers],
        "utilization": [reader.busy() is not None for reader in readers],
        "sm_activity": [reader.counts_activity for reader in readers],
    }
    return {name: bool(values) and all(values) for name, values in by_gpu.items()}


def _find_mig_instance(library: ModuleType, gpu: Any) -> Any:
    """Return the handle of the MIG instance of a GPU that this process uses; None if the GPU has no MIG instances.

    ``gpu`` is the handle of the whole GPU, whose bus address its instances share. A process uses one instance: the
    first that ``CUDA_VISIBLE_DEVICES`` names or, if it names none, the first of the GPU. Raises ``library.NVMLError``
    if there is no such instance.
    """
    try:
        mode, _pending = library.nvmlDeviceGetMigMode(gpu)  # the pending mode applies after a reset
    except library.NVMLError:  # the GPU does not support MIG
        return None
    if mode != library.NVML_DEVICE_MIG_ENABLE:
        return None
    first_visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    if first_visible.startswith("MIG-"):
        return library.nvmlDeviceGetHandleByUUID(first_visible)
    return library.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)


class NvmlReader:
    """A reader of one GPU that implements `gauges.GpuReader`."""

    def __init__(self, library: ModuleType, handle: Any) -> None:
        self._library, self._handle = library, handle
        supported = self._ask(lambda: library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        self.counts_activity = bool(supported)  # GPUs from Hopper on support it
        self._last_sample: Any = None  # the library's, taken by the last call of `active`

    def energy_j(self) -> float | None:
        """Return the energy in joules that the GPU has used since its driver was loaded; None if it is unsupported."""
        return self._read_number(
            lambda: self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle), 1e-3
        )

    def power_w(self) -> float | None:
        """Return the present power of the GPU in watts; None if it is unsupported."""
        return self._read_number(lambda: self._library.nvmlDeviceGetPowerUsage(self._handle), 1e-3)

    def busy(self) -> float | None:
        """Return the fraction of the last moments, from 0 to 1, in which the GPU ran anything; None if unsupported."""
        return self._read_number(
            lambda: self._library.nvmlDeviceGetUtilizationRates(self._handle).gpu, 1e-2
        )

    def memory_bytes(self) -> float | None:
        """Return the total memory of the GPU, or of its MIG instance, in bytes; None if the driver does not report it.

        All other readings are of the whole GPU.
        """
        return self._read_number(self._get_total_memory, 1.0)

    def active(self) -> float | None:
        """Return the mean fraction of active multiprocessors, from 0 to 1, since the last call; None if it is unknown.

        It is unknown at the first call, if the GPU does not support it, and if one of the two samples could not be
        taken. The sample of the last call is freed, and the present one is kept for the next call.
        """
        if not self.counts_activity:
            return None
        before = self._last_sample
        now = self._ask(self._take_sample)  # None if it fails
        self._last_sample = now
        if before is None:
            return None
        activity = None
        if now is not None:
            activity = self._read_number(lambda: self._compute_activity_percent(before, now), 1e-2)
        self._ask(lambda: self._library.nvmlGpmSampleFree(before))
        return activity

    def _get_total_memory(self) -> Any:
        """Return the bytes of memory of the MIG instance that this process uses, or of the GPU if it has none."""
        instance = _find_mig_instance(self._library, self._handle)
        owner = self._handle if instance is None else instance
        return self._library.nvmlDeviceGetMemoryInfo(owner).total

    def _take_sample(self) -> Any:
        """Return a new sample of the GPU's counters, in memory of the library, which the caller frees.

        Raises the library's error if it cannot be taken.
        """
        sample = self._library.nvmlGpmSampleAlloc()
        try:
            return self._library.nvmlGpmSampleGet(self._handle, sample)
        except self._library.NVMLError:
            self._library.nvmlGpmSampleFree(sample)
            raise

    def _compute_activity_percent(self, first: Any, last: Any) -> float | None:
        """Return the mean percentage of active multiprocessors between two samples; None if it is unknown."""
        library = self._library
        query = library.c_nvmlGpmMetricsGet_t(
            version=library.NVML_GPM_METRICS_GET_VERSION, numMetrics=1, sample1=first, sample2=last
        )
        query.metrics[0].metricId = library.NVML_GPM_METRIC_SM_UTIL
        metric = library.nvmlGpmMetricsGet(query).metrics[0]
        if metric.nvmlReturn != library.NVML_SUCCESS:
            return None
        return float(metric.value)

    def _read_number(self, ask: Callable[[], Any], unit: float) -> float | None:
        """Return the result of a function of the library times ``unit``; None if the library raises its error.

        ``unit`` is the library's unit in that of the result, such as 1e-3 for milliwatts.
        """
        value = self._ask(ask)
        if value is None:
            return None
        return float(value) * unit

    def _ask(self, ask: Callable[[], Any]) -> Any:
        """Call a function of the library; return its result, or None if the library raises its error.

        So it does where this device or driver does not support the function.
        """
        try:
            return ask()
        except self._library.NVMLError:
            return None


def _start_library() -> ModuleType | None:
    """Return NVIDIA's library, initialized; None if it is not installed or finds no driver."""
    library = _import_library()
    if library is None:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:  # no driver
        return None
    return library


def _import_library() -> ModuleType | None:
    """Return the package pynvml, or None if it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml  # type: ignore[no-any-return]  # untyped
