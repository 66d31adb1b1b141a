"""What a build of TensorFlow has for a GPU."""

from __future__ import annotations

import pytest

from sweep.gpu_architectures import Capability, Coverage, find_coverage, parse_architecture

TENSORFLOW_2_21 = ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")


@pytest.mark.parametrize(
    ("capability", "coverage"),
    [
        ((5, 2), Coverage.TOO_OLD),
        ((6, 1), Coverage.MACHINE_CODE),
        ((8, 6), Coverage.MACHINE_CODE),
        ((8, 9), Coverage.MACHINE_CODE),
        ((9, 0), Coverage.PTX),
        ((10, 0), Coverage.TOO_NEW),
        ((12, 0), Coverage.TOO_NEW),
    ],
)
def test_coverage(capability: Capability, coverage: Coverage) -> None:
    assert find_coverage(capability, TENSORFLOW_2_21) is coverage


def test_a_later_build_covers_later_gpus() -> None:
    later = (*TENSORFLOW_2_21[2:], "sm_100", "compute_120")
    assert find_coverage((10, 0), later) is Coverage.MACHINE_CODE
    assert find_coverage((12, 0), later) is Coverage.PTX
    assert find_coverage((7, 5), later) is Coverage.TOO_OLD


@pytest.mark.parametrize(
    ("name", "capability"), [("sm_80", (8, 0)), ("compute_120", (12, 0)), ("sm_90a", (9, 0))]
)
def test_an_architecture_names_a_capability(name: str, capability: Capability) -> None:
    assert parse_architecture(name) == capability
