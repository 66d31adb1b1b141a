"""Data that are written once per node, mapped by its workers, and packed in words on devices."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import PATIENCE_S

from sweep.hyperparameters import Hyperparameters, ReadMark
from sweep.read_recorder import Reads as RecordedReads
from trainables.data import chunks, residence
from trainables.data.residence import Packed, load_shared
from trainables.data.sources import BlockArray, DataError
from trainables.devices import kernels
from trainables.devices.replicas import Replicas
from trainables.state.author_globals import AuthorSurroundings

pytestmark = pytest.mark.keras

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.arange(6)


NONE = Hyperparameters({})


def _shared(folder: Path | None, load: Any, hp: Hyperparameters = NONE) -> Any:
    return load_shared(folder, hp, load)[0]


class Loads:
    """A load that counts how often it ran."""

    def __init__(self, result: Any) -> None:
        self.result, self.count = result, 0

    def __call__(self) -> Any:
        self.count += 1
        return self.result


def test_the_data_is_loaded_once_and_mapped(tmp_path: Path) -> None:
    load = Loads((({"b": X, "a": (Y, [X + 1])}, Y), (X[:2], Y[:2])))
    first, second = _shared(tmp_path / "node", load), _shared(tmp_path / "node", load)
    assert load.count == 1
    for found in (first, second):
        tf.nest.assert_same_structure(found, load.result)
        for mine, expected in zip(
            tf.nest.flatten(found), tf.nest.flatten(load.result), strict=True
        ):
            assert isinstance(mine, np.memmap)
            assert mine.dtype == expected.dtype
            assert mine.tobytes() == expected.tobytes()


def test_trials_share_where_they_agree_on_what_was_read(tmp_path: Path) -> None:
    loads = []

    def given(**params: Any) -> tuple[Any, Any]:
        hp = Hyperparameters(params)

        def load() -> Any:
            loads.append(params)
            return (X[: hp.integer("size")], Y[: hp.integer("size")] * ("noise" in hp)), None

        ((x, _), _), reads = load_shared(tmp_path, hp, load)
        return len(x), reads

    assert (
        given(size=4, units=8)
        == given(size=4, units=16)
        == (4, {"size": 4, "noise": ReadMark.ABSENT})
    )
    assert len(loads) == 1
    assert given(size=5)[0] == 5
    assert given(size=6, noise=1) == (6, {"size": 6, "noise": ReadMark.PRESENT})
    assert given(size=4.0)[0] == 4  # another type, as anywhere else
    assert len(loads) == 4


def test_without_validation_and_without_a_folder(tmp_path: Path) -> None:
    assert _shared(tmp_path, lambda: ((X, Y), None))[1] is None
    assert _shared(tmp_path, lambda: ((X, Y), None))[1] is None
    given = ((X, Y), None)
    assert _shared(None, lambda: given)[0] is given[0]


def test_what_a_worker_writes_into_its_map_stays_with_it(tmp_path: Path) -> None:
    (x, _), _ = _shared(tmp_path, lambda: ((X, Y), None))
    x[0] = -1
    (again, _), _ = _shared(tmp_path, lambda: ((X, Y), None))
    assert again.tolist() == X.tolist()


def test_training_on_shared_data_copies_no_page_of_it(tmp_path: Path) -> None:
    x = np.ones((4096, 64), np.float32)
    (arrays, _), _ = load_shared(tmp_path, NONE, lambda: ((x, x[:, 0]), None))
    split = chunks.make_examples(
        arrays, Replicas(tf.distribute.OneDeviceStrategy("/cpu:0")), "training data"
    )
    for epoch in (1, 2):
        for chunk in split.chunks(64, 0, epoch):
            tf.reduce_sum(tf.gather(chunk.tensors[0], chunk.order)).numpy()
    pages = re.split(
        r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE
    )
    mine = [area for area in pages if str(tmp_path) in area]
    assert len(mine) == 2
    assert (
        sum(int(kb) for area in mine for kb in re.findall(r"^Rss: +(\d+)", area, re.MULTILINE))
        >= 1024
    )
    assert {
        kb for area in mine for kb in re.findall(r"^Anonymous: +(\d+)", area, re.MULTILINE)
    } == {"0"}


@pytest.mark.parametrize("stream", [True, False])
def test_streams_and_maps_of_the_author_are_loaded_by_each(tmp_path: Path, *, stream: bool) -> None:
    np.save(tmp_path / "x.npy", X)
    part = (
        tf.data.Dataset.from_tensor_slices((X, Y))
        if stream
        else (np.load(tmp_path / "x.npy", mmap_mode="r"), Y)
    )
    load = Loads((part, None))
    assert [_shared(tmp_path / "node", load)[0] is part for _ in range(3)] == [True] * 3
    assert load.count == 3


def test_each_worker_loads_where_that_sets_attributes(tmp_path: Path) -> None:
    class Author:
        def data(self) -> Any:
            self.classes = ("cats", "dogs")
            return (X, Y), None

    workers = [Author(), Author()]
    for worker in workers:
        with AuthorSurroundings(frozenset()).running_data(worker) as left:
            load_shared(tmp_path, NONE, worker.data, left)
    assert [worker.classes for worker in workers] == [("cats", "dogs")] * 2


class Pair(NamedTuple):
    x: Any
    more: Any


def test_what_workers_share_has_the_structure_that_data_gave_it(tmp_path: Path) -> None:
    ordered = {"b": X, "a": X + 1}
    for _ in range(2):
        (x, _), _ = _shared(tmp_path / "dict", lambda: ((ordered, Y), None))
        assert [*x] == ["b", "a"]
        assert x["a"].tolist() == (X + 1).tolist()
    load = Loads(((Pair(X, X), Y), None))
    for _ in range(2):
        (x, _), _ = _shared(tmp_path / "named", load)
        assert isinstance(x, Pair)
    assert load.count == 2


def test_a_failed_load_is_tried_again(tmp_path: Path) -> None:
    def fails() -> Any:
        raise OSError("no network")

    for _ in range(2):
        with pytest.raises(OSError, match="no network"):
            _shared(tmp_path, fails)
    assert _shared(tmp_path, lambda: ((X, Y), None))[0][1].tolist() == Y.tolist()


def test_what_a_killed_worker_left_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "0.npy").write_bytes(b"half")
    (x, _), _ = _shared(tmp_path, lambda: ((X, Y), None))
    assert x.tolist() == X.tolist()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data-0", "lock"]


def test_workers_that_come_at_the_same_time(tmp_path: Path) -> None:
    loads, come = [], threading.Semaphore(0)

    def load() -> Any:
        loads.append(1)
        for _ in range(4):
            assert come.acquire(timeout=PATIENCE_S)
        return (X, Y), None

    def share(_: int) -> Any:
        come.release()
        return _shared(tmp_path, load)

    # Each call opens the lock anew: to the kernel, threads are strangers like processes.
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(share, range(4)))
    assert len(loads) == 1
    assert [float(x.sum()) for (x, _), _ in found] == [66.0] * 4


def test_rows_are_read_block_by_block(tmp_path: Path) -> None:
    rows = BlockArray((6, 2), X.dtype, lambda: iter([X[:4], X[4:]]))
    ((mapped, _), _) = _shared(tmp_path, lambda: ((rows, Y), None))
    unshared, y = residence.map_block_arrays((rows, Y))
    assert mapped.tolist() == unshared.tolist() == X.tolist()
    assert y is Y
    assert not Path(unshared.filename).exists()  # gone with the process


def test_rows_are_written_where_the_system_cannot_reserve_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.posix_fallocate", raising=False)  # as on macOS
    rows = BlockArray(X.shape, X.dtype, lambda: iter([X[:4], X[4:]]))
    np.testing.assert_array_equal(residence.map_block_arrays((rows,))[0], X)


def test_wrong_data(tmp_path: Path) -> None:
    short = BlockArray((6, 2), X.dtype, lambda: iter([X[:4]]))
    with pytest.raises(DataError, match="4 rows were read, expected 6"):
        _shared(tmp_path, lambda: ((short, Y), None))
    long = BlockArray((6, 2), X.dtype, lambda: iter([X[:4], X[:4]]))
    with pytest.raises(DataError, match="at least 8 rows were read, expected 6"):
        _shared(tmp_path, lambda: ((long, Y), None))
    huge = BlockArray((2**50, 2), X.dtype, lambda: iter([]))
    with pytest.raises(DataError, match="GiB free; make room"):
        _shared(tmp_path, lambda: ((huge, Y), None))
    with pytest.raises(DataError, match="keys"):
        _shared(tmp_path, lambda: (({1: X}, Y), None))
    assert not [p for p in tmp_path.iterdir() if p.name != "lock"]


ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = [
    *INTEGERS,
    "bool",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    ml_dtypes.bfloat16,
]


def _mirrored() -> Replicas:
    ops = tf.distribute.HierarchicalCopyAllReduce()
    return Replicas(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=ops))


def _used(leaf: object, rows: tf.Tensor) -> tf.Tensor:
    return tf.cast(residence.gather(leaf, rows), tf.complex128)


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
    packed, none = residence.pack(array)
    rows = np.random.default_rng(1).integers(0, len(array), 7)
    found = Packed(tf.constant(packed), tf.constant(none)).rows(tf.constant(rows))
    assert found.dtype == dtype
    assert found.numpy().tobytes() == array[rows].tobytes()
    assert found.shape == (7, *shape[1:])


def test_rows_without_elements_and_of_the_other_byte_order() -> None:
    for array in (np.zeros((3, 0), np.uint8), np.arange(6, dtype=">i4").reshape(3, 2)):
        packed, none = residence.pack(array)
        np.testing.assert_array_equal(
            Packed(tf.constant(packed), tf.constant(none)).rows(tf.constant([2, 0])), array[[2, 0]]
        )


def test_images_are_packed_without_a_copy() -> None:
    images = np.zeros((4, 32, 32, 3), np.uint8)
    assert np.shares_memory(residence.pack(images)[0], images)


def test_a_graph_of_packed_rows_takes_those_of_other_lengths() -> None:
    def of(length: int) -> Packed:
        return Packed(
            *map(
                tf.constant,
                residence.pack(np.arange(3 * length, dtype=np.int32).reshape(3, length)),
            )
        )

    lengths: list[object] = []

    @tf.function(reduce_retracing=True)
    def gather(packed: Packed) -> tf.Tensor:
        lengths.append(packed.none.shape)
        return residence.gather(packed, tf.constant([1]))

    spec = of(4)._type_spec.most_specific_common_supertype([of(7)._type_spec])
    gather.get_concrete_function(spec)
    for length in (4, 7):
        np.testing.assert_array_equal(gather(of(length)), [range(length, 2 * length)])
    assert len(lengths) == 1


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_what_a_gpu_holds_is_gathered_by_the_gpu(dtype: object) -> None:
    """By the kernels of the installed wheel: with one for GPUs, whose data lie in the GPU's memory."""
    array = _numbers(dtype, (40, 3))
    placed = residence.put_on_devices(array, _mirrored())
    leaf = placed.values[0]
    assert isinstance(leaf, Packed) == residence.needs_packing(np.dtype(dtype))

    np.testing.assert_array_equal(residence.gather(leaf, tf.constant([3, 0])), array[[3, 0]])
    traced = tf.function(_used).get_concrete_function(leaf, tf.TensorSpec([None], tf.int64))
    assert kernels.find_host_operations(traced.graph) == []


