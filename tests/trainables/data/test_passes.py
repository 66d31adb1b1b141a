from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data import files, passes, sequences, trial_parts
from trainables.data.chunks import ArraySplit, DataError, make_examples
from trainables.data.passes import Examples, HeldOut, Walk, gather_array_rows
from trainables.data.sources import Stream
from trainables.data.streams import StreamSplit
from trainables.devices.replicas import Replicas

pytestmark = pytest.mark.keras

X, Y = np.arange(20, dtype=np.float32)[:, None], np.arange(20)
ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
BATCH = 3  # seven updates a pass, the last one of two examples


class Turning(keras.utils.PyDataset):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.rows = np.arange(20)

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        rows = self.rows[index * BATCH : (index + 1) * BATCH]
        return X[rows], Y[rows]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.rows)


def records(folder: Path) -> Stream:
    for shard in range(3):
        with tf.io.TFRecordWriter(str(folder / f"{shard}.tfrecord")) as writer:
            for y in Y[shard::3]:
                feature = {"y": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(y)]))}
                writer.write(
                    tf.train.Example(
                        features=tf.train.Features(feature=feature)
                    ).SerializeToString()
                )
    kept = {"y": tf.io.FixedLenFeature([], tf.int64)}
    return files.tfrecords(
        str(folder / "*.tfrecord"),
        kept,
        lambda row: (tf.cast(row["y"], tf.float32)[None], row["y"]),
    )


def source(kind: str, folder: Path) -> Examples:
    match kind:
        case "resident":
            return ArraySplit((X, Y), ONE)
        case "gathered":
            return ArraySplit((X, Y), ONE, resident_bytes=0)
        case "fold":
            return ArraySplit((X, Y), ONE).part(trial_parts.fold_rows(Y % 2, 20, 0, 4, 3)[0])
        case "stream":
            return make_examples(
                tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x + 1, y)),
                ONE,
                "training data",
            )
        case "records":
            return StreamSplit(records(folder), ONE)
        case "batches":
            return make_examples(Turning(), ONE, "training data")
        case "threads":
            return make_examples(Turning(workers=2), ONE, "training data")
        case _:
            rows = [np.arange(1, 2 + y % 5) for y in Y]
            return make_examples(sequences.buckets(rows, Y, count=2), ONE, "training data")


KINDS = ("resident", "gathered", "fold", "stream", "records", "batches", "threads", "buckets")


