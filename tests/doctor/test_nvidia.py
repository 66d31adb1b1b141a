from __future__ import annotations

import pytest
from transcripts import Transcript

from sweep.doctor import nvidia
from sweep.doctor.nvidia import Gpu, Nvidia
from sweep.doctor.programs import MISSING, CommandResult


def test_an_old_driver_is_asked_for_less() -> None:
    answers = nvidia.gather_gpus(Transcript("k80_old"))
    assert [gpu.capability for gpu in answers.gpus] == [None, None]
    assert answers.gpus[1] == Gpu(
        1,
        "GPU-00000001-1c2d-3e4f-5a6b-7c8d9e0f1a2b",
        "Tesla K80",
        "470.256.02",
        11441,
        0,
        None,
        True,
        0,
        None,
    )


def test_no_program_and_no_gpu_are_no_failure() -> None:
    assert nvidia.gather_gpus(lambda command, timeout_s: CommandResult(MISSING, "")) == Nvidia()
    assert (
        nvidia.gather_gpus(lambda command, timeout_s: CommandResult(6, "No devices were found"))
        == Nvidia()
    )


def test_a_hanging_program_is_a_failure() -> None:
    assert (
        nvidia.gather_gpus(lambda command, timeout_s: CommandResult(None, "")).failure
        == "no answer in time"
    )


def test_links_are_read_past_escapes_and_network_cards() -> None:
    matrix = (
        "\t\x1b[4mGPU0\tNIC0\tGPU1\tGPU10\tCPU Affinity\x1b[0m\n"
        "GPU0\t X \tSYS\tNV12\tPXB\t0-63\n"
        "NIC0\tSYS\t X \tPIX\tSYS\t\n"
        "GPU1\tNV12\tPIX\t X \tNODE\t0-63\n"
        "GPU10\tPXB\tSYS\tNODE\t X \t64-127\n"
        "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    assert nvidia.parse_links(matrix) == {(0, 1): "NV12", (0, 10): "PXB", (1, 10): "NODE"}
    assert nvidia.parse_links("") == {}


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1,7,0", [1]),  # CUDA stops at the first that is not there
        ("", []),
        ("-1", []),
        ("GPU-bb", [1]),
        ("MIG-x", [2]),
        ("nonsense", []),
    ],
)
def test_visible_devices_as_cuda_reads_them(setting: str | None, indices: list[int]) -> None:
    gpus = tuple(Gpu(i, f"GPU-{letter * 4}", "X", "600") for i, letter in enumerate("abc"))
    assert [
        g.index for g in nvidia.list_visible_gpus(Nvidia(gpus, mig_devices={"MIG-x": 2}), setting)
    ] == indices
