from __future__ import annotations

import pytest

from trainables.doctor import device_probe

pytestmark = pytest.mark.keras


def test_describes_what_is_installed() -> None:
    found = device_probe.describe()
    assert found["backend"] == "tensorflow"
    assert found["tensorflow"].startswith("2.")
    assert found["gpus"] == []


def test_a_cpu_computes_right() -> None:
    tried = device_probe.try_device("cpu:0")
    assert tried["wrong"] == []
    assert set(tried["seconds"]) == {"matmul", "convolution", "gather", "xla"}
    assert tried["tflops"] > 0


def test_two_devices_sum() -> None:
    from sweep.contract import Devices
    from trainables.devices.placement import place

    assert device_probe._sums(place(Devices(gpus=2, simulated=True)).replicas) == [3.0, 3.0]


def test_unknown_arguments_are_refused() -> None:
    for arguments in ([], ["device"], ["train", "2", "--simulate"]):
        with pytest.raises(ValueError, match="unknown arguments"):
            device_probe.main(arguments)
