"""What one worker holds after trial upon trial of the digits CNN.

    python benchmarks/memory.py                                      # 1,000 trials of one structure
    python benchmarks/memory.py --trials 100 --structures 20         # every trial compiles anew
    python benchmarks/memory.py --trials 10 --mapped 2000            # beside data that all workers of a machine share

Prints the memory that is the process's own, by which workers are replaced, all that is resident, and that of
TensorFlow's devices if there are GPUs, after each tenth of the trials, and the growth from the middle to the end, when
all that is kept between trials is there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from sweep.backends import Ends, Job, Order, memory
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Devices
from sweep.events import Status
from sweep.space.objectives import Objective

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run the trials in this process, as a worker does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument(
        "--structures", type=int, default=1, help="how many different networks take turns"
    )
    parser.add_argument(
        "--mapped", type=int, default=0, metavar="MB", help="of a file that is mapped and read"
    )
    parser.add_argument("--gpus", type=int, default=0)
    given = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    found: list[float] = []
    print(f"{'trials':>8}{'own MB':>10}{'resident':>10}{'GPU MB':>10}{'s a trial':>12}")
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(
            Job(
                "memory",
                "trainables.digits_cnn:DigitsCNN",
                (ROOT,),
                Path(folder),
                Objective("val_loss", "minimize"),
            )
        )
        shared = _mapped(Path(folder) / "shared", given.mapped)
        began, part = time.perf_counter(), max(given.trials // 10, 1)
        for trial in range(given.trials):
            _train(worker, trial, 8 + trial % given.structures, given.gpus)
            if (trial + 1) % part == 0:
                found.append(memory.measure_memory() / 1e6)
                seconds, began = (time.perf_counter() - began) / part, time.perf_counter()
                figures = (found[-1], _resident(), _on_gpus(given.gpus))
                print(
                    f"{trial + 1:8}{''.join(f'{mb:10.1f}' for mb in figures)}{seconds:12.3f}",
                    flush=True,
                )
        del shared
    middle = len(found) // 2
    growth = (found[-1] - found[middle - 1]) / (part * (len(found) - middle)) * 1000
    print(f"growth from the middle to the end: {growth:.1f} kB a trial")


def _train(worker: Worker, trial: int, filters: int, gpus: int) -> None:
    params = {
        "filters": filters,
        "learning_rate": 0.001 * (1 + trial % 7),
        "augmentation": "low",
        "batch_size": 64,
    }
    assignment = Assignment(
        trial=trial, params=params, seed=trial, epochs=1, devices=Devices(gpus=gpus)
    )
    worker.take(Order(assignment, to_beat=0.0))  # never the best: no checkpoint
    progress = worker.step()
    if not isinstance(progress, Ends) or progress.end.status is not Status.COMPLETED:
        raise SystemExit(f"trial {trial}: {progress}")


def _mapped(path: Path, megabytes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None:
    """Return data as the workers of a machine share it, a mapped file with all pages in memory; None for 0 MB."""
    if not megabytes:
        return None
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(bytes(10**6))
    mapped = np.memmap(path, np.uint8, "r")
    print(f"{mapped.size / 1e6:.0f} MB are mapped, their sum is {mapped.sum()}")
    return mapped


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _on_gpus(gpus: int) -> float:
    import tensorflow as tf

    used = (tf.config.experimental.get_memory_info(f"GPU:{i}")["current"] for i in range(gpus))
    return float(sum(used)) / 1e6


if __name__ == "__main__":
    main()
