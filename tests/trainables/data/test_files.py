from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from trainables.data import chunks, files, residence, trial_parts
from trainables.data.chunks import DataError
from trainables.data.passes import Examples
from trainables.data.sources import Stream
from trainables.devices.replicas import Replicas

pytestmark = pytest.mark.keras

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))


# ---- records


def _write_records(folder: Path, shards: int = 4, each: int = 25) -> str:
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard}.tfrecord")) as writer:
            for i in range(shard * each, (shard + 1) * each):
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, -i])),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                }
                record = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(record.SerializeToString())
    return str(folder / "train-*.tfrecord")


def _records(pattern: str, buffer: int = 10) -> Stream:
    features = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
    }
    return files.tfrecords(pattern, features, lambda f: (f["x"], f["y"]), buffer)


def _seen(split: Examples, seed: int | None, epoch: int) -> list[int]:
    return [int(y) for chunk in split.chunks(8, seed, epoch) for y in chunk.tensors[1].numpy()]


def test_records_are_counted_and_shuffled_anew_each_epoch(tmp_path: Path) -> None:
    split = chunks.make_examples(_records(_write_records(tmp_path)), ONE, "training data")
    assert split.size == 100
    assert split.example()[0].shape == (1, 2)
    assert _seen(split, None, 1) == list(range(100))
    first, second = _seen(split, 7, 1), _seen(split, 7, 2)
    assert sorted(first) == sorted(second) == list(range(100))
    assert len({tuple(order) for order in (first, second, _seen(split, 8, 1))}) == 3
    # Resumed in another process, epoch 2 comes without epoch 1 before it.
    again = chunks.make_examples(_records(str(tmp_path / "train-*.tfrecord")), ONE, "training data")
    assert _seen(again, 7, 2) == second
    doubled = _records(str(tmp_path / "train-*.tfrecord")).map(lambda x, y: (x, 2 * y))
    assert _seen(chunks.make_examples(doubled, ONE, "training data"), 7, 2) == [
        2 * y for y in second
    ]


@pytest.mark.parametrize("cut", [-3, -20, 5])
def test_damaged_records(tmp_path: Path, cut: int) -> None:
    pattern = _write_records(tmp_path, shards=1, each=5)
    file = tmp_path / "train-0.tfrecord"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"train-0.tfrecord: damaged after record"):
        _records(pattern)


# ---- Parquet


def _write_parquet(folder: Path, **columns: Any) -> str:
    table = pa.table(
        {"a": np.arange(10.0), "b": np.arange(10) * 2, "y": np.arange(10) % 3, **columns}
    )
    for i, start in enumerate((0, 4)):
        rows = table.slice(start, 4 if start == 0 else 6)
        pq.write_table(rows, folder / f"part-{i}.parquet", row_group_size=3)
    return str(folder / "part-*.parquet")


def _loaded(arrays: Any) -> Any:
    return residence.map_block_arrays(arrays)


def test_parquet_columns_become_a_matrix(tmp_path: Path) -> None:
    pattern = _write_parquet(tmp_path, w=np.linspace(0, 1, 10, dtype=np.float32))
    rows = files.parquet(pattern, ["b", "a"], "y", "w")
    x, y, w = _loaded(rows)
    assert x.dtype == np.float32
    assert x.tolist() == [[2.0 * i, i] for i in range(10)]
    assert (y.dtype, y.tolist()) == (np.int64, [i % 3 for i in range(10)])
    assert (w.dtype, w.shape) == (np.float32, (10,))
    assert chunks.make_examples(rows, ONE, "training data").size == 10


def test_parquet_lists_become_rows(tmp_path: Path) -> None:
    pattern = _write_parquet(tmp_path, pixels=[[i, i + 1, i + 2] for i in range(10)])
    x, _ = _loaded(files.parquet(pattern, "pixels", "y", dtype="uint8"))
    assert x.dtype == np.uint8
    assert x.tolist() == [[i, i + 1, i + 2] for i in range(10)]


def test_a_single_column_is_a_matrix_too(tmp_path: Path) -> None:
    x, y = files.parquet(_write_parquet(tmp_path), "a", "b")
    assert (x.shape, y.shape) == ((10, 1), (10,))


def test_large_lists_become_rows_too(tmp_path: Path) -> None:
    """As Polars writes lists."""
    rows = [[i, i + 1] for i in range(10)]
    pattern = _write_parquet(tmp_path, pixels=pa.array(rows, pa.large_list(pa.int64())))
    assert _loaded(files.parquet(pattern, "pixels", "y"))[0].tolist() == rows


