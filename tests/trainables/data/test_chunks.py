from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from sweep.hyperparameters import Hyperparameters
from trainables.data import chunks, passes, residence
from trainables.data.chunks import ArraySplit, DataError
from trainables.data.passes import Examples
from trainables.data.residence import load_shared
from trainables.devices.replicas import Replicas

pytestmark = pytest.mark.keras

X = np.arange(10, dtype=np.float32)[:, None]
Y = np.arange(10, dtype=np.int32)
ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))


def _two() -> Replicas:
    ops = tf.distribute.HierarchicalCopyAllReduce()
    return Replicas(tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=ops))


def _batches(
    split: Examples, batch_size: int, seed: int | None, epoch: int, replica: int = 0
) -> list[list[Any]]:
    """The batches that a loop takes out of the chunks on one replica: each a flat list of arrays."""
    found = []
    for chunk in split.chunks(batch_size, seed, epoch):
        flat = tf.nest.flatten(chunk.tensors)
        for start in range(0, len(chunk.order), batch_size):
            rows = chunk.order[start : start + batch_size]
            leaves = [leaf if tf.is_tensor(leaf) else leaf.values[replica] for leaf in flat]
            found.append([residence.gather(leaf, rows).numpy() for leaf in leaves])
    return found


def _seen(split: Examples, seed: int | None, epoch: int) -> list[int]:
    return [int(i) for batch in _batches(split, 4, seed, epoch) for i in batch[1]]


def _same(left: list[list[Any]], right: list[list[Any]]) -> bool:
    if len(left) != len(right):
        return False
    pairs = (
        (a, b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def test_every_epoch_is_another_permutation_of_all_examples() -> None:
    split = chunks.make_examples((X, Y), ONE, "training data")
    first, second = _seen(split, 0, 1), _seen(split, 0, 2)
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert _seen(split, 0, 1) == first
    assert _seen(split, None, 1) == list(range(10))


@settings(max_examples=15, deadline=None)
@given(
    size=st.integers(1, 60),
    batch_size=st.integers(1, 24),
    seed=st.one_of(st.none(), st.integers(0, 2**31)),
    epoch=st.integers(1, 40),
    chunk_rows=st.integers(1, 40),
)
def test_batches_do_not_depend_on_where_the_data_lies(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    batch_size: int,
    seed: int | None,
    epoch: int,
    chunk_rows: int,
) -> None:
    random = np.random.default_rng(size)
    inputs = {
        "a": random.normal(size=(size, 3)).astype(np.float32),
        "b": random.integers(0, 255, (size, 2), np.uint8),
    }
    arrays = (inputs, np.arange(size, dtype=np.int64), random.random(size).astype(np.float32))
    expected = _batches(chunks.make_examples(arrays, ONE, "training data"), batch_size, seed, epoch)
    folder = tmp_path_factory.mktemp("node")
    (mapped, _), _ = load_shared(folder, Hyperparameters({}), lambda: (arrays, None))
    mirrored = chunks.make_examples(mapped, _two(), "training data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "CHUNK_BYTES", chunk_rows * 26)
        splits = [
            ArraySplit(arrays, ONE, resident_bytes=0),
            chunks.make_examples(mapped, ONE, "training data"),
            ArraySplit(tf.nest.map_structure(_read_only, mapped), ONE, resident_bytes=0),
            mirrored,
            ArraySplit(arrays, _two(), resident_bytes=0),
        ]
        for split in splits:
            assert _same(_batches(split, batch_size, seed, epoch), expected)
        assert _same(_batches(mirrored, batch_size, seed, epoch, replica=1), expected)


def _read_only(leaf: np.memmap[Any, Any]) -> Any:
    return np.load(str(leaf.filename), mmap_mode="r")


def test_large_data_comes_in_chunks_of_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.data.passes.CHUNK_BYTES", 40)
    large = ArraySplit((X, Y), ONE, resident_bytes=8)
    assert [len(chunk.order) for chunk in large.chunks(4, 3, 1)] == [4, 4, 2]


def test_memory_maps_are_not_copied_to_the_cpu(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    assert residence.can_be_aliased(x)
    tensor = residence.put_on_devices(x, ONE)
    assert np.shares_memory(np.asarray(memoryview(tensor)), x)
    assert not residence.can_be_aliased(x[1:])  # 4 bytes on: TensorFlow would abort
    assert not residence.can_be_aliased(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert not residence.can_be_aliased(X)


def test_an_author_may_change_his_array_afterwards() -> None:
    x = X.copy()
    placed = residence.put_on_devices(x, ONE)
    x[:] = -1
    assert placed.numpy().tolist() == X.tolist()


@pytest.mark.parametrize("convert", [tf.constant, np.asfortranarray, lambda a: a.astype(">f4")])
def test_other_arrays_become_the_same_batches(convert: Any) -> None:
    split = ArraySplit((convert(X), Y), ONE)
    streamed = ArraySplit((convert(X), Y), ONE, resident_bytes=0)
    for each in (split, streamed):
        assert [i for batch in _batches(each, 4, 1, 1) for i in batch[0][:, 0]] == _seen(each, 1, 1)


def test_data_frames_are_taken_by_position() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 0]}, index=range(10, 0, -1))
    split = ArraySplit((frame, frame["a"]), ONE, resident_bytes=0)
    (batch,) = _batches(split, 10, None, 1)
    assert batch[0].shape == (10, 2)
    assert batch[1].tolist() == X[:, :1].tolist()  # a column, as Keras takes a Series


def _dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def test_datasets() -> None:
    split = chunks.make_examples(_dataset(), ONE, "training data")
    assert split.size == 10
    assert sorted(_seen(split, 0, 1)) == list(range(10))
    assert _seen(split, 0, 1) == _seen(split, 0, 1)
    assert _seen(split, 0, 1) != _seen(split, 0, 2)
    assert _seen(chunks.make_examples(_dataset(), ONE, "again"), 0, 2) == _seen(split, 0, 2)
    assert _seen(chunks.make_examples(_dataset(), _two(), "mirrored"), 0, 2) == _seen(split, 0, 2)


def windows(**options: Any) -> tf.data.Dataset:
    return keras.utils.timeseries_dataset_from_array(
        np.arange(60, dtype=np.float32).reshape(20, 3),
        None,
        sequence_length=6,
        batch_size=None,
        **options,
    )


def test_single_examples_of_unknown_length_are_examples() -> None:
    """As Keras makes them: windows, whose targets are cut from them."""
    split = chunks.make_examples(
        windows().map(lambda window: (window[:-1], window[-1:, 0])), ONE, "training data"
    )
    assert split.size == 15
    assert [leaf.shape for leaf in split.example()] == [(1, 5, 3), (1, 1)]
    assert sum(len(chunk.order) for chunk in split.chunks(4, 3, 1)) == 15
    alone = chunks.make_examples(windows(), ONE, "training data")
    assert [leaf.shape for leaf in alone.example()] == [(1, 6, 3)]


def test_what_may_be_batches_says_how_to_tell_them_from_examples() -> None:
    with pytest.raises(
        DataError, match=r"dataset of batches, expected single examples; leave out batch\(\)"
    ):
        chunks.make_examples(windows().batch(4).map(lambda w: (w, w)), ONE, "training data")
    signature = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None], tf.float32)
    made = tf.data.Dataset.from_generator(
        lambda: iter([(np.ones((6, 3)), np.ones(6))] * 3), output_signature=signature
    )
    with pytest.raises(
        DataError,
        match=r"Where \(6, 3\), \(6,\), of the first element, are the shapes of one example",
    ):
        chunks.make_examples(made, ONE, "training data")
    told = made.map(lambda x, y: (tf.ensure_shape(x, [6, 3]), tf.ensure_shape(y, [6])))
    assert chunks.make_examples(told, ONE, "training data").size == 3