def seen(chunks: Iterator[Any]) -> list[list[int]]:
    """The targets of each batch."""
    found = []
    for chunk in chunks:
        y = chunk.tensors[1].numpy()
        for start in range(0, len(chunk.order), BATCH):
            found.append(y[chunk.order[start : start + BATCH]].tolist())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_of_any_length_are_the_passes_one_after_the_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "CHUNK_BYTES", 70)
    data = source(kind, tmp_path)
    whole = [batch for number in range(1, 8) for batch in seen(data.chunks(BATCH, 5, number))]
    assert len(whole) == 7 * data.updates(BATCH)
    for steps in (2, 11):
        walk = Walk(data, BATCH, 5, steps)
        epochs = [seen(walk.epoch(number)) for number in range(1, len(whole) // steps + 1)]
        assert [len(epoch) for epoch in epochs] == [steps] * len(epochs)
        assert [batch for epoch in epochs for batch in epoch] == whole[: steps * len(epochs)]
        for number in (3, len(epochs)):  # resumed, gone back, and beside
            fresh = Walk(source(kind, tmp_path), BATCH, 5, steps)
            assert (
                seen(fresh.epoch(number))
                == seen(walk.read_epoch_again(number))
                == epochs[number - 1]
            )


@pytest.mark.parametrize("kind", ["stream", "threads", "gathered", "batches"])
def test_another_reader_does_not_disturb_the_walk(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "CHUNK_BYTES", 30)
    data = source(kind, tmp_path)
    alone, beside = Walk(data, BATCH, 5, 4), Walk(data, BATCH, 5, 4)
    expected = [seen(alone.epoch(number)) for number in range(1, 8)]
    for number, epoch in enumerate(expected, 1):
        assert seen(beside.epoch(number)) == epoch
        assert seen(beside.read_epoch_again(number)) == epoch
        other = Walk(data, BATCH, 9, 5).epoch(number)  # a trial that ends within an epoch
        next(other)


def test_a_stream_is_read_once_for_a_pass_and_wound_forward_without_its_maps() -> None:
    opened: list[int] = []
    mapped: list[int] = []

    def ordered(seed: int | None, number: int) -> tf.data.Dataset:
        opened.append(number)
        return tf.data.Dataset.from_tensor_slices((X, Y))

    def noted(x: Any, y: Any) -> Any:
        def note(value: Any) -> Any:
            mapped.append(int(value))
            return value

        value = tf.numpy_function(note, [y], y.dtype, stateful=False)
        value.set_shape(())
        return x, value

    data = StreamSplit(Stream(ordered, 20).map(noted), ONE)
    opened.clear()
    walk = Walk(data, BATCH, 5, 2)
    for number in range(1, 5):  # 8 updates: the second pass has begun
        assert len(seen(walk.epoch(number))) == 2
    assert opened == [1, 2]
    again = StreamSplit(Stream(ordered, 20).map(noted), ONE)
    opened.clear()
    mapped.clear()
    assert seen(Walk(again, BATCH, 5, 2).epoch(3)) == [[12, 13, 14], [15, 16, 17]]
    assert opened == [1]
    assert min(mapped) == 12


def test_a_dataset_that_has_grown_is_noticed() -> None:
    sizes = iter([20, 21, 21])

    def examples() -> Any:
        yield from range(next(sizes))

    spec = tf.TensorSpec([], tf.int64)
    dataset = tf.data.Dataset.from_generator(examples, output_signature=spec).map(
        lambda y: (y[None], y)
    )
    walk = Walk(make_examples(dataset, ONE, "training data"), BATCH, 5, 3)
    with pytest.raises(DataError, match="more than 20 examples as counted; is the dataset random"):
        seen(walk.epoch(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_batches_of_the_validation_data(kind: str, tmp_path: Path) -> None:
    data = source(kind, tmp_path)
    whole = seen(HeldOut(data, BATCH).chunks())
    for steps in (1, 4, len(whole)):
        held_out = HeldOut(data, BATCH, steps)
        assert seen(held_out.chunks()) == whole[:steps]
        assert held_out.updates == steps


def test_parts_of_batches_are_the_same_examples() -> None:
    data = source("resident", Path())
    held_out = HeldOut.of(
        Hyperparameters({"validation_steps": 2, "validation_batch_size": 8}), data, 4, parts=3
    )
    assert held_out is not None
    assert held_out.part_size == 2
    assert [len(chunk.order) for chunk in held_out.chunks()] == [16]
    assert HeldOut.of(Hyperparameters({"validation_steps": 2}), None, 4, 1) is None


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"steps_per_epoch": 0}, "steps_per_epoch is 0, expected a whole number from 1"),
        ({"steps_per_epoch": None}, "steps_per_epoch is None, expected a whole number"),
        ({"steps_per_epoch": True}, "steps_per_epoch is True"),
        ({"steps_per_epoch": 2.5}, "2.5, expected a whole number"),
        ({"validation_steps": -1}, "validation_steps is -1, expected a whole number from 1"),
        (
            {"validation_steps": 2},
            r"validation_steps is 2, but .* 1 batches of 256 \(validation_batch_size\); leave",
        ),
    ],
)
def test_wrong_numbers_are_refused(params: Any, message: str) -> None:
    hp, data = Hyperparameters(params), source("resident", Path())
    with pytest.raises((TypeError, ValueError), match=message):
        Walk.of(hp, data, BATCH, 0), HeldOut.of(hp, data, BATCH, 1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_read_the_same_rows(threads: int, tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(0, 256, (300, 128, 128, 3), np.uint8)
    np.save(tmp_path / "x.npy", whole)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = np.random.default_rng(1).permutation(300)[:271].astype(np.int32)
    np.testing.assert_array_equal(gather_array_rows(mapped, rows, threads), whole[rows])


@pytest.mark.parametrize("threads", [1, 3])
def test_what_cannot_be_read_is_told(threads: int) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        gather_array_rows(
            np.zeros((300, 128, 128, 3), np.uint8), np.arange(100, 400, dtype=np.int32), threads
        )
