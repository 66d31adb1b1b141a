from __future__ import annotations

import numpy as np
import pytest

from sweep.contract import CUDA_BYTES, Devices, OutOfMemory
from trainables.devices import gpu_memory
from trainables.devices.gauges import Gauges
from trainables.devices.placement import place

pytestmark = pytest.mark.keras

LISTED = "00000000:65:00.0, 81559\n00000000:B3:00.0, 40960\n00000000:C3:00.0, [N/A]\n"


@pytest.mark.parametrize(
    ("addresses", "mib"),
    [
        (["0000:65:00.0"], 81559),
        (["0000:b3:00.0"], 40960),
        (["0000:65:00.0", "0000:b3:00.0"], 40960),
        (["0000:c3:00.0"], None),
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
