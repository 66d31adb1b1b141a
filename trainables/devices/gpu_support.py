"""Whether XLA can compile for the GPUs of this process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from sweep.gpu_architectures import Capability, Coverage, find_coverage


def find_unknown_gpu() -> str:
    """Return why XLA cannot compile for a GPU of this process, which is too new for it; "" if there is no such GPU.

    GPUs that do not report their compute capability, and GPUs that are too old, are not found. Call this before XLA
    compiles anything, because XLA would end the process, with "PTX version 8.5 does not support target sm_120" for
    example.
    """
    details = []
    for gpu in tf.config.get_visible_devices("GPU"):
        details.append(tf.config.experimental.get_device_details(gpu))
    capabilities = []
    for detail in details:
        if "compute_capability" in detail:
            capabilities.append(tuple(detail["compute_capability"]))
    return describe_unknown_gpu(
        capabilities, tf.sysconfig.get_build_info().get("cuda_compute_capabilities", ())
    )


def describe_unknown_gpu(capabilities: Sequence[Capability], architectures: Sequence[str]) -> str:
    """Return that one of the GPUs is too new for a TensorFlow built for ``architectures``; "" if none of them is.

    ``capabilities`` are the compute capabilities of the GPUs as (major, minor), ``architectures`` are texts such as
    "sm_80". Only the first GPU that is too new is named, and GPUs that are too old are not. If ``architectures`` is
    empty, the result is "".
    """
    for capability in capabilities:
        if architectures and find_coverage(capability, architectures) is Coverage.TOO_NEW:
            major, minor = capability
            known = ", ".join(architectures)
            return f"a GPU of compute capability {major}.{minor} is newer than this TensorFlow, which knows {known}"
    return ""
