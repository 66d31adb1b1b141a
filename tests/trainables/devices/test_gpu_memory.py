from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from sweep.contract import CUDA_BYTES, Devices, OutOfMemory
from trainables.devices import gpu_memory, nvml
from trainables.devices.gauges import Gauges
from trainables.devices.placement import place

pytestmark = pytest.mark.keras

LISTED = """\
00000000:65:00.0, 81559, Disabled
00000000:B3:00.0, 40960, [N/A]
00000000:C3:00.0, [N/A], [N/A]
00000000:D3:00.0, 81559, Enabled
"""


@pytest.mark.parametrize(
    ("addresses", "mib"),
    [
        (["0000:65:00.0"], 81559),
        (["0000:b3:00.0"], 40960),
        (["0000:65:00.0", "0000:b3:00.0"], 40960),
        (["0000:c3:00.0"], None),
        (["0000:d3:00.0"], None),
        (["0000:65:00.0", "0000:d3:00.0"], None),
        ([], None),
    ],
)
def test_what_nvidia_smi_tells(addresses: list[str], mib: int | None) -> None:
    assert gpu_memory.parse_smallest_memory(LISTED, addresses) == (
        None if mib is None else mib * 2**20
    )


@pytest.mark.parametrize("trials", [1, 2, 3, 4, 8])
def test_shares_leave_room_for_all(trials: int) -> None:
    whole = 24e9
    each = Devices(gpus=1 / trials).memory_bytes(whole)
    assert trials * (each + CUDA_BYTES) == pytest.approx(whole)


def test_a_simulated_gpu_has_a_share_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu_memory.SIMULATED_GB, "2")
    assert gpu_memory.get_limit_bytes(Devices(gpus=0.25, simulated=True)) == 5e8
    assert gpu_memory.get_limit_bytes(Devices(gpus=1, simulated=True)) is None


def begun(monkeypatch: pytest.MonkeyPatch, gb: str) -> Gauges:
    """Of half a simulated GPU with so much memory, in an epoch."""
    monkeypatch.setenv(gpu_memory.SIMULATED_GB, gb)
    monkeypatch.setattr(gpu_memory, "bytes_before", [])  # not as it was before earlier tests
    devices = Devices(gpus=0.5, simulated=True)
    gauges = Gauges(place(devices), devices)
    gauges.begin()
    return gauges


def test_an_epoch_tells_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = begun(monkeypatch, "40")
    kept = np.ones(40_000_000, np.uint8)
    found = gauges.end()
    assert (found["gpus"], found["gpu_memory_bytes"]) == (0.5, 40e9)
    assert found["gpu_memory_peak_bytes"] >= len(kept)
    plain = Gauges(place(Devices()), Devices())
    plain.begin()
    assert not {name for name in plain.end() if name.startswith("gpu")}


def test_more_than_its_share_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = begun(monkeypatch, "0.02")
    kept = np.ones(40_000_000, np.uint8)
    with pytest.raises(OutOfMemory, match=r"the share of the simulated GPU is 0\.01 GB"):
        gauges.end()
    assert len(kept)


class FakeNvml(ModuleType):
    """NVIDIA's library on a machine with one GPU, which is partitioned into two MIG instances if ``mode`` is 1."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, mode: int | None) -> None:
        super().__init__("pynvml")
        self.mode = mode

    def nvmlInit(self) -> None:
        pass

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> SimpleNamespace:
        raise self.NVMLError

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> str:
        return address

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if self.mode is None:  # as on older GPUs
            raise self.NVMLError
        return [self.mode, self.mode]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid == "MIG-gone":
            raise self.NVMLError
        return uuid

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 300_000

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        return f"MIG-{index}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        total = {"0000:65:00.0": 80e9, "MIG-0": 40e9, "MIG-b": 10e9}[handle]
        return SimpleNamespace(total=total)


def use_gpu(monkeypatch: pytest.MonkeyPatch, library: ModuleType | None, setting: str) -> None:
    """Let TensorFlow see a GPU at 0000:65:00.0, and replace NVIDIA's library by ``library``; None removes it."""
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["gpu"])
    details = {"pci_bus_id": "0000:65:00.0"}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)


@pytest.mark.parametrize(
    ("mode", "setting", "gb"),
    [(None, "0", 80), (0, "0", 80), (1, "MIG-b", 10), (1, "MIG-b,MIG-0", 10), (1, "0", 40)],
)
def test_the_memory_of_an_instance_is_not_that_of_its_gpu(
    monkeypatch: pytest.MonkeyPatch, mode: int | None, setting: str, gb: int
) -> None:
    use_gpu(monkeypatch, FakeNvml(mode), setting)
    assert gpu_memory.get_total_bytes(Devices(gpus=0.5)) == gb * 1e9


def test_an_instance_that_is_not_found_leaves_other_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_gpu(monkeypatch, FakeNvml(1), "MIG-gone")
    (reader,) = nvml.create_readers()
    assert (reader.memory_bytes(), reader.power_w()) == (None, 300.0)


@pytest.mark.parametrize(
    ("mode", "setting", "mib", "message"),
    [
        ("Enabled", "0", None, "which alone reads the memory of a MIG instance"),
        ("Enabled", "", None, "which alone reads the memory of a MIG instance"),
        ("Disabled", "MIG-b", None, "which alone reads the memory of a MIG instance"),
        ("Disabled", "0", 81559, "nvidia-smi in the path"),
    ],
)
def test_without_nvidias_library_the_memory_of_an_instance_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: str,
    setting: str,
    mib: int | None,
    message: str,
) -> None:
    use_gpu(monkeypatch, None, setting)
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '00000000:65:00.0, 81559, {mode}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert gpu_memory.get_total_bytes(Devices(gpus=0.5)) == (None if mib is None else mib * 2**20)
    assert message in gpu_memory.explain_unknown_memory()
