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

__all__ = ["ArraySplit", "BatchSplit", "BucketSplit", "Chunk", "DataError", "Split", "StreamSplit", "split", "updates"]

Split: TypeAlias = ArraySplit | StreamSplit | BucketSplit | BatchSplit


def split(data: Any, strategy: tf.distribute.Strategy, name: str, resident_bytes: int | None = None) -> Split:
    """Wrap what a trainable's ``data`` returned for training or validation; raises DataError.

    ``resident_bytes``: how much may lie on each device at once, see `residence.fits`.
    """
    try:
        if isinstance(data, tf.data.Dataset):
            return StreamSplit(from_dataset(data), strategy)
        if isinstance(data, Stream):
            return StreamSplit(data, strategy)
        if isinstance(data, Buckets):
            return BucketSplit(data, strategy, resident_bytes)
        if isinstance(data, keras.utils.PyDataset):
            return BatchSplit(data, strategy)
        data = checks.examples(data)
        if isinstance(data, tuple):
            return ArraySplit(data, strategy, resident_bytes)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    raise DataError(f"{name}: {checks.unknown(data)}")