def test_there_may_be_more_parquet_files_than_a_process_may_open(tmp_path: Path) -> None:
    count = 80
    for i in range(count):
        pq.write_table(pa.table({"a": [1.0 * i], "y": [i]}), tmp_path / f"{i:03}.parquet")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    present = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (present + count // 2, before[1]))
    try:
        _, y = _loaded(files.parquet(str(tmp_path / "*.parquet"), "a", "y"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert y.tolist() == [*range(count)]


@pytest.mark.parametrize(
    ("columns", "inputs", "message"),
    [
        ({}, ["a", "z"], r"part-0.parquet: no column 'z'; it has: a, b, y"),
        ({"s": ["t"] * 10}, ["s"], "column 's' holds string, expected numbers"),
        ({"n": [1.0] * 9 + [None]}, ["n"], r"part-1.parquet: column 'n' has 1 nulls"),
        ({"l": [[1.0]] * 9 + [[1.0, 2.0]]}, ["l"], "several lengths"),
        ({"l": [[1.0]] * 4 + [[1.0, 2.0]] * 6}, ["l"], "rows of 2 x float64, expected 1 x float64"),
    ],
)
def test_wrong_parquet(
    tmp_path: Path, columns: dict[str, Any], inputs: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _loaded(files.parquet(_write_parquet(tmp_path, **columns), inputs, "y"))


# ---- images


def _write_images(folder: Path, each: int = 6) -> Path:
    for label, name in enumerate(("cats", "dogs")):
        (folder / name).mkdir()
        for i in range(each):
            side = 4 if i else 7
            image = np.full((side, side, 3), 6 * i + label, np.uint8)
            encoded = tf.io.encode_png(image) if i % 2 else tf.io.encode_jpeg(image, quality=100)
            tf.io.write_file(str(folder / name / f"{i}.{'png' if i % 2 else 'jpg'}"), encoded)
    return folder


@pytest.mark.parametrize("keep", [True, False])
def test_images_by_folder(tmp_path: Path, *, keep: bool) -> None:
    root = _write_images(tmp_path)
    images, labels = _loaded(files.image_folder(root, (4, 4), keep=keep))
    assert images.shape == (12, 4, 4, 3)
    assert images.dtype == np.uint8
    assert labels.tolist() == [0] * 6 + [1] * 6
    expected = np.array([6 * i + label for label in (0, 1) for i in range(6)])
    assert np.abs(images[:][:, 0, 0, 0].astype(int) - expected).max() <= 1  # JPEG
    assert (images[:][1::2, 0, 0, 0] == expected[1::2]).all()
    (root / ".ipynb_checkpoints").mkdir()
    assert files.classes(root) == ("cats", "dogs")


def test_images_kept_and_decoded_at_each_use_give_the_same_batches(tmp_path: Path) -> None:
    root = _write_images(tmp_path)
    kept = chunks.make_examples(files.image_folder(root, (4, 4)), ONE, "kept")
    decoded = chunks.make_examples(
        files.image_folder(root, (4, 4), keep=False), ONE, "decoded", resident_bytes=0
    )
    (one,), (other,) = kept.chunks(5, 3, 1), decoded.chunks(5, 3, 1)
    for a, b in zip(one.tensors, other.tensors, strict=True):
        assert a.numpy()[one.order].tobytes() == b.numpy()[other.order].tobytes()


def test_images_that_are_decoded_at_each_use_are_joined(tmp_path: Path) -> None:
    root = _write_images(tmp_path)
    low, high = (
        files.image_folder(root, (4, 4), part=part, keep=False) for part in ((0.0, 0.5), (0.5, 1.0))
    )
    expected = np.concatenate([part[0][np.arange(len(part[0]))] for part in (low, high)])
    for join in (trial_parts.join_data, trial_parts.concatenate_parts):
        images, labels = join(low, high)
        np.testing.assert_array_equal(images[np.arange(len(images))], expected)
        assert len(labels) == len(images)
    other = files.image_folder(root, (5, 5), keep=False)
    with pytest.raises(DataError, match=r"images of \(4, 4, 3\) and \(5, 5, 3\)"):
        trial_parts.join_data(low, other)
    for join in (trial_parts.join_data, trial_parts.concatenate_parts):
        with pytest.raises(DataError, match="decoded at each use, and others are not"):
            join(files.image_folder(root, (4, 4)), low)


def test_parts_of_a_folder_have_no_image_in_common(tmp_path: Path) -> None:
    root = _write_images(tmp_path, each=40)
    parts = [
        files.image_folder(root, (4, 4), part=part, keep=False)[0].files.tolist()
        for part in ((0, 0.7), (0.7, 1))
    ]
    assert len(set(parts[0]) | set(parts[1])) == len(parts[0]) + len(parts[1]) == 80
    assert 40 < len(parts[0]) < 70


def test_wrong_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        files.image_folder(tmp_path / "none", (4, 4))
    with pytest.raises(DataError, match="no sub-folders"):
        files.image_folder(tmp_path, (4, 4))
    root = _write_images(tmp_path)
    (root / "dogs" / "5.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"dogs/5.png: cannot be decoded"):
        _loaded(files.image_folder(root, (4, 4)))
    (root / "cats" / "notes.txt").write_text("a")
    with pytest.raises(DataError, match=r"notes.txt and 0 more are no images"):
        files.image_folder(root, (4, 4))


@pytest.mark.parametrize("constructor", ["records", "parquet"])
def test_no_files(tmp_path: Path, constructor: str) -> None:
    pattern = str(tmp_path / "*.none")
    with pytest.raises(DataError, match="no file matches"):
        _records(pattern) if constructor == "records" else files.parquet(pattern, "a", "b")
