"""How fast the host feeds what does not fit on the devices: images a second, and where the time goes.

    python benchmarks/feeding.py                  # some seconds a line
    python benchmarks/feeding.py --seconds 0.2    # to see that it runs

Each line reads shuffled chunks of a pass as a trial does, for two logical devices that gather as GPUs do, and throws
them away: memory maps of bytes, image files that are decoded at each use, a `tf.data.Dataset`. ``img/s`` is by clock,
``a core`` by second of CPU: 16 cores are to feed 10,000 images of 32x32 or 3,000 of 224x224 a second, which is 625 or
188 a core. ``read`` and ``put`` are the shares of the time that go into reading rows, and into packing and placing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

from trainables.data import files, residence
from trainables.data.chunks import make_examples
from trainables.data.share import Share
from trainables.devices.replicas import Replicas

GOALS = {32: 625, 224: 188}  # images a second a core
MEGABYTES = {32: 300, 224: 600}  # of a data set in arrays
IMAGES = 400  # files
BATCH = 512


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one line after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each line")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="as many as a trial has CPUs"
    )
    parser.add_argument("--only", default="", help="lines that begin so")
    given = parser.parse_args(arguments)
    tf.config.threading.set_inter_op_parallelism_threads(given.threads)
    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    _say(f"{'what':34}{'img/s':>10}{'a core':>10}{'goal':>8}{'read':>7}{'put':>7}")
    with tempfile.TemporaryDirectory() as folder:
        small = given.seconds < 1
        for side in (32, 224):
            for name, make in _sources(side, Path(folder), small=small):
                if not name.startswith(given.only):
                    continue
                _say(_line(f"{name} of {side}x{side}", side, make(), given.seconds))
    return 0


def _sources(side: int, folder: Path, *, small: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    count = 64 if small else MEGABYTES[side] * 2**20 // (side * side * 3)
    labels = np.arange(count, dtype=np.int32)

    def mapped() -> Any:
        path = folder / f"{side}.npy"
        images = np.lib.format.open_memmap(path, "w+", np.uint8, (count, side, side, 3))
        for start in range(0, count, 1024):
            images[start : start + 1024] = np.random.default_rng(start).integers(
                0, 256, images[start : start + 1024].shape
            )
        del images
        return np.load(path, mmap_mode="r"), labels

    yield "memory map", mapped
    yield (
        "tf.data",
        lambda: tf.data.Dataset.from_tensor_slices((np.load(folder / f"{side}.npy"), labels)),
    )
    for kind in ("jpg", "png"):
        yield (
            f"{kind} files",
            lambda kind=kind: _decoded(
                side, folder / f"{side}-{kind}", kind, 16 if small else IMAGES
            ),
        )


def _decoded(side: int, root: Path, kind: str, count: int) -> Any:
    random = np.random.default_rng(0)
    for number in range(count):
        (root / str(number % 2)).mkdir(parents=True, exist_ok=True)
        coarse = random.integers(0, 256, (side // 8, side // 8, 3)).astype(np.float32)
        image = tf.cast(tf.image.resize(coarse, (side, side)), tf.uint8)  # smooth, as pictures are
        text = tf.io.encode_jpeg(image) if kind == "jpg" else tf.io.encode_png(image)
        (root / str(number % 2) / f"{number}.{kind}").write_bytes(text.numpy())
    return files.image_folder(root, (side, side), keep=False)


def _line(name: str, side: int, arrays: Any, seconds: float) -> str:
    devices = [f"/cpu:{place}" for place in range(2)]
    strategy = Replicas(
        tf.distribute.MirroredStrategy(devices, tf.distribute.HierarchicalCopyAllReduce())
    )
    timed = {"put": 0.0}
    put = residence.put_per_device

    def clocked(*given: Any) -> Any:
        began = time.perf_counter()
        found = put(*given)
        timed["put"] += time.perf_counter() - began
        return found

    residence.put_per_device = clocked
    data = make_examples(arrays, strategy, "training data", resident_bytes=0)
    batch = min(BATCH, data.size)
    share, seen, number = Share(2, 2, 0), 0, 0
    for chunk in data.chunks(batch, 0, 1, 0, share):  # warms up
        seen = len(chunk.order)
        break
    began, cpu, seen = time.perf_counter(), time.process_time(), 0
    while (wall := time.perf_counter() - began) < seconds or not seen:
        number += 1
        for chunk in data.chunks(batch, 0, 1 + number, 0, share):
            seen += len(chunk.order)
            if time.perf_counter() - began > seconds:
                break
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    residence.put_per_device = put
    share_put = timed["put"] / wall
    speeds = f"{seen / wall:10,.0f}{seen / cpu:10,.0f}{GOALS[side]:8,}"
    return f"{name:34}{speeds}{1 - min(share_put, 1):7.0%}{share_put:7.0%}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
