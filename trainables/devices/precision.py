"""Numerical settings of a trial: its dtype policy, and the reasons why two trials with one seed may differ.

A GPU adds in the order in which its threads arrive, rounds the factors of a float32 matrix product to 10 bits (TF32,
from compute capability 8.0 on), and uses the convolution algorithms that cuDNN measured as fastest.
"""

from __future__ import annotations

import os

import tensorflow as tf

from trainables import tensorflow_private
from trainables.devices.placement import Placement
from trainables.devices.replicas import Replicas

HALF = ("float16", "bfloat16")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")


def choose_policy(choice: str, placement: Placement) -> str:
    """Return the name of Keras's dtype policy for ``choice``, one of `PRECISIONS`; "auto" depends on the weakest GPU.

    With auto, a CPU trains in float32, a TPU in mixed_bfloat16, a GPU in mixed_bfloat16 from compute capability 8.0 on,
    in mixed_float16 from 7.0 on (NVIDIA, CUDA C++ programming guide, table of arithmetic throughput), and else, or if
    its capability is unknown, in float32.
    Any other choice is returned as it is, also if the devices do not support it.
    Raises: ValueError: if the choice is unknown.
    """
    if choice not in PRECISIONS:
        raise ValueError(f"precision is {choice!r}, expected one of {', '.join(PRECISIONS)}")
    if choice != "auto":
        return choice
    if placement.name == "tpu":
        return "mixed_bfloat16"
    if not placement.on_gpu:
        return "float32"
    capability = _find_weakest_capability()
    if capability >= (8, 0):
        return "mixed_bfloat16"
    if capability >= (7, 0):
        return "mixed_float16"
    return "float32"


class LossScale:
    """Dynamic loss scale for float16 gradients, common to all replicas; it begins at 32,768 and is at least 1.

    It is doubled after 2,000 good updates in a row, and halved after a bad one, which is skipped (Micikevicius et al.,
    Mixed Precision Training, section 3.2). Create it under the strategy's scope.
    """

    initial, growth_updates = 2.0**15, 2000

    def __init__(self) -> None:
        self.scale = tf.Variable(self.initial, trainable=False, dtype=tf.float32, name="loss_scale")
        # number of good updates in a row since the last change of the scale
        self.good = tf.Variable(0, trainable=False, dtype=tf.int64, name="good_updates")

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables that a checkpoint must hold."""
        return [self.scale, self.good]

    def update(self, finite: tf.Tensor) -> None:
        """Set the loss scale for the next update: doubled after 2,000 finite ones in a row, halved after a bad one.

        It is at least 1. ``finite`` is a scalar: whether the update's gradients, summed over replicas, were finite.
        After each change, finite updates are counted from 0 again.
        """
        # `self.good` is the number of finite updates in a row before this one.
        good = tf.where(finite, self.good + 1, tf.zeros_like(self.good))
        grow = tf.equal(good, self.growth_updates)
        factor = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
        self.scale.assign(tf.maximum(self.scale * factor, 1.0))
        self.good.assign(tf.where(grow, tf.zeros_like(good), good))


RELATIVE_OF_TF32 = 2e-3
"""Relative tolerance for values that are computed in another order with factors rounded to 10 bits."""


def uses_tf32(replicas: Replicas) -> bool:
    """Return whether float32 products may be computed in TF32: on GPUs, if TensorFlow's setting allows it.

    Whether the GPU supports TF32 is not checked.
    """
    return replicas.on_gpu and bool(tf.config.experimental.tensor_float_32_execution_enabled())


MAY_DIFFER = "the last digits, from run to run: GPUs add up in no fixed order, cuDNN takes the kernels that it times"
TF32_FROM = (8, 0)


def set_determinism(placement: Placement, *, deterministic: bool) -> None:
    """Turn TensorFlow's determinism on or off in this process.

    A change also switches TF32: off with determinism, on without, whatever it was before. If determinism is already as
    asked for, TF32 stays. Determinism also turns off TensorFlow's arithmetic optimizer, which turns a + (b + c) into
    one sum and adds in an order that differs between processes. On CPUs the optimizer is always off, because that costs
    nothing there.
    """
    tf.config.optimizer.set_experimental_options(
        {"arithmetic_optimization": placement.on_gpu and not deterministic}
    )
    if deterministic == tensorflow_private.is_op_determinism_enabled():
        return
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    else:
        tensorflow_private.disable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(not deterministic)


def describe_numerics(placement: Placement) -> dict[str, str]:
    """Return the trial's columns about precision and determinism, by name.

    ``deterministic`` is "yes" if TensorFlow's determinism is on, and missing if it is off. On a GPU, the columns of
    `describe_gpu_numerics` are added.
    """
    deterministic = tensorflow_private.is_op_determinism_enabled()
    if deterministic:
        columns = {"deterministic": "yes"}
    else:
        columns = {}
    if not placement.on_gpu:
        return columns
    timed = os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") != "0"
    return columns | describe_gpu_numerics(
        _find_weakest_capability(), deterministic=deterministic, timed=timed
    )


def describe_gpu_numerics(
    capability: tuple[int, int], *, deterministic: bool, timed: bool
) -> dict[str, str]:
    """Return the columns of `describe_numerics` that depend on the GPU, whose compute ``capability`` is (major, minor).

    They are ``tf32`` ("on" or "off"), ``cudnn`` (how it chooses algorithms) and, unless ``deterministic``,
    ``may_differ`` (what differs, in words). ``timed`` says whether cuDNN measures its convolution algorithms to choose
    the fastest.
    """
    rounds = tf.config.experimental.tensor_float_32_execution_enabled() and capability >= TF32_FROM
    if deterministic:
        cudnn = "deterministic"
    elif timed:
        cudnn = "fastest when tried"
    else:
        cudnn = "heuristic"
    if deterministic:
        differs = {}
    else:
        differs = {"may_differ": MAY_DIFFER}
    return {"tf32": "on" if rounds else "off", "cudnn": cudnn, **differs}


def _find_weakest_capability() -> tuple[int, int]:
    """Return the compute capability of the weakest GPU as (major, minor).

    A GPU for which TensorFlow reports none counts as (0, 0). Raises ValueError if there is no GPU.
    """
    details = []
    for gpu in tf.config.get_visible_devices("GPU"):
        details.append(tf.config.experimental.get_device_details(gpu))
    return min(tuple(detail.get("compute_capability", (0, 0))) for detail in details)
