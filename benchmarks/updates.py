"""What an update takes and how long a model takes to its first one: of this tree, and of another beside it.

    python benchmarks/updates.py                       # this tree
    python benchmarks/updates.py --beside ../before    # and another checkout, with the ratios

Each model trains some epochs in a process of its own, trees in turns, on one and on two replicas (logical CPU devices).
An update is the median over the epochs but for the first, without validation; the first one is what is left of the
first epoch and of the beginning (import of the model, its making, tracing, compiling) without the data's own time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "TabularMLP": {},
    "DigitsCNN": {"augmentation": "low"},
    "ResNet20": {"depth": 20, "batch_size": 64},
    "SequenceTransformer": {},
}
TIMED = """
import json, sys, time
import numpy as np
began = time.monotonic()
name, replicas, params, epochs = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
from sweep.contract import Assignment, Devices
from sweep.hyperparameters import Hyperparameters
if name == "ResNet20":
    from trainables.cifar_resnet import CifarResNet
    class Model(CifarResNet):
        def data(self, hp):
            random = np.random.default_rng(0)
            images = random.integers(0, 256, (640, 32, 32, 3)).astype(np.uint8)
            labels = random.integers(0, 10, 640).astype(np.int32)
            return (images, labels), (images[:64], labels[:64])
else:
    import importlib
    module = {"TabularMLP": "tabular_mlp", "DigitsCNN": "digits_cnn", "SequenceTransformer": "sequence_transformer"}
    Model = getattr(importlib.import_module(f"trainables.{module[name]}"), name)
from trainables.keras_trainable import KerasTrainable
imported = time.monotonic()
made = Model()
worker = made.__trainable__(made) if hasattr(made, "__trainable__") else made
params = {"learning_rate": 1e-3, "optimizer": "adam", "batch_size": 32, "clipnorm": 1.0, **params}
devices = Devices(cpus=1, gpus=replicas if replicas > 1 else 0, simulated=replicas > 1)
worker.begin(Assignment(trial=0, params=params, seed=0, epochs=epochs, devices=devices))
begun = time.monotonic()
times = []
def report(epoch):
    times.append((time.monotonic(), epoch.time_s, epoch.examples_per_s))
    return True
worker.train(report)
seconds = [time_s for _, time_s, _ in times[1:]]
examples = [time_s * speed for _, time_s, speed in times[1:]]
updates = examples[0] / params["batch_size"]
first_s = times[0][0] - imported - seconds[0]
print("FOUND", json.dumps([1000 * sorted(seconds)[len(seconds) // 2] / updates, first_s]))
"""


def main() -> None:
    """Time all models and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beside", type=Path, help="another checkout of this project")
    parser.add_argument("--times", type=int, default=3, help="processes of each tree")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--replicas", default="1,2")
    given = parser.parse_args()
    trees = [ROOT] if given.beside is None else [ROOT, given.beside.resolve()]
    print(
        f"{'model':<20} {'replicas':>8}  ms an update, s to the first of them; medians of {given.times}"
    )
    for name in given.models.split(","):
        for replicas in map(int, given.replicas.split(",")):
            found: dict[Path, list[tuple[float, float]]] = {tree: [] for tree in trees}
            for _ in range(given.times):
                for tree in trees:
                    found[tree].append(timed(tree, name, replicas, given.epochs))
            middle = [
                [statistics.median(column) for column in zip(*rows, strict=True)]
                for rows in found.values()
            ]
            line = "   ".join(f"{update:8.3f} {first:7.2f}" for update, first in middle)
            if len(middle) == 2:
                line += (
                    f"   ratios {middle[0][0] / middle[1][0]:.2f} {middle[0][1] / middle[1][1]:.2f}"
                )
            print(f"{name:<20} {replicas:>8}  {line}", flush=True)


def timed(tree: Path, name: str, replicas: int, epochs: int) -> tuple[float, float]:
    """Return the milliseconds of an update, and the seconds to the first one."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = [
        sys.executable,
        "-c",
        TIMED,
        name,
        str(replicas),
        json.dumps(MODELS[name]),
        str(epochs),
    ]
    ran = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(ran.stderr[-2000:])
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    update, first = json.loads(line.removeprefix("FOUND "))
    return update, first


if __name__ == "__main__":
    main()
