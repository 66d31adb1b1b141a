"""The records of TFRecord files, read by their places: one after the other for a pass, or those that are needed."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.lib.io import tf_record

from trainables.data.sources import DataError

OPEN_FILES = 64


@dataclass(frozen=True, eq=False)
class Records:
    """Numbered through all files, those of a file one after the other."""

    files: Sequence[str]
    offsets: Sequence[np.ndarray[Any, np.dtype[np.int64]]]  # of a file's records in it
    _open: OrderedDict[int, Any] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # a reader stands at one place

    def __len__(self) -> int:
        return sum(map(len, self.offsets))

    @property
    def spans(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The first number of each file's records, and the first behind them, a row for each file."""
        counts = np.array([len(offsets) for offsets in self.offsets], np.int64)
        return np.stack([np.cumsum(counts) - counts, np.cumsum(counts)], axis=1)

    def fetched(self, numbers: tf.Tensor) -> tf.Tensor:
        """The records of these numbers, inside of a `tf.data` pipeline."""
        found = tf.numpy_function(self._read, [numbers], tf.string, stateful=False)
        found.set_shape([None])
        return found

    def _read(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        starts = self.spans[:, 0]
        found = np.empty(len(numbers), np.object_)
        with self._lock:
            for i, number in enumerate(numbers):
                file = int(np.searchsorted(starts, number, "right")) - 1
                found[i] = self._reader(file).read(int(self.offsets[file][number - starts[file]]))[0]
        return found

    def _reader(self, file: int) -> Any:
        if file not in self._open:
            self._open[file] = tf_record.tf_record_random_reader(self.files[file])
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(file)
        return self._open[file]


def records_of(files: Sequence[str]) -> Records:
    """All records of uncompressed files; raises DataError for damaged ones."""
    return Records(files, [_offsets(file) for file in files])


def _offsets(file: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Hop from length to length: 8 bytes of it, 4 of its checksum, the data, 4 of theirs (TFRecord format)."""
    found: list[int] = []
    position, end = 0, Path(file).stat().st_size
    with Path(file).open("rb", buffering=0) as shard:
        while position < end:
            found.append(position)
            head = shard.read(8)
            position += 16 + (struct.unpack("<Q", head)[0] if len(head) == 8 else end)
            if position > end:
                raise DataError(
                    f"{file}: damaged after record {len(found) - 1}, or compressed; expected plain TFRecords"
                )
            shard.seek(position)
    return np.array(found, np.int64)
