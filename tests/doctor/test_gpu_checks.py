"""What the doctor finds on GPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.doctor import gpu_checks
from sweep.doctor.findings import Severity
from sweep.doctor.gpu_checks import PIPES
from sweep.doctor.nvidia import Gpu, Nvidia
from sweep.doctor.probes import (
    CollectiveResult,
    DeviceResult,
    MemoryShareResult,
    ProbeFailure,
    TensorFlow,
)
from sweep.doctor.programs import MISSING, CommandResult

BUILD = TensorFlow(
    "2.21.0",
    "3.15.1",
    "tensorflow",
    "12.5.1",
    "9",
    ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90"),
    (),
)


def gpu(
    capability: tuple[int, int] | None = (8, 0),
    driver: str = "560.35.03",
    index: int = 0,
    **rest: object,
) -> Gpu:
    return dataclasses.replace(
        Gpu(index, f"GPU-{index}", "Card", driver, capability=capability), **rest
    )


@pytest.mark.parametrize(
    ("capability", "code", "precision"),
    [
        ((3, 7), "error", None),
        ((5, 2), "error", None),
        ((6, 0), "ok", "float32"),
        ((6, 1), "ok", "float32"),
        ((7, 0), "ok", "mixed_float16"),
        ((7, 5), "ok", "mixed_float16"),
        ((8, 0), "ok", "mixed_bfloat16"),
        ((8, 9), "ok", "mixed_bfloat16"),
        ((9, 0), "note", "mixed_bfloat16"),
        ((10, 0), "error", None),
        ((12, 0), "error", None),
    ],
)
def test_capabilities_against_the_build(
    capability: tuple[int, int], code: str, precision: str | None
) -> None:
    found = list(gpu_checks.check_capability([gpu(capability)], BUILD))
    assert found[0].level == code
    assert [f.check for f in found] == ["capability", *(["precision"] if precision else [])]
    assert precision is None or precision in found[1].found


def test_a_later_build_knows_later_gpus() -> None:
    later = dataclasses.replace(BUILD, architectures=("sm_80", "sm_90", "compute_120"))
    levels = [
        next(gpu_checks.check_capability([gpu(c)], later)).level
        for c in ((7, 0), (9, 0), (12, 0), (10, 0))
    ]
    assert levels == [Severity.ERROR, Severity.OK, Severity.NOTE, Severity.ERROR]


def test_tensorflow_knows_the_capability_where_the_driver_does_not() -> None:
    seen = dataclasses.replace(BUILD, capabilities=((7, 0),))
    assert [f.level for f in gpu_checks.check_capability([gpu(None)], seen)] == [
        Severity.OK,
        Severity.OK,
    ]
    assert [f.level for f in gpu_checks.check_capability([], seen)] == [Severity.OK, Severity.OK]


@pytest.mark.parametrize(
    ("driver", "capability", "level"),
    [
        ("525.60.13", (8, 0), "ok"),
        ("525.60.12", (8, 0), "error"),
        ("470.82.01", (7, 0), "error"),
        ("555.42.02", (9, 0), "ok"),
        ("550.90.07", (9, 0), "error"),  # PTX of CUDA 12.5 needs its driver
        ("580.65.06", (9, 0), "ok"),
    ],
)
def test_driver_against_the_builds_cuda(
    driver: str, capability: tuple[int, int], level: str
) -> None:
    (found,) = gpu_checks.check_driver([gpu(capability, driver)], BUILD)
    assert found.level == level


def test_an_unknown_cuda_is_no_reason_to_fail() -> None:
    (found,) = gpu_checks.check_driver([gpu()], dataclasses.replace(BUILD, cuda="14.1"))
    assert found.level is Severity.NOTE


def test_a_build_without_cuda_is_named() -> None:
    (found,) = gpu_checks.check_libraries(
        [gpu()], dataclasses.replace(BUILD, cuda=None, architectures=())
    )
    assert found.level is Severity.ERROR
    assert "built without CUDA" in found.found


def test_a_gpu_too_old_is_no_missing_library() -> None:
    one = dataclasses.replace(BUILD, capabilities=((8, 0),))
    assert not list(gpu_checks.check_libraries([gpu(), gpu((3, 5), index=1)], one))
    assert list(gpu_checks.check_libraries([gpu(), gpu(index=1)], one))


def test_mig_without_instances_is_an_error() -> None:
    sliced = gpu(mig=True)
    (found,) = gpu_checks.check_health(Nvidia((sliced,)), [sliced])
    assert found.level is Severity.ERROR
    assert "nothing can run" in found.found


def test_only_links_between_visible_gpus_count() -> None:
    gpus = tuple(gpu(index=i) for i in range(3))
    nvidia = Nvidia(gpus, links={(0, 1): "NV4", (0, 2): "SYS", (1, 2): "NODE"})
    (all_of_them,) = gpu_checks.check_links(nvidia, gpus)
    assert (all_of_them.level, "GPU 0 and 2" in all_of_them.found) == (Severity.WARNING, True)
    (pair,) = gpu_checks.check_links(nvidia, gpus[:2])
    assert pair.level is Severity.OK
    assert not list(gpu_checks.check_links(nvidia, gpus[:1]))


def test_different_gpus_are_a_warning() -> None:
    mixed = (gpu(), gpu(index=1, name="Other"))
    found = list(gpu_checks.check_presence(Nvidia(mixed), mixed, BUILD))
    assert [f.level for f in found] == [Severity.OK, Severity.WARNING]


def test_gpus_without_nvidia_smi_are_a_note() -> None:
    (found,) = gpu_checks.check_presence(
        Nvidia(), (), dataclasses.replace(BUILD, capabilities=((8, 0),))
    )
    assert found.level is Severity.NOTE


ALL = {"energy": True, "power": True, "utilization": True, "sm_activity": True}


@pytest.mark.parametrize(
    ("known", "level", "told"),
    [
        (None, Severity.NOTE, "nvidia-ml-py is not installed"),
        (ALL, Severity.OK, "the driver tells energy, power, utilization, sm_activity"),
        (ALL | {"sm_activity": False}, Severity.OK, "sm_activity is counted from Hopper on"),
        (ALL | {"energy": False}, Severity.NOTE, "it does not tell energy"),
        (dict.fromkeys(ALL, False), Severity.NOTE, "the driver tells nothing"),
    ],
)
def test_what_can_be_read_of_the_gpus(
    known: dict[str, bool] | None, level: Severity, told: str
) -> None:
    (finding,) = gpu_checks.check_gauges(
        dataclasses.replace(BUILD, capabilities=((9, 0),), gauges=known)
    )
    assert finding.level is level
    assert told in finding.found
    assert list(gpu_checks.check_gauges(BUILD)) == []  # no GPU to read


GOOD = DeviceResult({"matmul": 0.002}, (), 50.0, None)
ALONE = CollectiveResult((1.0,), 1000.0)


def test_wrong_numbers_are_an_error() -> None:
    (found,) = gpu_checks.check_device(
        "gpu:1", DeviceResult({"matmul": 0.002}, ("convolution",), 50.0, None)
    )
    assert found.level is Severity.ERROR
    assert "wrong results from convolution" in found.found


def test_a_slow_device_among_equals() -> None:
    slow = DeviceResult({"matmul": 0.004}, (), 25.0, None)
    (found,) = gpu_checks.check_pace({"gpu:0": GOOD, "gpu:1": slow, "gpu:2": ProbeFailure("x")})
    assert "gpu:1" in found.found
    assert not list(gpu_checks.check_pace({"gpu:0": GOOD, "gpu:1": GOOD}))
    assert not list(gpu_checks.check_pace({"gpu:0": ProbeFailure("x")}))


@pytest.mark.parametrize(("rate", "level"), [(3900, "ok"), (2500, "note"), (1500, "warning")])
def test_scaling(rate: float, level: str) -> None:
    (found,) = gpu_checks.check_scaling(ALONE, CollectiveResult((10.0,) * 4, rate), 4)
    assert found.level == level
    assert f"{rate / 1000:.2f} times" in found.found
    assert not list(gpu_checks.check_scaling(ALONE, ProbeFailure("x"), 4))


@pytest.mark.parametrize("simulated", [True, False])
def test_devices_that_add_up(simulated: bool) -> None:
    (found,) = gpu_checks.check_together(
        CollectiveResult((3.0, 3.0), 9.0), count=2, simulated=simulated
    )
    assert found.level is Severity.OK
    assert ("rehearsal" in found.found) == simulated


@pytest.mark.parametrize(
    "several",
    [CollectiveResult((1.0,), 9.0), CollectiveResult((3.0, 1.0), 9.0), ProbeFailure("abort")],
)
def test_devices_that_do_not_add_up(several: CollectiveResult | ProbeFailure) -> None:
    (found,) = gpu_checks.check_together(several, count=2, simulated=False)
    assert found.level is Severity.ERROR


@pytest.mark.parametrize(
    ("code", "environ", "level", "words"),
    [
        (0, {}, "ok", "compute at the same time"),
        (1, {}, "note", "take turns"),
        (0, {PIPES: "no/such/folder"}, "warning", "no/such/folder, which does not exist"),
        (MISSING, {}, None, ""),
    ],
)
def test_the_daemon(code: int, environ: dict[str, str], level: str | None, words: str) -> None:
    def run(command: Sequence[str], timeout_s: float) -> CommandResult:
        return CommandResult(code, "")

    found = list(gpu_checks.check_mps(gpu_checks.read_mps_state(run, environ)))
    assert [f.level.value for f in found] == ([level] if level else [])
    assert all(words in f.found for f in found)


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    found = gpu_checks.read_mps_state(
        lambda command, timeout_s: CommandResult(0, "4711\n"), {PIPES: str(tmp_path)}
    )
    assert (found.runs, found.pipes_exist) == (True, True)


@pytest.mark.parametrize(
    ("tried", "level", "words"),
    [
        (
            MemoryShareResult(6 * 2**30, True, True),
            "ok",
            "a quarter may have 6.0 GiB, more is refused",
        ),
        (MemoryShareResult(6 * 2**30, False, True), "error", "more was not refused"),
        (MemoryShareResult(6 * 2**30, True, False), "error", "cannot go on"),
        (ProbeFailure("aborted by SIGABRT"), "error", "aborted by SIGABRT"),
    ],
)
def test_the_limit(tried: MemoryShareResult | ProbeFailure, level: str, words: str) -> None:
    (found,) = gpu_checks.check_memory_limit("gpu:0", tried)
    assert found.level.value == level
    assert words in found.found
