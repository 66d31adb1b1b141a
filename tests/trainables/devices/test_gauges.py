from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from small import Small, assignment, go_on

from sweep.contract import Diverged
from trainables.devices.gauges import Meters
from trainables.devices.nvml import NvmlReader
from trainables.session import TrialSession

pytestmark = pytest.mark.keras


@dataclass
class Fake:
    """A GPU that answers what it was told to, the last answer for ever."""

    energies: list[float] | None = None
    power: float | None = None
    busies: list[float] | None = None
    activity: float | None = None
    asked: int = field(default=0, init=False)

    def energy_j(self) -> float | None:
        return _next(self.energies)

    def power_w(self) -> float | None:
        return self.power

    def busy(self) -> float | None:
        return _next(self.busies)

    def active(self) -> float | None:
        self.asked += 1
        return self.activity if self.asked > 1 else None  # since the last call


def _next(answers: list[float] | None) -> float | None:
    return None if answers is None else answers.pop(0) if len(answers) > 1 else answers[0]


def _epoch(*gpus: Fake, share: float = 1.0, seconds: float = 2.0) -> dict[str, float]:
    times: Iterator[float] = iter([10.0, 10.0 + seconds])
    meters = Meters(gpus, share, lambda: next(times), every_s=600)
    meters.begin()
    return meters.end()


def test_energy_is_what_the_counters_of_all_gpus_went_up_by() -> None:
    found = _epoch(Fake([100.0, 700.0]), Fake([5.0, 405.0]))
    assert found == {"energy_j": 1000.0, "gpu_power_w": 500.0}


def test_without_a_counter_power_is_added_up() -> None:
    found = _epoch(Fake(power=250.0), Fake([0.0, 100.0], power=9.0))
    assert found == {"energy_j": 600.0, "gpu_power_w": 300.0}


def test_a_share_of_a_gpu_is_charged_with_that_share() -> None:
    assert _epoch(Fake([0.0, 800.0]), share=0.25)["energy_j"] == 200.0


def test_use_is_the_share_of_time_and_of_multiprocessors() -> None:
    found = _epoch(Fake(busies=[0.9], activity=0.4), Fake(busies=[0.7], activity=0.2))
    assert found["gpu_utilization"] == pytest.approx(0.8)
    assert found["gpu_sm_activity"] == pytest.approx(0.3)


def test_what_cannot_be_read_is_no_column() -> None:
    assert _epoch(Fake(), Fake([0.0, 1.0])) == {}
    assert _epoch() == {}


def test_each_epoch_begins_anew() -> None:
    gpu = Fake([0.0, 10.0, 50.0, 51.0])
    meters = Meters([gpu], every_s=600)
    for joules in (10.0, 1.0):
        meters.begin()
        assert meters.end()["energy_j"] == joules


@pytest.mark.parametrize("together", [False, True])
def test_a_diverged_epoch_leaves_no_thread(together: bool) -> None:
    session = TrialSession(Small())
    trial: Any
    train: Any
    if together:
        group = session.group()
        members = [group.member() for _ in range(2)]
        for member in members:
            member.begin(assignment(learning_rate=1e30))
        trial, train = members[0].trial, partial(group.train, dict.fromkeys(members, bool))
    else:
        session.begin(assignment(learning_rate=1e30))
        trial, train = session.trial, partial(go_on, session)
    trial.gauges.meters = meters = Meters([Fake()], every_s=0.01)
    with nullcontext() if together else pytest.raises(Diverged):
        train()
    assert trial.epoch == 1
    assert not meters.stop(), "the thread samples the GPUs for ever"


class FailingLibrary(ModuleType):
    """NVIDIA's library where a sample can be allocated and not be filled."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.allocated: list[str] = []

    def nvmlGpmQueryDeviceSupport(self, handle: object) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=True)

    def nvmlGpmSampleAlloc(self) -> str:
        self.allocated.append("sample")
        return "sample"

    def nvmlGpmSampleGet(self, handle: object, sample: str) -> str:
        raise self.NVMLError

    def nvmlGpmSampleFree(self, sample: str) -> None:
        self.allocated.remove(sample)


def test_a_sample_that_cannot_be_read_is_freed() -> None:
    library = FailingLibrary()
    reader = NvmlReader(library, "handle")
    assert reader.active() is None
    assert library.allocated == []
