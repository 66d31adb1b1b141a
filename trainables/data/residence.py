"""Placement of examples: shared between the workers of a node, and copied to or aliased by the devices of each.

The first worker runs the load and writes the arrays as .npy files into a folder of the node. All workers map these
files copy-on-write: they share one set of pages in the page cache, and no worker can change them for the others. The
owner of the folder removes it when the sweep is over; maps stay valid after that. On CPU devices, examples are placed
without a copy.

On GPUs, small integers are packed, bit for bit, into words of eight bytes. TensorFlow has no GPU kernel that gathers
integers of one or two bytes or unsigned ones, and it keeps every int32 argument of a compiled function in the host's
memory, so that each update would transfer its examples, or even all of them, to the GPU. Words of int64 are gathered
and unpacked on the GPU.
"""

from __future__ import annotations

import fcntl
import functools
import json
import operator
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from sweep.contract import memory_bytes
from sweep.hyperparameters import Hyperparameters, Reads, from_json, to_json
from sweep.read_recorder import Reads as RecordedReads
from trainables.data.sources import BlockArray, Buckets, DataError
from trainables.devices.replicas import Replicas

Loaded: TypeAlias = tuple[Any, Any]
"""Training data, and validation data or None, as a trainable's ``data`` returns them."""


def load_shared(
    folder: Path | None,
    hp: Hyperparameters,
    load: Callable[[], Loaded],
    has_left: Callable[[], object] = lambda: None,
    opened: RecordedReads | None = None,
) -> tuple[Loaded, Reads]:
    """Return the result of ``load()`` and the hyperparameters that it read; workers of a node share one load.

    In the result, each `BlockArray` is replaced by a memory map. The first worker writes the result to ``folder``,
    which is created if needed and gets a lock file. A worker whose trial has the same values for all hyperparameters
    that ``load`` read does not call ``load``. All arrays are then memory maps, copy-on-write, also in the first worker.
    While one worker loads, others that find no result wait. The folder belongs to one run of one sweep, so code and
    files stay the same; if it is None, nothing is shared. Each worker loads for itself if the data contains anything
    but None, `BlockArray` and arrays in memory, such as streams, Python objects or an author's own memory maps. It also
    does so if ``has_left``, called after the load, returns a true value: the load has then set attributes of the
    trainable, which other workers would lack. ``opened`` has the files and environment variables that ``load`` reads
    here. They are stored with the result, and those stored by the worker that loaded it are added to ``opened``.
    Raises: DataError: if the disk is too small, a `BlockArray` does not yield as many rows as its shape says, or shared
    data has dicts whose keys are no texts. Whatever ``load`` raises; nothing is stored then.
    """
    if folder is None:
        return _map_loaded(*_load_recording_reads(hp, load))
    shared = _find_shared(folder, hp)
    if shared is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locking(folder / "lock"):
            # another worker may have loaded the data while this one waited
            shared = _find_shared(folder, hp)
            if shared is None:
                loaded, reads = _load_recording_reads(hp, load)
                shareable = not has_left() and _can_be_shared(loaded)
                shared = folder / f"data-{len(list(folder.glob('data-*')))}"
                # Data that cannot be shared is recorded as well, so that no other worker waits for the lock.
                _write_shared(
                    loaded if shareable else None, reads, opened or RecordedReads(), shared
                )
                if not shareable:
                    return _map_loaded(loaded, reads)
                del loaded  # free the memory; this worker uses the files like all others
    structure, reads = _read_about(shared)
    if structure is None:
        return _map_loaded(*_load_recording_reads(hp, load))  # the data cannot be shared
    if opened is not None:
        opened.add(_read_opened(shared))
    return (_map_files(structure, shared), reads)


def map_block_arrays(arrays: Any) -> Any:
    """Return a nested structure of arrays with each `BlockArray` replaced by a memory map of a temporary file.

    The maps are copy-on-write, so writing to them changes no file. ``arrays`` itself is returned if it has no
    `BlockArray`. The files are deleted at once; their space is freed with the maps. Raises DataError if the disk is too
    small or a `BlockArray` does not yield as many rows as its shape says.
    """
    if not any(isinstance(leaf, BlockArray) for leaf in tf.nest.flatten(arrays)):
        return arrays
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        names = (Path(folder) / f"{i}.npy" for i in range(len(tf.nest.flatten(arrays))))

        def map_leaf(leaf: Any) -> Any:
            if isinstance(leaf, BlockArray):
                return _write_and_map(leaf, next(names))
            return leaf

        return tf.nest.map_structure(map_leaf, arrays)