class Many:
    """More examples than there are numbers of 32 bits."""

    shape, dtype = (2**31, 2), np.dtype(np.uint8)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        raise AssertionError("nobody reads it")


def test_more_examples_than_can_be_numbered_are_refused() -> None:
    with pytest.raises(
        DataError,
        match="training data: arrays of 2,147,483,648 examples, expected at most 2,147,483",
    ):
        chunks.make_examples((Many(), Many()), ONE, "training data")


def test_datasets_of_unknown_size_are_counted() -> None:
    split = chunks.make_examples(_dataset().filter(lambda x, y: y < 7), ONE, "training data")
    assert split.size == 7
    assert sorted(_seen(split, 5, 1)) == list(range(7))


def test_the_next_chunk_is_made_while_the_present_one_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second_is_made, made = threading.Event(), []

    class Watched:
        shape, dtype = X.shape, X.dtype

        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, rows: Any) -> Any:
            made.append(threading.current_thread().name)
            if len(made) == 3:  # after the example's and the first chunk's
                second_is_made.set()
            return X[rows]

    monkeypatch.setattr("trainables.data.passes.CHUNK_BYTES", 40)
    split = ArraySplit((Watched(), Y), ONE, resident_bytes=0)
    split.example()
    chunks = split.chunks(4, 3, 1)
    next(chunks)
    assert second_is_made.wait(1500)
    assert all(name.startswith("data") for name in made[1:])
    assert len(list(chunks)) == 2
    until(lambda: len(made) >= 5)  # the next epoch's first, before anybody has asked for it
    assert _seen(split, 3, 2) == _seen(ArraySplit((X, Y), ONE), 3, 2)
    assert _seen(split, 4, 9) == _seen(ArraySplit((X, Y), ONE), 4, 9)  # another trial
    assert _seen(split, 4, 1) == _seen(ArraySplit((X, Y), ONE), 4, 1)


