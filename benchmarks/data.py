"""Measure the memory of two workers on one node that read the same 313 MB of images, and their speed.

    python benchmarks/data.py

For each way to feed a trial, prints the private memory of a worker beyond that of an idle TensorFlow, after two
shuffled epochs while the other worker still runs, and the seconds of the last epoch.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES, BATCH_SIZE, EPOCHS, WORKERS = 100_000, 64, 2, 2
WAYS = ("from_tensor_slices", "arrays, each its own", "arrays, shared")


def main() -> None:
    """Measure all ways, one after the other."""
    print(f"{'way':24}{'private MB':>12}{'epoch s':>9}")
    found = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            held, epoch_s = found[way] = _measured(way, Path(folder))
        print(f"{way:24}{held:12.0f}{epoch_s:9.2f}")
    (before, slow), (after, fast) = found[WAYS[0]], found[WAYS[-1]]
    print(
        f"{WAYS[0]} to shared: memory {before / max(after, 1):.0f} to 1, time {slow / fast:.1f} to 1"
    )


def _measured(way: str, folder: Path) -> tuple[float, float]:
    """Return the private memory in MB and the seconds of the last epoch, as means over the workers."""
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(WORKERS), context.Queue()
    workers = [
        context.Process(target=_work, args=(way, folder, barrier, queue)) for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    found = [queue.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    held, epoch_s = (statistics.mean(numbers) for numbers in zip(*found, strict=True))
    return held, epoch_s


def _work(way: str, folder: Path, barrier: Barrier, queue: Any) -> None:
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for _ in tf.data.Dataset.range(10).shuffle(10).batch(2):
        tf.reduce_sum(tf.random.stateless_uniform([10], [0, 1])).numpy()
    idle = _private_mb()
    epoch = _feed(way, folder)
    for number in range(1, EPOCHS + 1):
        began = time.perf_counter()
        epoch(number)
        epoch_s = time.perf_counter() - began
    barrier.wait(600)
    queue.put((_private_mb() - idle, epoch_s))
    barrier.wait(600)


def _feed(way: str, folder: Path) -> Callable[[int], float]:
    """Return a function that runs through an epoch, given its number, and sums all pixels."""
    import tensorflow as tf

    from sweep.hyperparameters import Hyperparameters
    from trainables.data import chunks
    from trainables.data.residence import load_shared
    from trainables.devices.replicas import Replicas

    if way == "from_tensor_slices":
        dataset = (
            tf.data.Dataset.from_tensor_slices(_arrays())
            .shuffle(EXAMPLES)
            .batch(BATCH_SIZE)
            .prefetch(2)
        )
        return lambda epoch: float(
            dataset.reduce(0.0, lambda total, batch: total + tf.reduce_sum(batch[0]))
        )

    node = folder if way.endswith("shared") else None
    (arrays, _), _ = load_shared(node, Hyperparameters({}), lambda: (_arrays(), None))
    split = chunks.make_examples(
        arrays, Replicas(tf.distribute.OneDeviceStrategy("/cpu:0")), "training data"
    )

    @tf.function(reduce_retracing=True)
    def summed(x: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for start in tf.range(0, tf.size(order), BATCH_SIZE):
            total += tf.reduce_sum(tf.gather(x, order[start : start + BATCH_SIZE]))
        return total

    return lambda epoch: sum(
        float(summed(chunk.tensors[0], tf.constant(chunk.order)))
        for chunk in split.chunks(BATCH_SIZE, 0, epoch)
    )


def _arrays() -> tuple[np.ndarray[Any, Any], ...]:
    return np.ones((EXAMPLES, 28, 28, 1), np.float32), np.zeros(EXAMPLES, np.int32)


def _private_mb() -> float:
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[0].startswith("Private_")) / 1000


if __name__ == "__main__":
    main()