@pytest.mark.parametrize(
    ("dtype", "found"),
    [
        ("uint8", "GatherV2 of uint8/int64: no kernel"),
        ("int32", "Placeholder of int32: in the host's memory"),
    ],
)
def test_without_packing_the_host_would_gather(dtype: str, found: str) -> None:
    traced = tf.function(_used).get_concrete_function(
        tf.TensorSpec([None, 3], dtype), tf.TensorSpec([None], tf.int64)
    )
    assert kernels.find_host_operations(traced.graph) == [found]


def test_one_cpu_device_holds_arrays_as_they_are() -> None:
    held = residence.put_on_devices(np.zeros((64, 16), np.uint8), ONE)
    assert tf.is_tensor(held)
    assert held.dtype == tf.uint8


def test_who_maps_what_another_worker_has_loaded_learns_what_that_one_has_read(
    tmp_path: Path,
) -> None:
    opened = [RecordedReads(), RecordedReads()]
    for mine in opened:

        def load(mine: RecordedReads = mine) -> Any:
            mine.files["x.npy"] = "digest"
            mine.unknown["the network"] = None
            return (np.ones(3), np.ones(3)), None

        load_shared(tmp_path, NONE, load, opened=mine)
    assert opened[0].to_json_dict() == opened[1].to_json_dict()
    assert opened[1].files == {"x.npy": "digest"}