def _write_and_map(rows: BlockArray, file: Path) -> Any:
    """Write a `BlockArray` to ``file`` as .npy, and return it as a copy-on-write memory map.

    Raises DataError if the disk is too small or the blocks do not yield as many rows as the shape says.
    """
    _check_free_space(file.parent, _compute_array_bytes(rows))
    _write_array(rows, file)
    return np.load(file, mmap_mode="c")


def _load_recording_reads(hp: Hyperparameters, load: Callable[[], Loaded]) -> tuple[Loaded, Reads]:
    """Return the result of ``load()`` and the hyperparameters that it read."""
    reads: Reads = {}
    with hp.recording(reads):
        loaded = load()
    return loaded, reads


def _map_loaded(loaded: Loaded, reads: Reads) -> tuple[Loaded, Reads]:
    """Return training and validation data with `map_block_arrays` applied to both, and ``reads`` unchanged."""
    return (map_block_arrays(loaded[0]), map_block_arrays(loaded[1])), reads


def _find_shared(folder: Path, hp: Hyperparameters) -> Path | None:
    """Return the folder of data that was loaded with the same values of all hyperparameters that the load read.

    It is the first by name, and may record that the data cannot be shared. None if there is none.
    """
    return next(
        (home for home in sorted(folder.glob("data-*")) if hp.matches_reads(_read_about(home)[1])),
        None,
    )


