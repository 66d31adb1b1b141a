"""Trials of every shipped trainable, each run in a process that has only imported what it needs.

The processes come from `multiprocessing`'s fork server: a fork of it is a fresh process without the seconds of
importing TensorFlow, which nobody has used there.
"""

from __future__ import annotations

import ast
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sweep.backends import Ends, Job, Order
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Devices, Value
from sweep.events import TrialEnded
from sweep.hyperparameters import Hyperparameters
from sweep.space.objectives import Objective
from trainables.cifar_resnet import CifarResNet

T = TypeVar("T")
EPOCHS = 3

KINDS: dict[str, dict[str, Value]] = {
    "plain": {"learning_rate": 0.003, "seed": 1},
    "twin": {
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "batch_size": 32,
        "warmup_epochs": 1,
        "seed": 2,
    },
    "pruned": {
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "batch_size": 32,
        "warmup_epochs": 1,
        "seed": 2,
    },
    "half": {"learning_rate": 0.003, "seed": 1, "precision": "mixed_bfloat16"},
    "diverged": {"learning_rate": 1e30, "seed": 3},
    "failed": {"frozen_layers": 999, "seed": 4},
    "raised": {"learning_rate": 0.3, "seed": 5},
    "interrupted": {"learning_rate": 0.3, "seed": 6},
}
"""What sets trials apart: most share a compiled program; pruned, raised and interrupted ones end half way."""

REFERENCES = ("plain", "twin", "half")
DEFAULTS: dict[str, Value] = {
    "optimizer": "adamw",
    "batch_size": 64,
    "dropout": 0.2,
    "augmentation": "medium",
}


class TinyCifar(CifarResNet):
    """The shipped net on 64 images like those of CIFAR-10."""

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x, y = (
            random.integers(0, 256, (96, 32, 32, 3)).astype(np.uint8),
            np.arange(96, dtype=np.int32) % 10,
        )
        return (x[:64], y[:64]), (x[64:], y[64:])


@dataclass(frozen=True)
class Outcome:
    """How a trial ended, with the metrics of all its epochs."""

    status: str
    metrics: list[dict[str, float]] = field(default_factory=list)
    error: str | None = field(default=None, compare=False)


# the real one would download
STAND_INS = {"trainables.cifar_resnet:CifarResNet": "isolation:TinyCifar"}


def shipped() -> list[str]:
    """``module:Name`` of every subclass of `KerasTrainable` in `trainables`."""
    found = []
    for path in sorted((Path(__file__).parents[2] / "trainables").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(
                ast.unparse(base) == "KerasTrainable" for base in node.bases
            ):
                found.append(f"trainables.{path.stem}:{node.name}")
    return found


def run(trainable: str, kinds: list[str]) -> list[Outcome]:
    """Trials one after the other in one worker of this process."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            sweep="isolation",
            trainable=STAND_INS.get(trainable, trainable),
            import_folders=(Path(__file__).parent,),
            results_folder=Path(folder),
            objective=Objective("val_loss", "minimize"),
        )
        worker = Worker(job)
        return [_outcome(worker, number, kind) for number, kind in enumerate(kinds)]


def _outcome(worker: Worker, number: int, kind: str) -> Outcome:
    params = {**DEFAULTS, **KINDS[kind]}
    seed, precision = params.pop("seed"), params.pop("precision", "float32")
    assert isinstance(seed, int)
    assignment = Assignment(
        trial=number,
        params=params,
        seed=seed,
        epochs=EPOCHS,
        devices=Devices(cpus=1),
        training={"precision": precision},
        objective="val_loss",
    )
    end, metrics = drive(worker, assignment, kind)
    return Outcome("pruned", metrics) if end is None else Outcome(end.status, metrics, end.error)


def drive(
    worker: Worker, assignment: Assignment, kind: str
) -> tuple[TrialEnded | None, list[dict[str, float]]]:
    """Train a trial to the end that its kind says; how it ended, None if it was left alone, and all its metrics."""
    worker.take(Order(assignment, decision_epochs=(1,)))
    metrics: list[dict[str, float]] = []
    while True:
        if metrics and kind == "raised" and "explode" not in assignment.params:
            worker.trainable.trial.gauges.begin = _fail
        if metrics and kind == "interrupted":
            worker.job.stop_file.touch()
        progress = worker.step()
        metrics += [dict(epoch.metrics) for epoch in progress.epochs]
        if isinstance(progress, Ends) or kind == "pruned":
            worker.job.stop_file.unlink(missing_ok=True)
            return progress.end if isinstance(progress, Ends) else None, metrics


def _fail() -> None:
    raise RuntimeError("in the middle")


class Processes:
    """A fresh process for each call, two at a time."""

    def __init__(self, preloaded: Sequence[str] = ()) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["isolation", *preloaded, *(name.partition(":")[0] for name in shipped())]
        )
        self._pool = ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=1)

    def run(self, trainable: str, kinds: list[str]) -> Future[list[Outcome]]:
        """`run` in such a process."""
        return self.submit(run, trainable, kinds)

    def submit(self, function: Callable[..., T], *given: Any) -> Future[T]:
        """Any function in such a process."""
        return self._pool.submit(function, *given)

    def close(self) -> None:
        """Wait for none."""
        self._pool.shutdown(cancel_futures=True)
