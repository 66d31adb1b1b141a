from __future__ import annotations

import pytest

from sweep.doctor import device_judgement
from sweep.doctor.findings import Level
from sweep.doctor.probe import Failure, Trained, Tried

GOOD = Tried({"matmul": 0.002}, (), 50.0, None)
ALONE = Trained((1.0,), 1000.0)


def test_wrong_numbers_are_an_error() -> None:
    (found,) = device_judgement.device("gpu:1", Tried({"matmul": 0.002}, ("convolution",), 50.0, None))
    assert found.level is Level.ERROR
    assert "wrong results from convolution" in found.found


def test_a_slow_device_among_equals() -> None:
    slow = Tried({"matmul": 0.004}, (), 25.0, None)
    (found,) = device_judgement.pace({"gpu:0": GOOD, "gpu:1": slow, "gpu:2": Failure("x")})
    assert "gpu:1" in found.found
    assert not list(device_judgement.pace({"gpu:0": GOOD, "gpu:1": GOOD}))
    assert not list(device_judgement.pace({"gpu:0": Failure("x")}))


@pytest.mark.parametrize(("rate", "level"), [(3900, "ok"), (2500, "note"), (1500, "warning")])
def test_scaling(rate: float, level: str) -> None:
    (found,) = device_judgement.scaling(ALONE, Trained((10.0,) * 4, rate), 4)
    assert found.level == level
    assert f"{rate / 1000:.2f} times" in found.found
    assert not list(device_judgement.scaling(ALONE, Failure("x"), 4))


@pytest.mark.parametrize("simulated", [True, False])
def test_devices_that_add_up(simulated: bool) -> None:
    (found,) = device_judgement.together(Trained((3.0, 3.0), 9.0), count=2, simulated=simulated)
    assert found.level is Level.OK
    assert ("rehearsal" in found.found) == simulated


@pytest.mark.parametrize("several", [Trained((1.0,), 9.0), Trained((3.0, 1.0), 9.0), Failure("abort")])
def test_devices_that_do_not_add_up(several: Trained | Failure) -> None:
    (found,) = device_judgement.together(several, count=2, simulated=False)
    assert found.level is Level.ERROR
