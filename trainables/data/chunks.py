"""A trial's examples: checked, counted, and cut into chunks that a compiled loop runs through.

A chunk is a part of a pass that lies on the devices. Data that fits is one chunk, placed once and
visited in a fresh order in each pass; larger arrays and streams come as a sequence of chunks, each read
and placed while the one before trains. The loop does not know the difference.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import keras
import tensorflow as tf

from trainables.data import checks
from trainables.data.ahead import Chunk, updates
from trainables.data.arrays import ArraySplit
from trainables.data.batches import BatchSplit
from trainables.data.buckets import BucketSplit
from trainables.data.sources import Buckets, DataError, Stream, from_dataset
from trainables.data.streams import StreamSplit
from trainables.devices.replicas import Replicas

__all__ = ["ArraySplit", "BatchSplit", "BucketSplit", "Chunk", "DataError", "Split", "StreamSplit", "split", "updates"]

Split: TypeAlias = ArraySplit | StreamSplit | BucketSplit | BatchSplit


def split(data: Any, replicas: Replicas, name: str, resident_bytes: int | None = None) -> Split:
    """Wrap what a trainable's ``data`` returned for training or validation; raises DataError.

    ``resident_bytes``: how much may lie on each device at once, see `residence.fits`.
    """
    try:
        if isinstance(data, tf.data.Dataset):
            return StreamSplit(from_dataset(data), replicas)
        if isinstance(data, Stream):
            return StreamSplit(data, replicas)
        if isinstance(data, Buckets):
            return BucketSplit(data, replicas, resident_bytes)
        if isinstance(data, keras.utils.PyDataset):
            return BatchSplit(data, replicas)
        data = checks.examples(data)
        if isinstance(data, tuple):
            return ArraySplit(data, replicas, resident_bytes)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    raise DataError(f"{name}: {checks.unknown(data)}")
