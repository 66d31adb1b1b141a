"""Examples on the devices: without a copy where the device is the host, and how much of them may stay there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainables.data.words import Packed, pack, packs

COPIED_ON_CPU = 64 * 2**20
RESIDENT_ON_GPU = 2 * 2**30
ALIGNMENT = 64  # TensorFlow's kernels abort on less


def put(arrays: Any, strategy: tf.distribute.Strategy, *, given_away: bool = False) -> Any:
    """The arrays as tensors on every device of the strategy, packed where GPUs could not gather them otherwise.

    CPU devices alias what `aliasable` allows, and what is ``given_away``: nobody else holds or changes it.
    """
    on_host = _on_host(arrays, strategy, given_away=given_away)
    if strategy.num_replicas_in_sync == 1:
        with strategy.scope(), tf.device(_devices(strategy)[0]):
            return tf.nest.map_structure(_identity, on_host)
    return _spread([on_host] * len(_devices(strategy)), strategy)


def put_each(parts: Sequence[Any], strategy: tf.distribute.Strategy) -> Any:
    """As `put`, of arrays given away: to each device of this process its own, of one shape on all."""
    return _spread([_on_host(arrays, strategy, given_away=True) for arrays in parts], strategy)


def _on_host(arrays: Any, strategy: tf.distribute.Strategy, *, given_away: bool) -> Any:
    like_gpus = gathers_like_gpus(strategy)

    def host_tensor(leaf: Any) -> Any:
        if like_gpus and not isinstance(leaf, tf.Tensor) and packs(np.dtype(leaf.dtype)):
            words, none = pack(np.asarray(leaf))
            return Packed(_host_tensor(words, given_away=given_away), _host_tensor(none, given_away=False))
        return _host_tensor(leaf, given_away=given_away)

    return tf.nest.map_structure(host_tensor, arrays)


def _spread(parts: Sequence[Any], strategy: tf.distribute.Strategy) -> Any:
    devices = _devices(strategy)

    def on_replica(*tensors: Any) -> Any:
        def value(context: tf.distribute.experimental.ValueContext) -> Any:
            place = context.replica_id_in_sync_group % len(devices)  # of this process's own
            with tf.device(devices[place]):
                return _identity(tensors[place])

        return strategy.experimental_distribute_values_from_function(value)

    return tf.nest.map_structure(on_replica, *parts)


def gathers_like_gpus(strategy: tf.distribute.Strategy) -> bool:
    """Whether rows are gathered on GPUs, or on the logical CPU devices that stand in for several."""
    devices = _devices(strategy)
    return len(devices) > 1 or on_gpu(strategy)


def parts(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process has several devices, of which each may have rows of its own."""
    return len(_devices(strategy)) > 1


def on_gpu(strategy: tf.distribute.Strategy) -> bool:
    """Whether it computes on GPUs."""
    return "GPU" in _devices(strategy)[0].upper()


def spans_processes(strategy: tf.distribute.Strategy) -> bool:
    """Whether some replicas are in other processes."""
    return int(strategy.num_replicas_in_sync) > len(_devices(strategy))


def fits(leaves: list[Any], strategy: tf.distribute.Strategy, resident_bytes: int | None = None) -> bool:
    """Whether a whole data set may lie on each device at once.

    On GPUs and TPUs up to ``resident_bytes`` (2 GiB unless told). On the CPU up to half of the machine's memory of
    what is mapped and aliased, but only 64 MiB of what must be copied: every worker of the node would hold that copy.
    """
    copied = sum(nbytes(leaf) for leaf in leaves if not aliasable(leaf))
    aliased = sum(map(nbytes, leaves)) - copied
    if "CPU" not in _devices(strategy)[0].upper():
        return copied + aliased <= (RESIDENT_ON_GPU if resident_bytes is None else resident_bytes)
    limit = COPIED_ON_CPU if resident_bytes is None else resident_bytes
    return copied <= limit and aliased <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _devices(strategy: tf.distribute.Strategy) -> Sequence[str]:
    """Those of this process; with a parameter server others compute, and are sent each batch."""
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return ("/cpu:0",)
    return tuple(strategy.extended.worker_devices)


def aliasable(leaf: Any) -> bool:
    """Whether a tensor may share this array's memory: mapped copy-on-write, aligned, of a numeric type."""
    return isinstance(leaf, np.memmap) and leaf.mode == "c" and _exportable(leaf)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array that `place` need not copy for a CPU device."""
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def nbytes(leaf: Any) -> int:
    """Bytes of an array, or of what looks like one; of texts those of their characters."""
    if np.dtype(leaf.dtype).hasobject:
        return sum(map(len, leaf.reshape(-1)))
    return int(np.prod(leaf.shape, dtype=np.int64)) * int(np.dtype(leaf.dtype).itemsize)


def _identity(tensor: Any) -> Any:
    if isinstance(tensor, Packed):
        return Packed(tf.identity(tensor.words), tf.identity(tensor.none))
    return tf.identity(tensor)


def _host_tensor(leaf: Any, *, given_away: bool) -> tf.Tensor:
    if isinstance(leaf, tf.Tensor):
        return leaf
    if aliasable(leaf) or (given_away and _exportable(leaf)):
        return tf.experimental.dlpack.from_dlpack(leaf.__dlpack__())
    with tf.device("/cpu:0"):
        return tf.convert_to_tensor(np.asarray(leaf))


def _exportable(leaf: np.ndarray[Any, Any]) -> bool:
    return (
        leaf.dtype.kind in "biuf"
        and leaf.dtype.isnative
        and leaf.flags.c_contiguous
        and leaf.flags.writeable
        and leaf.size > 0
        and leaf.ctypes.data % ALIGNMENT == 0
    )
