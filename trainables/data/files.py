"""Readers of data in files, for an author's `data`: record shards, Parquet shards and folders of images.

Parquet and images become arrays, which are read once per node, block by block, and then mapped by all workers. Records
stay a stream.
"""

from __future__ import annotations

import glob
import hashlib
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainables import tensorflow_private
from trainables.data.sources import (
    SHUFFLE_BUFFER,
    BlockArray,
    DataError,
    Stream,
    mix_seeds,
    permutation,
    shuffle_dataset,
)

OPEN_FILES = 64


@dataclass(frozen=True, eq=False)
class Records:
    """The records of several TFRecord files, numbered from 0 through all files; at most 64 files are open at once."""

    files: Sequence[str]
    # for each file, the byte positions of its records
    offsets: Sequence[np.ndarray[Any, np.dtype[np.int64]]]
    # open readers by the number of their file, the one that was used last at the end
    _open: OrderedDict[int, Any] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # a reader has one position

    def __len__(self) -> int:
        return sum(map(len, self.offsets))

    @property
    def file_spans(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """An array of shape (files, 2): the number of each file's first record, and that of its last record plus 1."""
        counts = np.array([len(offsets) for offsets in self.offsets], np.int64)
        return np.stack([np.cumsum(counts) - counts, np.cumsum(counts)], axis=1)

    def fetch(self, numbers: tf.Tensor) -> tf.Tensor:
        """Return the records with the numbers ``numbers``, a vector of integers, as a string tensor in this order.

        Records are not decoded. Call it inside a `tf.data` pipeline, which then calls `read` in this process.
        """
        found = tf.numpy_function(self.read, [numbers], tf.string, stateful=False)
        found.set_shape([None])
        return found

    def read(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the records with the numbers ``numbers``, in this order, as an object array of undecoded bytes.

        Several threads may call it at once; they read one after the other.
        """
        starts = self.file_spans[:, 0]  # number of the first record of each file
        found = np.empty(len(numbers), np.object_)
        with self._lock:
            for i, number in enumerate(numbers):
                file = int(np.searchsorted(starts, number, "right")) - 1
                offset = int(self.offsets[file][number - starts[file]])
                # The reader returns the record and the position after it.
                found[i] = self._reader(file).read(offset)[0]
        return found

    def _reader(self, file: int) -> Any:
        """Return a reader of the file with this number, which is opened if necessary.

        If more than 64 are open then, the one that was not used for the longest time is given up.
        """
        if file not in self._open:
            self._open[file] = tensorflow_private.tf_record_random_reader(self.files[file])
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)  # the file that was not read for the longest time
        self._open.move_to_end(file)
        return self._open[file]


def index_records(files: Sequence[str]) -> Records:
    """Return an index of all records of uncompressed TFRecord files, for which only the records' lengths are read.

    The records are numbered in the order of ``files``.
    Raises: DataError: if a file ends within a record, because it is damaged or compressed. OSError: if a file cannot be
    read.
    """
    return Records(files, [_find_record_offsets(file) for file in files])


def _find_record_offsets(file: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the byte positions of all records of an uncompressed TFRecord file.

    Raises DataError if the file ends within a record. A record of the TFRecord format has 8 bytes of length, 4 of their
    checksum, the data, and 4 of the data's checksum. Only the lengths are read; the checksums are not verified.
    """
    found: list[int] = []
    position = 0
    end = Path(file).stat().st_size
    with Path(file).open("rb", buffering=0) as shard:
        while position < end:
            found.append(position)
            head = shard.read(8)
            # 16: all but the data. If the file ends within the length, `end` makes the position too large.
            position += 16 + (struct.unpack("<Q", head)[0] if len(head) == 8 else end)
            if position > end:
                raise DataError(
                    f"{file}: damaged after record {len(found) - 1}, or compressed; expected plain TFRecords"
                )
            shard.seek(position)
    return np.array(found, np.int64)


SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
BLOCK_BYTES = 16 * 2**20
HANDED_OVER = 32  # images that the decoding threads return at once
INTERLEAVED = 8


# ---- records


def tfrecords(
    pattern: str,
    features: Mapping[str, Any],
    example: Callable[[dict[str, tf.Tensor]], tuple[Any, ...]],
    buffer: int = SHUFFLE_BUFFER,
) -> Stream:
    """Return a stream of the uncompressed TFRecord shards that match a glob pattern.

    All shards are read through once, but only the lengths of their records. ``features`` has the form that
    `tf.io.parse_single_example` expects; ``example`` maps one parsed record to (x, y) or (x, y, sample_weight). A
    shuffled pass visits the shards in its own order, eight at a time, and shuffles in a buffer of ``buffer`` examples.
    Validation data, and training with ``shuffle`` false, keep the order of the sorted file names.
    Raises: DataError: if no file matches, or one is damaged or compressed.
    """
    shards = _find_files(pattern)
    records = index_records(shards)
    size = len(records)
    shuffled_at_once = min(size, buffer)

    def parse(record: tf.Tensor) -> tuple[Any, ...]:
        return example(tf.io.parse_single_example(record, dict(features)))

    def list_numbers(span: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(span[0], span[1])

    # Passes over the records and, in the same order, over the numbers of the records, which cost less to skip.
    read_records = partial(_visit_shards, tf.data.TFRecordDataset, shards, shuffled_at_once)
    read_numbers = partial(_visit_shards, list_numbers, [*records.file_spans], shuffled_at_once)
    return Stream(
        ordered=read_records,
        size=size,
        buffered=lambda other_buffer: tfrecords(pattern, features, example, other_buffer),
        maps=(parse,),
        places=read_numbers,
        fetched=records.fetch,
    )


def _visit_shards(
    open_shard: Callable[[tf.Tensor], tf.data.Dataset],
    shard_items: Sequence[Any],
    buffer: int,
    seed: int | None,
    number: int,
) -> tf.data.Dataset:
    """Return pass ``number`` over all elements of shards: in the shards' order, or with a seed mixed and shuffled.

    ``open_shard`` returns the dataset of a shard's elements; it is called with the shard's item in ``shard_items``.
    With a seed, the shards are visited in an order of the pass, `INTERLEAVED` at a time, and the elements are shuffled
    in a buffer of ``buffer``.
    """
    order = permutation(len(shard_items), seed, number)
    items = tf.data.Dataset.from_tensor_slices([shard_items[int(place)] for place in order])
    open_at_once = 1 if seed is None else INTERLEAVED
    elements = items.interleave(
        open_shard,
        cycle_length=open_at_once,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if seed is None:
        return elements
    # before records are parsed, because they are smaller than examples
    return shuffle_dataset(elements, buffer, mix_seeds(seed, number))


# ---- Parquet


def parquet(
    pattern: str,
    inputs: str | Sequence[str],
    target: str,
    sample_weight: str | None = None,
    dtype: str = "float32",
) -> tuple[BlockArray, ...]:
    """Return the Parquet shards that match a glob pattern, as (x, y) or (x, y, sample_weight).

    ``inputs`` names columns of numbers, or one column with lists of equal length. x is a matrix, also for one column of
    numbers, and is cast to ``dtype``. y and the weights keep their stored types, and are vectors if they have one
    number per row. Rows are in the order of the sorted file names; they are read in batches when the arrays are written
    to disk.
    Raises: DataError: if no file matches, none has a row, a column is missing, or the first row has nulls or values
    that are not numbers. Later rows with such values, or unlike the first one, raise it when they are read.
    """
    import pyarrow.parquet as pq

    if isinstance(inputs, str):
        columns = [inputs]
    else:
        columns = list(inputs)
    all_columns = [*columns, target, *([sample_weight] if sample_weight else [])]
    # Open one file at a time: there may be more files than a process may have open.
    row_counts = {name: _count_parquet_rows(name, all_columns) for name in _find_files(pattern)}
    size = sum(row_counts.values())
    if not size:
        raise DataError(f"{pattern}: none of its {len(row_counts)} files has a row")
    first_name = next(name for name, count in row_counts.items() if count)

    def make_array(columns: list[str], dtype: str | None) -> BlockArray:
        """Return the array of some columns, cast to `dtype` if there is one; only the first row is read now."""
        with pq.ParquetFile(first_name, memory_map=True) as file:
            first = _convert_to_matrix(
                next(file.iter_batches(1, columns=columns)), columns, first_name
            )
        flat = dtype is None and first.shape[1] == 1  # targets or weights with one number per row
        kind = np.dtype(dtype or first.dtype)

        row_bytes = max(8 * first.shape[1], 1)  # numbers have at most 8 bytes; lists may be empty
        rows_at_once = max(BLOCK_BYTES // row_bytes, 1)

        def read_file(name: str) -> Iterator[np.ndarray[Any, Any]]:
            with pq.ParquetFile(name, memory_map=True) as file:
                for batch in file.iter_batches(rows_at_once, columns=columns):
                    yield _convert_to_matrix(batch, columns, name)

        # Yields the whole array, when it is written to disk.
        def blocks() -> Iterator[np.ndarray[Any, Any]]:
            for name in row_counts:
                for block in read_file(name):
                    # With `dtype`, blocks of any type are cast to it.
                    if block.shape[1:] != first.shape[1:] or (not dtype and block.dtype != kind):
                        raise DataError(
                            f"{name}: column {columns[0]!r} has rows of {block.shape[1]} x {block.dtype}, "
                            f"expected {first.shape[1]} x {first.dtype} as in {first_name}"
                        )
                    yield (block[:, 0] if flat else block).astype(kind, copy=False)

        return BlockArray((size,) if flat else (size, first.shape[1]), kind, blocks)

    others = [make_array([column], None) for column in all_columns[len(columns) :]]
    return (make_array(columns, dtype), *others)


def _count_parquet_rows(name: str, columns: Sequence[str]) -> int:
    """Return the number of rows of a Parquet file, as its metadata says.

    Raises DataError if it lacks one of the ``columns``.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(name, memory_map=True) as file:
        present = file.schema_arrow.names
        count = int(file.metadata.num_rows)
    missing = [column for column in columns if column not in present]
    if missing:
        raise DataError(
            f"{name}: no column {', '.join(map(repr, missing))}; it has: {', '.join(present)}"
        )
    return count


def _convert_to_matrix(batch: Any, columns: list[str], name: str) -> np.ndarray[Any, Any]:
    """Return columns of a record batch side by side as a matrix of shape (rows, values).

    A column of lists becomes several columns of the matrix. Columns of several types are converted to one that holds
    them, as NumPy does. ``name`` is the file's, for error messages.
    Raises: DataError: if a column has nulls, lists of different lengths, or values that are neither numbers nor
    booleans.
    """
    import pyarrow as pa

    parts = []
    for column in columns:
        values = batch.column(column)
        listed = (
            pa.types.is_list(values.type)
            or pa.types.is_large_list(values.type)  # written by Polars
            or pa.types.is_fixed_size_list(values.type)
        )
        numbers = values.flatten() if listed else values
        kind = numbers.type
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            raise DataError(
                f"{name}: column {column!r} holds {values.type}, expected numbers or lists of numbers"
            )
        nulls = values.null_count or numbers.null_count  # whole rows, or else within lists
        if nulls:
            raise DataError(f"{name}: column {column!r} has {nulls} nulls, expected none")
        if listed and len(set(values.value_lengths().to_pylist())) > 1:
            raise DataError(
                f"{name}: column {column!r} holds lists of several lengths, expected one"
            )
        parts.append(numbers.to_numpy(zero_copy_only=False).reshape(len(values), -1))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


# ---- images


def image_folder(
    path: str | Path,
    size: tuple[int, int],
    channels: int = 3,
    part: tuple[float, float] = (0.0, 1.0),
    *,
    keep: bool = True,
) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return images (n, height, width, channels) as uint8, and their labels: the indices of their sorted sub-folders.

    Only files directly in a sub-folder count. ``size`` is (height, width); images of another size are resized
    (bilinear, antialiased). ``part`` is (from, to) and selects files by a hash of their paths within the folder, which
    is uniform in [0, 1): (0, 0.8) and (0.8, 1) are disjoint. With ``keep``, images are decoded once and written to
    disk; otherwise they are decoded at each use. The labels are int32.
    Raises: DataError: if the folder is missing or has no sub-folders, a sub-folder has a file with another ending than
    `SUFFIXES`, or no image is in the part. An image that cannot be decoded raises it only when it is read.
    """
    root = Path(path)
    labelled = _list_image_files(root)
    taken = []  # those in the part
    for file, label in labelled:
        if part[0] <= _hash_name(file.relative_to(root)) < part[1]:
            taken.append((str(file), label))
    if not taken:
        raise DataError(
            f"{root}: {len(labelled)} images, none of them in the part {part[0]} to {part[1]}"
        )
    images = Images(tuple(file for file, _ in taken), (*size, channels))
    labels = np.array([label for _, label in taken], np.int32)
    if keep:
        return BlockArray(images.shape, images.dtype, images.blocks), labels
    return images, labels


def _list_image_files(root: Path) -> list[tuple[Path, int]]:
    """Return the files in the sub-folders of an image folder, sorted by path, each with the label of its sub-folder.

    Raises DataError if the folder is missing or has no sub-folders, or a file has another ending than `SUFFIXES`.
    """
    found = []
    others = []
    for label, name in enumerate(classes(root)):
        for file in sorted((root / name).iterdir()):
            if not file.is_file():
                continue
            found.append((file, label))
            if file.suffix.lower() not in SUFFIXES:
                others.append(str(file))
    if others:
        raise DataError(
            f"{others[0]} and {len(others) - 1} more are no images, expected {', '.join(SUFFIXES)}"
        )
    return found


def classes(path: str | Path) -> tuple[str, ...]:
    """Return the names of the sub-folders of an image folder, in the order of their labels, which is that of `sorted`.

    Hidden folders, whose names begin with a dot, are left out.
    Raises: DataError: if the folder is missing or has no sub-folders.
    """
    root = Path(path)
    names: list[str] = []
    if root.is_dir():
        for entry in sorted(root.iterdir()):
            if entry.is_dir() and not entry.name.startswith("."):
                names.append(entry.name)
    if not names:
        raise DataError(
            f"{root}: {'no sub-folders' if root.is_dir() else 'no folder'}, expected one for each class"
        )
    return tuple(names)


class Images:
    """Image files as an array of uint8 (n, height, width, channels), decoded and resized when it is indexed.

    Indexing raises DataError if a file cannot be decoded.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, files: tuple[str, ...], size: tuple[int, int, int]) -> None:
        self.files = np.array(files)
        self.shape: tuple[int, int, int, int] = (len(files), *size)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray[Any, Any]:
        """Return the images at ``rows``, a slice or an array of indices, as a new array.

        They are decoded now. Raises DataError, which names the file, if one cannot be decoded.
        """
        files = self.files[rows]
        images = np.empty((len(files), *self.shape[1:]), np.uint8)
        with tf.device("/cpu:0"):
            decoded = tf.data.Dataset.from_tensor_slices(files).map(
                self._decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
            )
            # returned one by one, they would wait for Python
            blocks = decoded.batch(HANDED_OVER).prefetch(1)
        done = 0  # number of images that are decoded
        try:
            for block in blocks.as_numpy_iterator():
                images[done : done + len(block)] = block
                done += len(block)
        except tf.errors.OpError as error:
            raise DataError(
                f"{self._find_undecodable(files)}: cannot be decoded as PNG, JPEG, GIF or BMP"
            ) from error
        return images

    def concatenate(self, other: Images) -> Images:
        """Return these images followed by those of ``other``; raises ValueError if their sizes or channels differ.

        No image is decoded.
        """
        if self.shape[1:] != other.shape[1:]:
            raise ValueError(f"images of {self.shape[1:]} and {other.shape[1:]}, expected one size")
        return Images((*self.files.tolist(), *other.files.tolist()), self.shape[1:])

    def blocks(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield all images in order, in arrays of at most 16 MiB, or of one image.

        Raises DataError if a file cannot be decoded.
        """
        step = max(BLOCK_BYTES // int(np.prod(self.shape[1:])), 1)
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def _decode(self, file: tf.Tensor) -> tf.Tensor:
        """Return the image in the file with this name as uint8 of this array's height, width and channels.

        An image of another size is resized. Raises `tf.errors.OpError` if the file cannot be read or decoded.
        """
        height, width, channels = self.shape[1:]
        image = tf.io.decode_image(
            tf.io.read_file(file), channels=channels, expand_animations=False
        )
        if tf.reduce_any(tf.shape(image)[:2] != [height, width]):
            resized = tf.image.resize(image, (height, width), antialias=True)
            image = tf.cast(tf.clip_by_value(tf.round(resized), 0.0, 255.0), tf.uint8)
        return tf.ensure_shape(image, self.shape[1:])

    def _find_undecodable(self, files: np.ndarray[Any, Any]) -> str:
        """Return the name of the first of these files that cannot be decoded, for an error message."""
        for file in files:
            try:
                self._decode(tf.constant(file))
            except tf.errors.OpError:
                return str(file)
        return f"one of {len(files)} images"  # none fails any more, such as a file that was still being written


def _hash_name(file: Path) -> float:
    """Return a number in [0, 1) from the hash of a relative file path, the same on every machine."""
    digest = hashlib.sha256(file.as_posix().encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _find_files(pattern: str) -> list[str]:
    """Return the sorted names of the files that match a glob pattern. Raises DataError if there are none."""
    files = sorted(glob.glob(pattern))  # noqa: PTH207 - the pattern may be absolute
    if not files:
        raise DataError(f"no file matches {pattern!r}")
    return files
