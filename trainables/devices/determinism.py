"""What two trainings of one seed may differ in, and how to have them differ in nothing.

A GPU adds up in the order in which its threads come, rounds the factors of a matrix product in float32 to 10 bits
(TF32, from compute capability 8.0 on), and uses the convolutions that cuDNN has found fastest on that day.
"""

from __future__ import annotations

import os

import tensorflow as tf
from tensorflow.python.framework import config

from trainables.devices.placement import Placement

MAY_DIFFER = "the last digits, from run to run: GPUs add up in no fixed order, cuDNN takes the kernels that it times"
TF32_FROM = (8, 0)


def choose(*, deterministic: bool) -> None:
    """Compute the same bits each time on the same kind of device, or as TensorFlow does by default; for the process."""
    if deterministic == config.is_op_determinism_enabled():
        return
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    else:
        config.disable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(not deterministic)


def described(placement: Placement) -> dict[str, str]:
    """How numbers come about in this process, for the columns of a trial; of a CPU only what was asked for."""
    deterministic = config.is_op_determinism_enabled()
    found = {"deterministic": "yes"} if deterministic else {}
    if not placement.on_gpu:
        return found
    timed = os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") != "0"
    return found | of_gpu(_capability(), deterministic=deterministic, timed=timed)


def of_gpu(capability: tuple[int, int], *, deterministic: bool, timed: bool) -> dict[str, str]:
    """The same of a GPU; ``timed``: cuDNN tries its convolutions out."""
    rounds = tf.config.experimental.tensor_float_32_execution_enabled() and capability >= TF32_FROM
    cudnn = "deterministic" if deterministic else "fastest when tried" if timed else "heuristic"
    differs = {} if deterministic else {"may_differ": MAY_DIFFER}
    return {"tf32": "on" if rounds else "off", "cudnn": cudnn, **differs}


def _capability() -> tuple[int, int]:
    """That of the weakest GPU."""
    details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.get_visible_devices("GPU")]
    return min(tuple(detail.get("compute_capability", (0, 0))) for detail in details)
