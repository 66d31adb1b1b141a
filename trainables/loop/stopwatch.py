"""Where a trial's time went: before it trained, and in a few of its updates as a TensorBoard profile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import tensorflow as tf

from trainables.data.chunks import Chunk


class Stopwatch:
    """Seconds by part, added up lap by lap."""

    def __init__(self) -> None:
        self.started = time.time()
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def begin(self) -> None:
        """Let the next lap begin now."""
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last lap as this part's."""
        now = time.perf_counter()
        self.laps[part] = self.laps.get(part, 0.0) + now - self._last
        self._last = now


SKIPPED, KEPT = 2, 5  # updates: the first ones warm caches up


def profiled_parts(chunk: Chunk, batch_size: int) -> Iterator[tuple[Chunk, bool]]:
    """The chunk in up to three parts, with whether each is to be profiled."""
    start, stop = SKIPPED * batch_size, (SKIPPED + KEPT) * batch_size
    if len(chunk.order) <= stop:
        yield chunk, True
        return
    for first, last, kept in ((0, start, False), (start, stop, True), (stop, len(chunk.order), False)):
        yield Chunk(chunk.tensors, chunk.order[first:last]), kept


def profiled(folder: Path | None) -> AbstractContextManager[object]:
    """Profile what runs inside the block into ``folder``; None: do not."""
    if folder is None:
        return contextlib.nullcontext()
    profiling: AbstractContextManager[object] = tf.profiler.experimental.Profile(str(folder))
    return profiling
