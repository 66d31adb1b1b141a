"""Examples on the devices: without a copy where the device is the host, and how much of them may stay there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainables.data.words import Packed, pack, packs
from trainables.devices.replicas import Replicas

COPIED_ON_CPU = 64 * 2**20
RESIDENT_ON_GPU = 2 * 2**30
ALIGNMENT = 64  # TensorFlow's kernels abort on less


def put(arrays: Any, replicas: Replicas, *, given_away: bool = False) -> Any:
    """The arrays as tensors on every device of the strategy, packed where GPUs could not gather them otherwise.

    CPU devices alias what `aliasable` allows, and what is ``given_away``: nobody else holds or changes it.
    """
    on_host = _on_host(arrays, replicas, given_away=given_away)
    if replicas.number == 1:
        with replicas.scope(), tf.device(replicas.devices[0]):
            return tf.nest.map_structure(_identity, on_host)
    return _spread([on_host] * len(replicas.devices), replicas)


def put_each(parts: Sequence[Any], replicas: Replicas) -> Any:
    """As `put`, of arrays given away: to each device of this process its own, of one shape on all."""
    return _spread([_on_host(arrays, replicas, given_away=True) for arrays in parts], replicas)


def _on_host(arrays: Any, replicas: Replicas, *, given_away: bool) -> Any:
    like_gpus = replicas.several_here or replicas.on_gpu  # logical CPU devices stand in for several

    def host_tensor(leaf: Any) -> Any:
        if like_gpus and not isinstance(leaf, tf.Tensor) and packs(np.dtype(leaf.dtype)):
            words, none = pack(np.asarray(leaf))
            return Packed(_host_tensor(words, given_away=given_away), _host_tensor(none, given_away=False))
        return _host_tensor(leaf, given_away=given_away)

    return tf.nest.map_structure(host_tensor, arrays)


def _spread(parts: Sequence[Any], replicas: Replicas) -> Any:
    def on_replica(*tensors: Any) -> Any:
        def value(place: int) -> Any:
            with tf.device(replicas.devices[place]):
                return _identity(tensors[place])

        return replicas.spread(value)

    return tf.nest.map_structure(on_replica, *parts)


def fits(leaves: list[Any], replicas: Replicas, resident_bytes: int | None = None) -> bool:
    """Whether a whole data set may lie on each device at once.

    On GPUs and TPUs up to ``resident_bytes`` (2 GiB unless told). On the CPU up to half of the machine's memory of
    what is mapped and aliased, but only 64 MiB of what must be copied: every worker of the node would hold that copy.
    """
    copied = sum(nbytes(leaf) for leaf in leaves if not aliasable(leaf))
    aliased = sum(map(nbytes, leaves)) - copied
    if not replicas.on_cpu:
        return copied + aliased <= (RESIDENT_ON_GPU if resident_bytes is None else resident_bytes)
    limit = COPIED_ON_CPU if resident_bytes is None else resident_bytes
    return copied <= limit and aliased <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


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
