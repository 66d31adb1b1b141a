"""A TensorBoard profile of a few steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import tensorflow as tf

from trainables.data.chunks import Chunk

SKIPPED, KEPT = 2, 5  # updates: the first ones warm caches up


def parts(chunk: Chunk, batch_size: int) -> Iterator[tuple[Chunk, bool]]:
    """The chunk in up to three parts, with whether each is to be profiled."""
    start, stop = SKIPPED * batch_size, (SKIPPED + KEPT) * batch_size
    if len(chunk.order) <= stop:
        yield chunk, True
        return
    for first, last, kept in ((0, start, False), (start, stop, True), (stop, len(chunk.order), False)):
        yield Chunk(chunk.tensors, chunk.order[first:last]), kept


def kept(folder: Path | None) -> AbstractContextManager[object]:
    """Profile what runs inside the block into ``folder``; None: do not."""
    if folder is None:
        return contextlib.nullcontext()
    profiling: AbstractContextManager[object] = tf.profiler.experimental.Profile(str(folder))
    return profiling
