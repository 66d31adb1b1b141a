from __future__ import annotations

import dataclasses

import pytest

from sweep.doctor import gpu_judgement
from sweep.doctor.findings import Level
from sweep.doctor.nvidia import Gpu, Nvidia
from sweep.doctor.probe import TensorFlow

BUILD = TensorFlow(
    "2.21.0", "3.15.1", "tensorflow", "12.5.1", "9", ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90"), ()
)


def gpu(capability: tuple[int, int] | None = (8, 0), driver: str = "560.35.03", index: int = 0, **rest: object) -> Gpu:
    return dataclasses.replace(Gpu(index, f"GPU-{index}", "Card", driver, capability=capability), **rest)


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
def test_capabilities_against_the_build(capability: tuple[int, int], code: str, precision: str | None) -> None:
    found = list(gpu_judgement.capability([gpu(capability)], BUILD))
    assert found[0].level == code
    assert [f.check for f in found] == ["capability", *(["precision"] if precision else [])]
    assert precision is None or precision in found[1].found


def test_a_later_build_knows_later_gpus() -> None:
    later = dataclasses.replace(BUILD, architectures=("sm_80", "sm_90", "compute_120"))
    levels = [next(gpu_judgement.capability([gpu(c)], later)).level for c in ((7, 0), (9, 0), (12, 0), (10, 0))]
    assert levels == [Level.ERROR, Level.OK, Level.NOTE, Level.ERROR]


def test_tensorflow_knows_the_capability_where_the_driver_does_not() -> None:
    seen = dataclasses.replace(BUILD, capabilities=((7, 0),))
    assert [f.level for f in gpu_judgement.capability([gpu(None)], seen)] == [Level.OK, Level.OK]
    assert [f.level for f in gpu_judgement.capability([], seen)] == [Level.OK, Level.OK]


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
def test_driver_against_the_builds_cuda(driver: str, capability: tuple[int, int], level: str) -> None:
    (found,) = gpu_judgement.driver([gpu(capability, driver)], BUILD)
    assert found.level == level


def test_an_unknown_cuda_is_no_reason_to_fail() -> None:
    (found,) = gpu_judgement.driver([gpu()], dataclasses.replace(BUILD, cuda="14.1"))
    assert found.level is Level.NOTE


def test_a_build_without_cuda_is_named() -> None:
    (found,) = gpu_judgement.libraries([gpu()], dataclasses.replace(BUILD, cuda=None, architectures=()))
    assert found.level is Level.ERROR
    assert "built without CUDA" in found.found


def test_a_gpu_too_old_is_no_missing_library() -> None:
    one = dataclasses.replace(BUILD, capabilities=((8, 0),))
    assert not list(gpu_judgement.libraries([gpu(), gpu((3, 5), index=1)], one))
    assert list(gpu_judgement.libraries([gpu(), gpu(index=1)], one))


def test_mig_without_instances_is_an_error() -> None:
    sliced = gpu(mig=True)
    (found,) = gpu_judgement.health(Nvidia((sliced,)), [sliced])
    assert found.level is Level.ERROR
    assert "nothing can run" in found.found


def test_only_links_between_visible_gpus_count() -> None:
    gpus = tuple(gpu(index=i) for i in range(3))
    nvidia = Nvidia(gpus, links={(0, 1): "NV4", (0, 2): "SYS", (1, 2): "NODE"})
    (all_of_them,) = gpu_judgement.links(nvidia, gpus)
    assert (all_of_them.level, "GPU 0 and 2" in all_of_them.found) == (Level.WARNING, True)
    (pair,) = gpu_judgement.links(nvidia, gpus[:2])
    assert pair.level is Level.OK
    assert not list(gpu_judgement.links(nvidia, gpus[:1]))


def test_different_gpus_are_a_warning() -> None:
    mixed = (gpu(), gpu(index=1, name="Other"))
    found = list(gpu_judgement.presence(Nvidia(mixed), mixed, BUILD))
    assert [f.level for f in found] == [Level.OK, Level.WARNING]


def test_gpus_without_nvidia_smi_are_a_note() -> None:
    (found,) = gpu_judgement.presence(Nvidia(), (), dataclasses.replace(BUILD, capabilities=((8, 0),)))
    assert found.level is Level.NOTE


ALL = {"energy": True, "power": True, "utilization": True, "sm_activity": True}


@pytest.mark.parametrize(
    ("known", "level", "told"),
    [
        (None, Level.NOTE, "nvidia-ml-py is not installed"),
        (ALL, Level.OK, "the driver tells energy, power, utilization, sm_activity"),
        (ALL | {"sm_activity": False}, Level.OK, "sm_activity is counted from Hopper on"),
        (ALL | {"energy": False}, Level.NOTE, "it does not tell energy"),
        (dict.fromkeys(ALL, False), Level.NOTE, "the driver tells nothing"),
    ],
)
def test_what_can_be_read_of_the_gpus(known: dict[str, bool] | None, level: Level, told: str) -> None:
    (finding,) = gpu_judgement.gauges(dataclasses.replace(BUILD, capabilities=((9, 0),), gauges=known))
    assert finding.level is level
    assert told in finding.found
    assert list(gpu_judgement.gauges(BUILD)) == []  # no GPU to read
