"""Which GPUs a build of TensorFlow has code for.

A build names its architectures: "sm_80" is machine code for compute capability 8.0, and "compute_90" is PTX for 9.0,
which the driver compiles at first use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import TypeAlias

Capability: TypeAlias = tuple[int, int]
"""A compute capability, such as (8, 0)."""


class Coverage(Enum):
    """How a build of TensorFlow supports a GPU: by machine code, by PTX, or not at all."""

    MACHINE_CODE = auto()
    PTX = auto()
    TOO_OLD = auto()  # the GPU is older than all that the build has code for
    TOO_NEW = auto()  # newer than all or some code: kernels may fail, XLA ends the process (tensorflow issue 111958)


def find_coverage(capability: Capability, architectures: Sequence[str]) -> Coverage:
    """Return how a build with code for ``architectures`` supports a GPU of compute capability ``capability``.

    ``architectures`` are names such as "sm_80" and "compute_90"; others are ignored. Machine code runs on its own major
    version, from its minor version on. PTX could be compiled for all later versions, but TensorFlow's fails on later
    major versions (tensorflow issues 89272, 97387), so the same rule is used for it. A GPU that is not covered and not
    older than all architectures is `TOO_NEW`, also if there are none. Raises ValueError as `parse_architecture` does.
    """
    machine_code = []
    for name in architectures:
        if name.startswith("sm_"):
            machine_code.append(parse_architecture(name))
    ptx = []
    for name in architectures:
        if name.startswith("compute_"):
            ptx.append(parse_architecture(name))
    if _covers(machine_code, capability):
        return Coverage.MACHINE_CODE
    if _covers(ptx, capability):
        return Coverage.PTX
    oldest = min(machine_code + ptx, default=(0, 0))
    if capability < oldest:
        return Coverage.TOO_OLD
    return Coverage.TOO_NEW


def parse_architecture(name: str) -> Capability:
    """Return the compute capability of an architecture: (8, 0) for "sm_80", (9, 0) for "sm_90a", (12, 0) for "sm_120".

    Its last digit is the minor version. Raises ValueError for a name with fewer than two digits.
    """
    digits = re.sub(r"\D", "", name)  # without all other characters
    return int(digits[:-1]), int(digits[-1])


def _covers(versions: Sequence[Capability], capability: Capability) -> bool:
    """Return whether one of the versions has the major version of ``capability`` and at most its minor version."""
    return any(major == capability[0] and minor <= capability[1] for major, minor in versions)