@contextmanager
def _locking(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``file`` inside the block, after waiting for other processes; the file is created."""
    # The kernel releases the lock of a process that dies.
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _can_be_shared(data: Any) -> bool:
    """Return whether data is made of arrays in memory, `BlockArray` and None alone.

    They may be nested in tuples, lists, dicts and `Buckets`, but not in subclasses of these, which could not be stored.
    Arrays of Python objects are excluded, and those that an author has mapped, because they are shared already.
    """
    if type(data) in (tuple, list, Buckets):
        return all(map(_can_be_shared, data))
    if type(data) is dict:
        return all(map(_can_be_shared, data.values()))
    in_memory = (
        isinstance(data, np.ndarray)
        and not isinstance(data, np.memmap)
        and not data.dtype.hasobject
    )
    return data is None or in_memory or isinstance(data, BlockArray)


def _write_shared(loaded: Any, reads: Reads, opened: RecordedReads, home: Path) -> None:
    """Write arrays, their structure, and the recorded hyperparameters and files to the folder ``home``.

    The folder is written under another name, "part" beside it, and then renamed, so that ``home`` is complete once it
    exists; after an error nothing is left. If ``loaded`` is None, the folder only records that the data cannot be
    shared.
    Raises: DataError: if the disk is too small, a dict has keys that are no texts, or a `BlockArray` does not yield as
    many rows as its shape says.
    """
    aside = home.with_name("part")
    shutil.rmtree(aside, ignore_errors=True)  # left by a worker that died while it wrote
    aside.mkdir()
    try:
        leaves = []
        for leaf in tf.nest.flatten(loaded):
            if leaf is not None:
                leaves.append(leaf)
        _check_free_space(aside, sum(map(_compute_array_bytes, leaves)))
        for i, leaf in enumerate(leaves):
            _write_array(leaf, aside / f"{i}.npy")
        structure = _encode_structure(loaded, iter(range(len(leaves))))
        about = {"structure": structure, "reads": to_json(reads), "opened": opened.to_json_dict()}
        (aside / "about.json").write_text(json.dumps(about))
        aside.rename(home)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _read_about(home: Path) -> tuple[Any, Reads]:
    """Return the structure of shared data (None if it is not shared) and the hyperparameters read to load it."""
    about = json.loads((home / "about.json").read_text())
    return about["structure"], from_json(about["reads"])


def _read_opened(home: Path) -> RecordedReads:
    """Return the files and environment variables that were read by the worker that loaded the shared data."""
    return RecordedReads.from_json_dict(json.loads((home / "about.json").read_text())["opened"])


def _write_array(leaf: Any, file: Path) -> None:
    """Write one array to ``file`` as .npy, with its data at a multiple of 64 bytes; a `BlockArray` block by block.

    Raises: DataError: if a `BlockArray` yields more or fewer rows than its shape says; the file then stays. OSError: if
    the disk is full.
    """
    if not isinstance(leaf, BlockArray):
        np.save(file, np.ascontiguousarray(leaf), allow_pickle=False)
        return
    target = np.lib.format.open_memmap(file, "w+", leaf.dtype, leaf.shape)
    # reserve space first: writing to a map on a full disk kills the process
    if hasattr(os, "posix_fallocate"):  # not on macOS
        with file.open("r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
    done = 0
    for block in leaf.blocks():
        if done + len(block) > len(leaf):
            raise DataError(f"at least {done + len(block)} rows were read, expected {len(leaf)}")
        target[done : done + len(block)] = block
        done += len(block)
    if done != len(leaf):
        raise DataError(f"{done} rows were read, expected {len(leaf)}")
    target.flush()


def _check_free_space(folder: Path, nbytes: int) -> None:
    """Raise DataError if the disk of ``folder`` has less than ``nbytes`` bytes free."""
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise DataError(
            f"the data takes {nbytes / 2**30:.1f} GiB, {folder} has {free / 2**30:.1f} GiB free; "
            "make room or set TMPDIR to a larger disk"
        )


def _compute_array_bytes(leaf: Any) -> int:
    """Return the bytes of an array or `BlockArray` of fixed-size items."""
    return int(np.prod(leaf.shape, dtype=np.int64)) * int(leaf.dtype.itemsize)


def _encode_structure(data: Any, numbers: Iterator[int]) -> Any:
    """Return a JSON value for a nested structure, with each array replaced by the next of ``numbers``.

    Arrays are numbered in the order of `tf.nest.flatten`; None stays None.
    Raises: DataError: if the keys of a dict are not strings.
    """
    match data:
        case None:
            return None
        case dict() if all(isinstance(name, str) for name in data):
            encoded = {}
            for name in sorted(data):  # `tf.nest.flatten` sorts the keys
                encoded[name] = _encode_structure(data[name], numbers)
            # a model may iterate over it in this order
            return {"dict": {name: encoded[name] for name in data}}
        case dict():
            raise DataError(f"a dict with the keys {list(data)}, expected names")
        case list():
            return {"list": [_encode_structure(part, numbers) for part in data]}
        case Buckets():  # before tuple, because it is one
            return {"buckets": _encode_structure(data.parts, numbers)}
        case tuple():
            return {"tuple": [_encode_structure(part, numbers) for part in data]}
        case _:
            return next(numbers)


def _map_files(part: Any, home: Path) -> Any:
    """Return data in the structure ``part`` with copy-on-write memory maps of the files in ``home``.

    ``part`` is JSON as `_encode_structure` makes it: an int is the number of an array, which is in ``<number>.npy``.
    """
    match part:
        case None:
            return None
        case int():
            return np.load(home / f"{part}.npy", mmap_mode="c")
        case {"dict": items}:
            return {name: _map_files(item, home) for name, item in items.items()}
        case {"buckets": parts}:
            return Buckets(_map_files(parts, home))
        case {"list": items}:
            return [_map_files(item, home) for item in items]
        case _:
            return tuple(_map_files(item, home) for item in part["tuple"])


COPIED_ON_CPU = 64 * 2**20  # bytes of arrays that are copied to a CPU device, by default
RESIDENT_ON_GPU = 2 * 2**30  # bytes of arrays that stay on a GPU or TPU, by default
ALIGNMENT = 64  # bytes; TensorFlow's kernels abort with a smaller alignment


def put_on_devices(arrays: Any, replicas: Replicas, *, given_away: bool = False) -> Any:
    """Return a nested structure of arrays as tensors on the devices of this process.

    If there is one replica in all processes, each array becomes a tensor on its device. Otherwise it becomes one
    distributed value with the whole array on every device. On GPUs, and if this process has several devices, integers
    that GPUs cannot gather become `Packed`; what is a tensor already is not packed. Tensors on CPU devices share the
    memory of arrays that `can_be_aliased` allows. With ``given_away``, they also share that of other aligned, writeable
    and contiguous arrays of numbers, which must not be used afterwards.
    """
    on_host = _put_on_host(arrays, replicas, given_away=given_away)
    if replicas.number == 1:
        with replicas.scope(), tf.device(replicas.devices[0]):
            return tf.nest.map_structure(_copy_tensor, on_host)
    return _distribute([on_host] * len(replicas.devices), replicas)


def put_per_device(parts: Sequence[Any], replicas: Replicas) -> Any:
    """Return distributed values that have the arrays of the n-th of ``parts`` on the n-th device of this process.

    ``parts`` has one nested structure of arrays for each device, all with the same structure and shapes, and the result
    has this structure. Integers are packed as in `put_on_devices`. The tensors may share the arrays' memory, as with
    ``given_away`` there, so the arrays must not be used afterwards.
    """
    return _distribute(
        [_put_on_host(arrays, replicas, given_away=True) for arrays in parts], replicas
    )


def _put_on_host(arrays: Any, replicas: Replicas, *, given_away: bool) -> Any:
    """Return the arrays as tensors in the host's memory, integers packed as in `put_on_devices`.

    ``given_away`` is as there.
    """
    # several logical CPU devices stand in for GPUs
    like_gpus = replicas.several_here or replicas.on_gpu

    def convert_leaf(leaf: Any) -> Any:
        if like_gpus and not isinstance(leaf, tf.Tensor) and needs_packing(np.dtype(leaf.dtype)):
            words, without_rows = pack(np.asarray(leaf))
            return Packed(
                _host_tensor(words, given_away=given_away),
                _host_tensor(without_rows, given_away=False),
            )
        return _host_tensor(leaf, given_away=given_away)

    return tf.nest.map_structure(convert_leaf, arrays)


def _distribute(parts: Sequence[Any], replicas: Replicas) -> Any:
    """Return distributed values with the tensors of the n-th of ``parts`` on the n-th device of this process.

    ``parts`` has one structure of tensors for each device, and the result has this structure.
    """

    def distribute_leaf(*tensors: Any) -> Any:
        def copy_to_device(index: int) -> Any:
            with tf.device(replicas.devices[index]):
                return _copy_tensor(tensors[index])

        return replicas.create_per_replica(copy_to_device)

    return tf.nest.map_structure(distribute_leaf, *parts)


def fit_on_devices(
    leaves: list[Any], replicas: Replicas, resident_bytes: int | None = None
) -> bool:
    """Return whether the arrays ``leaves`` of a data set are small enough to stay on each device as a whole.

    GPUs and TPUs hold up to ``resident_bytes`` (2 GiB if None). CPUs hold up to half of the machine's memory of arrays
    that can be aliased (nothing if its size is unknown), but only ``resident_bytes`` (64 MiB if None) of those that
    must be copied, because every worker of the node would hold a copy. Each limit holds for all ``leaves`` together.
    """
    copied = sum(measure_bytes(leaf) for leaf in leaves if not can_be_aliased(leaf))
    aliased = sum(map(measure_bytes, leaves)) - copied
    if not replicas.on_cpu:
        return copied + aliased <= (RESIDENT_ON_GPU if resident_bytes is None else resident_bytes)
    if resident_bytes is None:
        limit = COPIED_ON_CPU
    else:
        limit = resident_bytes
    return copied <= limit and aliased <= (memory_bytes() or 0) // 2  # the memory may be unknown


def can_be_aliased(leaf: Any) -> bool:
    """Return whether a tensor may share an array's memory without risk to others who use the array.

    The array must be mapped copy-on-write, not empty, contiguous, aligned to 64 bytes, and of integers, NumPy's floats
    or booleans in the machine's byte order. False for everything else, such as tensors.
    """
    return isinstance(leaf, np.memmap) and leaf.mode == "c" and _has_shareable_memory(leaf)


def allocate_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an uninitialised array, aligned so that `put_on_devices` with ``given_away`` can alias it on a CPU device.

    Arrays of objects are not aligned, because they cannot be aliased.
    """
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT  # bytes up to the next aligned address
    return raw[start : start + size].view(dtype).reshape(shape)


def measure_bytes(leaf: Any) -> int:
    """Return the size of an array or tensor in bytes; for an array of `str` or `bytes`, the sum of their lengths."""
    if np.dtype(leaf.dtype).hasobject:
        return sum(map(len, leaf.reshape(-1)))
    return int(np.prod(leaf.shape, dtype=np.int64)) * int(np.dtype(leaf.dtype).itemsize)


def _copy_tensor(tensor: Any) -> Any:
    """Return a copy of a tensor or `Packed` on the present device; on the same device it may share the memory."""
    if isinstance(tensor, Packed):
        return Packed(tf.identity(tensor.words), tf.identity(tensor.none))
    return tf.identity(tensor)


def _host_tensor(leaf: Any, *, given_away: bool) -> tf.Tensor:
    """Return an array as a tensor in the host's memory; tensors are returned as they are.

    It shares the memory of arrays that `can_be_aliased` allows and, with ``given_away``, of others where this is
    possible.
    """
    if isinstance(leaf, tf.Tensor):
        return leaf
    if can_be_aliased(leaf) or (given_away and _has_shareable_memory(leaf)):
        return tf.experimental.dlpack.from_dlpack(leaf.__dlpack__())
    with tf.device("/cpu:0"):
        return tf.convert_to_tensor(np.asarray(leaf))


def _has_shareable_memory(leaf: np.ndarray[Any, Any]) -> bool:
    """Return whether TensorFlow can use the memory of an array as it is, by DLPack."""
    return (
        leaf.dtype.kind in "biuf"
        and leaf.dtype.isnative
        and leaf.flags.c_contiguous
        and leaf.flags.writeable
        and leaf.size > 0
        and leaf.ctypes.data % ALIGNMENT == 0
    )


WORD = 8  # bytes


class Packed(tf.experimental.ExtensionType):
    """An array of small integers on a device, packed into words of eight bytes; `gather` unpacks rows.

    To TensorFlow it is a tensor, so it can be copied to replicas and passed to graphs.
    """

    words: tf.Tensor  # int64, of shape (rows, words per row)
    # of shape (0, *shape of a row): has only the dtype and the shape of a row, which may differ between buckets
    none: tf.Tensor

    @property
    def device(self) -> str:
        """The name of the device that holds the words."""
        return str(self.words.device)

    def rows(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the rows at the positions ``rows``, a vector of integers, unpacked to the original dtype and shape.

        They are cut and reshaped as unsigned integers only, because TensorFlow cuts and reshapes int32 on the host.
        """
        dtype = self.none.dtype
        words = tf.gather(self.words, rows)
        numbers = tf.bitcast(words, _get_unsigned_type(dtype))  # (rows, words, numbers in a word)
        row_shape = tf.shape(self.none)[1:]
        numbers_per_word = WORD // dtype.size
        flat = tf.reshape(numbers, [tf.shape(words)[0], tf.shape(words)[1] * numbers_per_word])
        # Sizes that are known while a graph is traced, otherwise None.
        known_numbers = self.none.shape[1:].num_elements()
        known_words = self.words.shape[1]
        fills_words = (
            known_numbers is not None
            and known_words is not None
            and known_numbers * dtype.size == known_words * WORD
        )
        if not fills_words:  # cut off the padding of each row's last word
            sizes = []
            for axis in range(self.none.shape.rank - 1):
                sizes.append(row_shape[axis])
            numbers_per_row = functools.reduce(operator.mul, sizes, 1)
            flat = flat[:, :numbers_per_row]
        unpacked = tf.reshape(flat, tf.concat([tf.shape(words)[:1], row_shape], 0))
        unpacked.set_shape([rows.shape[0], *self.none.shape[1:]])
        if unpacked.dtype == dtype:
            return unpacked
        return tf.bitcast(unpacked, dtype)


def needs_packing(dtype: np.dtype[Any]) -> bool:
    """Return whether GPUs can gather numbers of this type only if they are packed.

    This holds for all integers except int64 in the machine's byte order, and not for booleans.
    """
    return dtype.kind in "iu" and dtype != np.int64


def pack(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Pack the rows of an integer array into words of eight bytes; return the words and an array without rows.

    The words are int64 of shape (rows, words per row). They are a view of the array if its rows fill whole words and it
    is contiguous and in the machine's byte order. Otherwise they are a copy, and zeros fill each row's last word. The
    second array has the shape (0, *shape of a row) and the dtype of the original, for unpacking.
    """
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    size = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    words_per_row = -(-size // WORD)
    if size == words_per_row * WORD and array.size:  # -1 below is ambiguous for an empty array
        return array.reshape(len(array), -1).view(np.int64), array[:0]
    padded = np.zeros((len(array), words_per_row * WORD), np.uint8)
    flat = array.reshape(len(array), size // array.dtype.itemsize)
    padded[:, :size] = flat.view(np.uint8).reshape(len(array), size)
    return padded.view(np.int64), array[:0]


def gather(leaf: Any, rows: tf.Tensor) -> tf.Tensor:
    """Return the rows of ``leaf``, a tensor on a device or a `Packed` array, at the positions ``rows``, as a tensor.

    Rows of a `Packed` array are unpacked.
    """
    rows = tf.convert_to_tensor(rows)
    if isinstance(leaf, Packed):
        return leaf.rows(rows)
    return tf.gather(leaf, rows)


def _get_unsigned_type(dtype: tf.DType) -> tf.DType:
    """Return the type of unsigned integers that are as large as those of ``dtype``."""
    return {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}[dtype.size]
