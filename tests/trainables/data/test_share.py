"""What one of several processes reads of each batch: its own slices, and the same examples in them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.data import files
from trainables.data.chunks import BucketSplit, DataError, make_examples
from trainables.data.files import tfrecords
from trainables.data.passes import Walk
from trainables.data.share import Share
from trainables.data.sources import Buckets, Visits
from trainables.devices.replicas import Replicas
from trainables.replicas import slices

pytestmark = pytest.mark.keras

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
# replicas, of each process, micro-batches
SHAPES = (
    (2, 1, 1),
    (4, 1, 1),
    (4, 2, 1),
    (4, 2, 3),
    (3, 1, 2),
)
SIZE, BATCH = 23, 5


class Counted:
    """Rows that are made when they are asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, size: int = SIZE) -> None:
        self.shape, self.asked = (size, 2), list[int]()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        found = np.arange(len(self))[rows]
        self.asked += found.tolist()
        return np.stack([found, found * found], axis=1).astype(np.float32)


@pytest.mark.parametrize(("replicas", "local", "micro_batches"), SHAPES)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 32])
def test_it_is_what_the_replicas_compute(
    replicas: int, local: int, micro_batches: int, size: int
) -> None:
    parts = replicas * micro_batches
    for rank in range(replicas // local):
        mine = set[int]()
        for micro_batch, replica in itertools.product(
            range(micro_batches), range(rank * local, (rank + 1) * local)
        ):
            cut = slices.cut(tf.constant(size), micro_batch * replicas + replica, parts)
            mine |= set(range(int(cut.start), int(cut.stop)))
        found = Share(replicas, local, rank, micro_batches).mask_batch(size)
        assert set(np.flatnonzero(found)) == mine


def test_inside_of_a_pipeline_it_is_the_same() -> None:
    for size, batch_size in ((23, 5), (20, 5), (3, 8)):
        share = Share(3, 1, 1, 2)
        wanted = share.make_filter(size, batch_size)
        assert [bool(wanted(tf.constant(i, tf.int64))) for i in range(size)] == list(
            share.mask_batches(size, batch_size)
        )


def source(kind: str, folder: Path) -> Any:
    x = np.arange(SIZE, dtype=np.float32)
    if kind == "arrays":
        return make_examples((Counted(), x), ONE, "training data", resident_bytes=0)
    if kind == "buckets":
        parts = ((x[:12, None], x[:12]), (np.stack([x[12:]] * 2, 1), x[12:]))
        return BucketSplit(Buckets(parts), ONE, 0)
    if kind == "dataset":
        return make_examples(
            tf.data.Dataset.from_tensor_slices((x[:, None], x)), ONE, "training data"
        )
    return make_examples(recorded(folder), ONE, "training data")


def recorded(folder: Path) -> Any:
    for shard, numbers in enumerate(np.array_split(np.arange(SIZE), 3)):
        with tf.io.TFRecordWriter(str(folder / f"{shard}.records")) as file:
            for number in numbers:
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
                file.write(
                    tf.train.Example(
                        features=tf.train.Features(feature={"n": feature})
                    ).SerializeToString()
                )
    return tfrecords(
        str(folder / "*.records"),
        {"n": tf.io.FixedLenFeature([], tf.int64)},
        lambda given: (tf.cast(given["n"], tf.float32)[None], given["n"]),
        buffer=7,
    )


def batches(data: Any, share: Share | None, seed: int | None, skipped: int = 0) -> list[list[int]]:
    """The targets of each batch of a pass, -1 in the place of what is another's."""
    found: list[list[int]] = []
    for chunk in data.chunks(BATCH, seed, 2, skipped, share):
        targets = chunk.tensors[1].numpy()[chunk.order].astype(int)
        mine = (
            np.ones(len(targets), bool)
            if share is None
            else share.mask_batches(len(targets), BATCH)
        )
        if share is not None:
            assert len(chunk.tensors[1]) == share.count_most_needed(len(targets), BATCH)
        cut = np.where(mine, targets, -1).tolist()
        found += [cut[start : start + BATCH] for start in range(0, len(cut), BATCH)]
    return found


@pytest.mark.parametrize("kind", ["arrays", "buckets", "dataset", "records"])
@pytest.mark.parametrize(("replicas", "local", "micro_batches"), SHAPES[:4])
def test_each_reads_its_part_of_the_same_batches(
    kind: str, replicas: int, local: int, micro_batches: int, tmp_path: Path
) -> None:
    data = source(kind, tmp_path)
    for seed, skipped in ((None, 0), (3, 2)):
        whole = batches(data, None, seed, skipped)
        shares = [Share(replicas, local, rank, micro_batches) for rank in range(replicas // local)]
        parts = [batches(data, share, seed, skipped) for share in shares]
        assert [
            [max(found) for found in zip(*each, strict=True)] for each in zip(*parts, strict=True)
        ] == whole
        for share, part in zip(shares, parts, strict=True):
            for batch, mine in zip(whole, part, strict=True):
                wanted = share.mask_batch(len(batch))
                assert mine == np.where(wanted, batch, -1).tolist()


def test_rows_that_are_anothers_are_not_asked_for() -> None:
    x = Counted()
    data = make_examples(
        (x, np.arange(SIZE, dtype=np.float32)), ONE, "training data", resident_bytes=0
    )
    x.asked.clear()
    (chunk,) = data.chunks(BATCH, None, 1, 0, Share(2, 1, 1))
    mine = np.flatnonzero(Share(2, 1, 1).mask_batches(SIZE, BATCH))
    assert sorted(set(x.asked)) == mine.tolist()
    np.testing.assert_array_equal(chunk.tensors[0].numpy()[chunk.order][mine, 0], mine)


def test_records_that_are_anothers_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, found, read = recorded(tmp_path), list[int](), files.Records.read

    def noted(self: files.Records, numbers: Any) -> Any:
        if self is stream.fetched.__self__:  # and none of another test's that is read ahead
            found.extend(numbers)
        return read(self, numbers)

    monkeypatch.setattr(files.Records, "read", noted)
    data, share = make_examples(stream, ONE, "training data"), Share(2, 1, 0)
    list(data.chunks(BATCH, None, 1, 0, share))
    assert found == np.flatnonzero(share.mask_batches(SIZE, BATCH)).tolist()


def test_more_files_than_may_be_open_are_read_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "OPEN_FILES", 1)
    data, share = make_examples(recorded(tmp_path), ONE, "training data"), Share(2, 1, 0)
    assert batches(data, share, 5) == [
        np.where(share.mask_batch(len(batch)), batch, -1).tolist()
        for batch in batches(data, None, 5)
    ]


def test_a_pass_that_is_cut_into_epochs_goes_on_where_it_stopped(tmp_path: Path) -> None:
    data, share = source("records", tmp_path), Share(2, 1, 1)

    def seen(walk: Walk) -> list[int]:
        return [
            int(target)
            for number in (1, 2, 3)
            for chunk in walk.epoch(number)
            for target in chunk.tensors[1].numpy()[chunk.order][
                share.mask_batches(len(chunk.order), BATCH)
            ]
        ]

    def walk() -> Walk:
        return Walk(data, BATCH, 4, steps=2, share=share)

    whole = Walk(data, BATCH, 4, steps=2)
    expected = [
        int(target)
        for number in (1, 2, 3)
        for chunk in whole.epoch(number)
        for target in chunk.tensors[1].numpy()[chunk.order][
            share.mask_batches(len(chunk.order), BATCH)
        ]
    ]
    assert seen(walk()) == expected


@pytest.mark.parametrize("found", [21, 26])
def test_a_dataset_of_another_size_than_counted_is_refused(found: int) -> None:
    sizes = iter([SIZE, *[found] * 9])

    def examples() -> Any:
        return iter([(np.float32([i]), i) for i in range(next(sizes))])

    spec = (tf.TensorSpec([1], tf.float32), tf.TensorSpec([], tf.int32))
    data = make_examples(
        tf.data.Dataset.from_generator(examples, output_signature=spec), ONE, "training data"
    )
    data.visit(Visits(shuffle=False))
    with pytest.raises(DataError, match="as counted; is the dataset random"):
        list(data.chunks(BATCH, 1, 1, 0, Share(2, 1, 1)))


@pytest.mark.parametrize(("replicas", "local", "micro_batches"), SHAPES)
@pytest.mark.parametrize(
    ("size", "batch_size"), [(23, 5), (20, 5), (3, 8), (1, 4), (40, 16), (9, 2)]
)
def test_each_device_has_its_rows_where_the_order_says(
    replicas: int, local: int, micro_batches: int, size: int, batch_size: int
) -> None:
    lengths = set[int]()
    for rank in range(replicas // local):
        each, lies = Share(replicas, local, rank, micro_batches).arrange_by_replica(
            size, batch_size
        )
        for device, places in enumerate(each):
            one = Share(replicas, 1, rank * local + device, micro_batches)
            mine = np.flatnonzero(one.mask_batches(size, batch_size))
            assert (places[lies[mine]] == mine).all()
            lengths.add(len(places))
    assert len(lengths) == 1, "one shape on all devices"
    if batch_size >= replicas * micro_batches:  # else all have all of it
        assert (
            lengths.pop()
            <= size / replicas + micro_batches * -(-size // batch_size) + replicas * micro_batches
        )


@pytest.mark.parametrize("kind", ["arrays", "dataset", "records", "batches"])
def test_bytes_are_sent_once(kind: str, tmp_path: Path) -> None:
    """What lies on all devices together is a chunk and its filling, not a chunk for each of them."""
    strategy, size, batch_size, replicas = mirrored(), 64, 16, 4
    x = np.arange(size * 8, dtype=np.uint8).reshape(size, 8)
    y = np.arange(size, dtype=np.float32)
    given: Any = (Rows(x), y)
    if kind == "dataset":
        given = tf.data.Dataset.from_tensor_slices((x, y))
    elif kind == "records":
        given = recorded(tmp_path)
        size, batch_size = SIZE, 4
    elif kind == "batches":
        given = Batches(x, y, batch_size)
    data = make_examples(given, strategy, "training data", resident_bytes=0)
    share = Share(replicas, replicas, 0)
    sent, whole, rows = 0, 0, 0
    for chunk, everything in zip(
        data.chunks(batch_size, 3, 1, 0, share), data.chunks(batch_size, 3, 1, 0), strict=True
    ):
        for place in range(replicas):
            own = [on(strategy, leaf, place) for leaf in leaves(chunk.tensors)]
            sent += sum(leaf.numpy().nbytes for leaf in own)
            whole += sum(
                on(strategy, leaf, place).numpy().nbytes for leaf in leaves(everything.tensors)
            )
            mine = Share(replicas, 1, place).mask_batches(len(chunk.order), batch_size)
            targets = on(strategy, chunk.tensors[1], place).numpy()[chunk.order[mine]]
            expected = on(strategy, everything.tensors[1], place).numpy()[everything.order[mine]]
            np.testing.assert_array_equal(targets, expected)
            rows += len(targets)
    # the last batch has fewer examples than there are devices
    assert rows == size + (kind == "records")
    assert sent < 1.5 * whole / replicas if kind == "records" else sent * replicas == whole


def mirrored() -> Replicas:
    devices = [f"/cpu:{place}" for place in range(4)]
    return Replicas(
        tf.distribute.MirroredStrategy(devices, tf.distribute.HierarchicalCopyAllReduce())
    )


def leaves(tensors: Any) -> list[Any]:
    """Words of packed arrays, and tensors as they are."""
    return [getattr(leaf, "words", leaf) for leaf in tensors]


def on(replicas: Replicas, value: Any, place: int) -> Any:
    found = replicas.of_each(value)[place]
    return getattr(found, "words", found)


class Rows(Counted):
    """An array that is not resident."""

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self._rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        return self._rows[rows]


class Batches(keras.utils.PyDataset):
    def __init__(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], size: int) -> None:
        super().__init__()
        self._x, self._y, self._size = x, y, size

    def __len__(self) -> int:
        return len(self._x) // self._size

    def __getitem__(self, number: int) -> Any:
        rows = slice(number * self._size, (number + 1) * self._size)
        return self._x[rows], self._y[rows]
