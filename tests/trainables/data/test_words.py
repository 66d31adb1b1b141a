from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.data import residence, words
from trainables.data.words import Packed
from trainables.devices import kernels
from trainables.devices.replicas import Replicas

pytestmark = pytest.mark.keras

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = [*INTEGERS, "bool", "float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16]


def _mirrored() -> Replicas:
    ops = tf.distribute.HierarchicalCopyAllReduce()
    return Replicas(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=ops))


def _used(leaf: object, rows: tf.Tensor) -> tf.Tensor:
    return tf.cast(words.gather(leaf, rows), tf.complex128)


def _numbers(dtype: object, shape: tuple[int, ...]) -> np.ndarray:
    wanted = np.dtype(dtype)
    if wanted == np.bool_:
        return np.random.default_rng(0).integers(0, 2, shape).astype(bool)
    raw = np.random.default_rng(0).integers(0, 256, (*shape, wanted.itemsize), np.uint8)
    found = raw.view(wanted)[..., 0]
    return found if wanted.kind in "iu" else np.arange(found.size).astype(wanted).reshape(shape)


@settings(max_examples=40, deadline=None)
@given(dtype=st.sampled_from(INTEGERS), shape=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_packed_rows_have_the_bits_that_they_had(dtype: str, shape: list[int]) -> None:
    array = _numbers(dtype, tuple(shape))
    packed, none = words.pack(array)
    rows = np.random.default_rng(1).integers(0, len(array), 7)
    found = Packed(tf.constant(packed), tf.constant(none)).rows(tf.constant(rows))
    assert found.dtype == dtype
    assert found.numpy().tobytes() == array[rows].tobytes()
    assert found.shape == (7, *shape[1:])


def test_rows_without_elements_and_of_the_other_byte_order() -> None:
    for array in (np.zeros((3, 0), np.uint8), np.arange(6, dtype=">i4").reshape(3, 2)):
        packed, none = words.pack(array)
        np.testing.assert_array_equal(
            Packed(tf.constant(packed), tf.constant(none)).rows(tf.constant([2, 0])), array[[2, 0]]
        )


def test_images_are_packed_without_a_copy() -> None:
    images = np.zeros((4, 32, 32, 3), np.uint8)
    assert np.shares_memory(words.pack(images)[0], images)


def test_a_graph_of_packed_rows_takes_those_of_other_lengths() -> None:
    def of(length: int) -> Packed:
        return Packed(*map(tf.constant, words.pack(np.arange(3 * length, dtype=np.int32).reshape(3, length))))

    lengths: list[object] = []

    @tf.function(reduce_retracing=True)
    def gather(packed: Packed) -> tf.Tensor:
        lengths.append(packed.none.shape)
        return words.gather(packed, tf.constant([1]))

    spec = of(4)._type_spec.most_specific_common_supertype([of(7)._type_spec])
    gather.get_concrete_function(spec)
    for length in (4, 7):
        np.testing.assert_array_equal(gather(of(length)), [range(length, 2 * length)])
    assert len(lengths) == 1


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_what_a_gpu_holds_is_gathered_by_the_gpu(dtype: object) -> None:
    """By the kernels of the installed wheel: with one for GPUs, whose data lie in the GPU's memory."""
    array = _numbers(dtype, (40, 3))
    placed = residence.put(array, _mirrored())
    leaf = placed.values[0]
    assert isinstance(leaf, Packed) == words.packs(np.dtype(dtype))

    np.testing.assert_array_equal(words.gather(leaf, tf.constant([3, 0])), array[[3, 0]])
    traced = tf.function(_used).get_concrete_function(leaf, tf.TensorSpec([None], tf.int64))
    assert kernels.on_host(traced.graph) == []


@pytest.mark.parametrize(
    ("dtype", "found"),
    [("uint8", "GatherV2 of uint8/int64: no kernel"), ("int32", "Placeholder of int32: in the host's memory")],
)
def test_without_packing_the_host_would_gather(dtype: str, found: str) -> None:
    traced = tf.function(_used).get_concrete_function(tf.TensorSpec([None, 3], dtype), tf.TensorSpec([None], tf.int64))
    assert kernels.on_host(traced.graph) == [found]


def test_one_cpu_device_holds_arrays_as_they_are() -> None:
    held = residence.put(np.zeros((64, 16), np.uint8), ONE)
    assert tf.is_tensor(held)
    assert held.dtype == tf.uint8