def test_a_split_that_is_dropped_lets_go_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.data.passes.CHUNK_BYTES", 40)
    x = X.copy()
    gone = weakref.ref(x)
    split = ArraySplit((x, Y), ONE, resident_bytes=0)
    _seen(split, 0, 1)
    _seen(split, 0, 2)
    gc.disable()
    try:
        del x, split
        until(lambda: gone() is None)  # a thread may be at work on the next epoch
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((X, Y[:5]), r"training data: arrays of \[5, 10\] examples"),
        ((X[:0], Y[:0]), "above 0"),
        ([X, Y], "list, expected"),
        ((X, [1, 2]), "a int within it, expected arrays"),
        ((X, np.float32(3)), "without axes"),
        ((np.array([[1], [1, 2]], object), Y[:2]), "do the rows differ in shape"),
        (_dataset().repeat(), "endless"),
        (_dataset().take(0), "empty dataset"),
        (_dataset().batch(2), "leave out batch"),
        (tf.data.Dataset.from_tensor_slices((X, X, X, X)), "expected x alone"),
        (tf.data.Dataset.from_tensor_slices((tf.ragged.constant([[1], [1, 2]]), [0, 1])), "ragged"),
    ],
)
def test_wrong_data(wrong: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        chunks.make_examples(wrong, ONE, "training data")


def test_examples_of_mixed_shapes() -> None:
    def examples() -> Any:
        yield from [(np.zeros(2, np.float32), 0), (np.zeros(3, np.float32), 1)]

    signature = (tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int32))
    split = chunks.make_examples(
        tf.data.Dataset.from_generator(examples, output_signature=signature), ONE, "training data"
    )
    with pytest.raises(DataError, match=r"cannot be read or batched"):
        list(split.chunks(2, None, 0))


def test_a_dataset_that_changes_its_size() -> None:
    sizes = iter([10, 10, 9])

    def examples() -> Any:
        yield from zip(X[: (count := next(sizes))], Y[:count], strict=True)

    signature = (tf.TensorSpec([1], tf.float32), tf.TensorSpec([], tf.int32))
    split = chunks.make_examples(
        tf.data.Dataset.from_generator(examples, output_signature=signature), ONE, "training data"
    )
    assert len(_seen(split, None, 1)) == 10
    with pytest.raises(DataError, match="9 examples, expected 10"):
        _seen(split, None, 2)


def batched(**options: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(
        (np.zeros((8, 2), np.float32), np.zeros(8, np.int32))
    ).batch(4, **options)


@pytest.mark.parametrize(
    "dataset",
    [
        batched(),
        batched(drop_remainder=True),
        batched(drop_remainder=True).map(lambda x, y: (x + 1, y)).cache().prefetch(1),
        batched(drop_remainder=True, num_parallel_calls=2).shuffle(3).take(1),
    ],
)
def test_batches_are_refused_also_where_their_size_is_known(dataset: Any) -> None:
    with pytest.raises(DataError, match="a dataset of batches, expected single examples"):
        chunks.make_examples(dataset, ONE, "training data")


def test_batches_that_were_taken_apart_are_examples() -> None:
    assert (
        chunks.make_examples(batched(drop_remainder=True).unbatch(), ONE, "training data").size == 8
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            (np.zeros(2), np.array([["a"], ["b"]])),
            "an array of texts as targets or weights, .*StringLookup",
        ),
        ((np.zeros(2), np.array(["a", "b"], object)), "an array of texts"),
        (
            (np.array(["a", None], object), np.zeros(2)),
            r"None \(NoneType\) in row 1 of an array of texts",
        ),
        (
            tf.data.Dataset.from_tensor_slices(([0, 1], ["a", "b"])),
            "a dataset with texts as targets .*StringLookup",
        ),
        (
            (np.array([[1], [1, 2]], object), np.zeros(2)),
            r"pad them: trainables\.data\.sequences\.buckets",
        ),
    ],
)
def test_texts_and_rows_of_several_lengths_say_the_way_out(wrong: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        chunks.make_examples(wrong, ONE, "training data")


def test_examples_of_several_lengths_in_a_dataset_say_the_way_out() -> None:
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros(2), 0), (np.zeros(3), 1)]),
        output_signature=(tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int32)),
    )
    with pytest.raises(
        DataError, match=r"cannot be read or batched: .* where examples differ in length, pad them"
    ):
        list(chunks.make_examples(dataset, ONE, "training data").chunks(2, None, 0))


def test_examples_are_spread_over_those_that_are_visited() -> None:
    whole = ArraySplit((X, Y), ONE)
    assert whole.spread_examples(4)[1].tolist() == [0, 3, 6, 9]
    assert whole.spread_examples(99)[1].tolist() == Y.tolist()
    assert whole.part(np.array([1, 2, 3, 8], np.int32)).spread_examples(2)[1].tolist() == [1, 8]
