"""A strategy over the TPU cores of this machine, where this TensorFlow has what computes on them.

Its usual builds declare the operations for TPUs and have no kernel of any; without this check the strategy would end in
an IndexError.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Collection

import tensorflow as tf
from tensorflow.python.framework import kernels

OPS = ("_ConfigureDistributedTPU", "_TPUCompileMlir", "TPUExecute")
"""One each of those that start TPUs, compile for them and compute on them."""


def devices_with(op: str) -> set[str]:
    """The kinds of devices for which this TensorFlow has a kernel of an operation."""
    return {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}


def missing(devices_with: Callable[[str], Collection[str]] = devices_with) -> tuple[str, ...]:
    """What keeps this installation from computing on TPUs, in words; nothing where it can."""
    without = [op for op in OPS if not devices_with(op)]
    found = [f"this TensorFlow ({tf.__version__}) has no TPU kernels ({', '.join(without)})"] if without else []
    if not os.environ.get("TPU_LIBRARY_PATH") and importlib.util.find_spec("libtpu") is None:
        found.append("there is no libtpu")
    return tuple(found)


def joined() -> tf.distribute.Strategy:
    """Start this machine's TPUs and train on all of their cores; raises TensorFlow's errors where there are none."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)
