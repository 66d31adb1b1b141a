"""The time that a trial spends before it trains, and a TensorBoard profile of some of its updates."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import tensorflow as tf

from trainables.data.chunks import Chunk


class Stopwatch:
    """Measures the seconds that named parts of a preparation take."""

    def __init__(self) -> None:
        self.started = time.time()
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def begin(self) -> None:
        """Set the time from which the next part is measured to now."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the seconds since the last call of `lap` or `begin` (or since the start) to ``laps[part]``."""
        now = time.perf_counter()
        self.laps[part] = self.laps.get(part, 0.0) + now - self._last
        self._last = now


SKIPPED, KEPT = 2, 5  # updates; the first ones warm up caches


def split_for_profile(chunk: Chunk, batch_size: int) -> Iterator[tuple[Chunk, bool]]:
    """Yield a chunk's first 2 batches, the next 5 and the rest as three chunks, each with whether it is to be profiled.

    Only the 5 are to be profiled. A chunk of at most 7 batches is yielded as a whole, to be profiled. The numbers are
    `SKIPPED` and `KEPT`.
    """
    # ``chunk.order`` has the row number of each example, in the order of the training.
    start = SKIPPED * batch_size
    stop = (SKIPPED + KEPT) * batch_size
    if len(chunk.order) <= stop:
        yield chunk, True
        return
    for first, last, kept in (
        (0, start, False),
        (start, stop, True),
        (stop, len(chunk.order), False),
    ):
        yield Chunk(chunk.tensors, chunk.order[first:last]), kept


def profiling(folder: Path | None) -> AbstractContextManager[object]:
    """Return a context that writes a TensorBoard profile of its block into ``folder``; with None, it does nothing."""
    if folder is None:
        return contextlib.nullcontext()
    profile: AbstractContextManager[object] = tf.profiler.experimental.Profile(str(folder))
    return profile
