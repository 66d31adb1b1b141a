"""The whole round over machines that are not here."""

from __future__ import annotations

from pathlib import Path

import pytest
from transcripts import RECORDED, Transcript, findings

from sweep.cli.doctor import CheckInputs, examine
from sweep.doctor.findings import Severity

TROUBLES = {
    "h100_nvlink": {("capability", "note", "compiled from PTX")},
    "t4_single": set(),
    "rtx4090_phb": {("links", "warning", "GPU 0 and 1"), ("scaling", "warning", "0.85 times")},
    "rtx5090_blackwell": {
        ("capability", "error", "newer than this build"),
        ("ecc", "note", "switched off"),
        ("device", "error", "aborted by SIGABRT during matmul; Check failed: PTX version 8.5"),
        ("training", "error", "CUDA_ERROR_INVALID_PTX"),
    },
    "k80_old": {
        ("driver", "error", "which needs 525.60.13"),
        ("libraries", "error", "shows 2 GPUs"),
    },
    "gtx980_old": {
        ("capability", "error", "too old for this build"),
    },
    "a100_mig": {("mig", "warning", "2 instances")},
    "v100_old_driver": {
        ("driver", "error", "which needs 525.60.13"),
        ("libraries", "error", "failed call to cuInit"),
    },
    "a10g_no_libraries": {
        ("libraries", "error", "shows 4 GPUs, TensorFlow can use 0; it says: Cannot dlopen"),
        ("links", "warning", "4 SYS, 2 PHB; GPU 0 and 2 meet from one CPU socket to the other"),
    },
    "rtx3090_busy": {
        ("ecc", "error", "GPU 1 had 3 uncorrected"),
        ("ecc", "note", "switched off for GPU 0"),
        (
            "memory",
            "warning",
            "21844 of 24576 MiB are in use by /usr/bin/python3 (process 31337, 21340 MiB)",
        ),
        ("memory", "note", "[Not Found] (process 1412)"),
        ("device", "warning", "gpu:0 (11 TFLOP/s): slower"),
        ("together", "error", "no answer in time during all-reduce"),
    },
    "driver_broken": {("gpus", "error", "Driver/library version mismatch")},
    "h100_old_driver": {
        ("driver", "error", "cannot compile"),
        ("capability", "note", "compiled from PTX"),
        ("device", "error", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        ("training", "error", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    },
}
OF_THIS_MACHINE = ("versions", "results", "shared memory", "ray")


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.txt")))
def test_each_machine_has_its_troubles_and_no_others(name: str, tmp_path: Path) -> None:
    found = [
        f
        for f in findings(name, tmp_path)
        if f.check not in OF_THIS_MACHINE and f.level is not Severity.OK
    ]
    expected = TROUBLES[name]
    assert sorted((f.check, f.level.value) for f in found) == sorted(
        (check, level) for check, level, _ in expected
    )
    for check, level, words in expected:
        assert any((f.check, f.level) == (check, level) and words in f.found for f in found), words
    assert all(f.todo for f in found if f.level in (Severity.WARNING, Severity.ERROR))


def test_good_machines_say_what_they_have(tmp_path: Path) -> None:
    said = {(f.check, f.found) for f in findings("h100_nvlink", tmp_path)}
    assert ("gpus", "8 x NVIDIA H100 80GB HBM3") in said
    assert ("links", "pairs of GPUs by link: 28 NV18") in said
    assert ("scaling", "8 GPUs train 7.36 times the examples per second of one") in said
    assert any(
        check == "device" and "gpu:7" in found and "cuDNN 91002" in found for check, found in said
    )


def test_without_a_driver_the_cpu_is_tried(tmp_path: Path) -> None:
    class Bare(Transcript):
        def __call__(self, command, timeout_s):
            answer = super().__call__(command, timeout_s)
            return answer if command[0] != "nvidia-smi" else type(answer)(127, "")

    bare = Bare("gtx980_old")
    found = list(examine(CheckInputs(bare, {}, tmp_path, 1.0)))
    assert {f.level for f in found} <= {Severity.OK, Severity.NOTE}
    assert any(f.found == "CPU only: there is no NVIDIA GPU here" for f in found)
    assert bare.asked[-1] == "python -m trainables.doctor.device_probe train 2 --simulated"


@pytest.mark.parametrize(
    ("setting", "words"),
    [("0,1", "leaves 2 of 8 GPUs"), ("-1", "leaves 0 of 8 GPUs"), ("GPU-00000003", "1 of 8")],
)
def test_hidden_gpus_are_noted(setting: str, words: str, tmp_path: Path) -> None:
    found = findings("h100_nvlink", tmp_path, {"CUDA_VISIBLE_DEVICES": setting})
    assert any(f.check == "gpus" and f.level is Severity.NOTE and words in f.found for f in found)
    assert not any(f.check == "libraries" for f in found)


def test_without_tensorflow_the_round_ends_there(tmp_path: Path) -> None:
    class Broken(Transcript):
        def __call__(self, command, timeout_s):
            answer = super().__call__(command, timeout_s)
            return (
                type(answer)(1, "", "ImportError: no libcudart")
                if "describe" in command
                else answer
            )

    found = list(examine(CheckInputs(Broken("t4_single"), {}, tmp_path, 1.0)))
    assert (found[-1].check, found[-1].level) == ("tensorflow", Severity.ERROR)
    assert "ImportError: no libcudart" in found[-1].found


def test_a_cluster_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    machine = Transcript("t4_single")
    found = list(examine(CheckInputs(machine, {}, tmp_path, 1.0, "there:6379")))
    (ray,) = [f for f in found if f.check == "ray"]
    assert ray.level is Severity.ERROR
    assert "there:6379" in ray.found
    assert "python -m sweep.backends.ray_tune.doctor there:6379" in machine.asked
    assert found[-1].check == "training"
