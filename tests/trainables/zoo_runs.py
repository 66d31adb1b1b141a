"""Trials of the zoo in a worker of this process, with all ways to end."""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from isolation import drive
from small import go_on, metrics
from zoo_entries import ENTRIES

from sweep.backends import Ends, Job, Order
from sweep.backends.worker import Worker
from sweep.contract import Assignment, Devices, Value
from sweep.space.objectives import Objective
from trainables.session import TrialSession

EPOCHS = 3
KINDS: dict[str, dict[str, Value]] = {
    "a": {"seed": 1},
    "b": {"seed": 2, "learning_rate": 0.02, "batch_size": 32},
    "diverged": {"seed": 1, "learning_rate": 1e30},
    "pruned": {"seed": 2, "learning_rate": 0.3},
    "raised": {"seed": 1, "explode": 3.0},
    "interrupted": {"seed": 2, "learning_rate": 0.3},
}
USED = ("a", "diverged", "b", "pruned", "a", "raised", "b", "interrupted", "a", "b")


@dataclass(frozen=True)
class Outcome:
    """How a trial ended, its metrics, and a checksum of all state."""

    status: str
    metrics: list[dict[str, float]] = field(default_factory=list)
    state: dict[str, int] = field(default_factory=dict)
    reason: str = field(default="", compare=False)


def straight(name: str, kind: str) -> Outcome:
    """One trial."""
    with tempfile.TemporaryDirectory() as folder:
        return _run(name, _worker(name, folder), 0, kind)


def used(name: str, kept: str) -> list[Outcome]:
    """All of `USED` in one worker, then a until after its first epoch, with a checkpoint of it in ``kept``."""
    with tempfile.TemporaryDirectory() as folder:
        worker = _worker(name, folder)
        outcomes = [_run(name, worker, number, kind) for number, kind in enumerate(USED)]
        worker.take(Order(_assignment(name, len(USED), "a"), decision_epochs=(1,)))
        first = worker.step()
        if not isinstance(first, Ends):
            worker.trainable.save(Path(kept))()
        return [*outcomes, Outcome("paused", metrics(first.epochs))]


def resume(name: str, kept: str) -> Outcome:
    """The rest of trial a from that checkpoint."""
    session = TrialSession(ENTRIES[name].trainable())
    session.begin(_assignment(name, 0, "a"))
    assert session.restore(Path(kept)) == 1
    return Outcome("completed", metrics(go_on(session)), _checksums(session))


def _run(name: str, worker: Worker, number: int, kind: str) -> Outcome:
    end, found = drive(worker, _assignment(name, number, kind), kind)
    if end is None:
        return Outcome("pruned", found)
    complete = end.status == "completed"
    return Outcome(
        end.status, found, _checksums(worker.trainable) if complete else {}, end.error or end.reason
    )


def _checksums(trainable: object) -> dict[str, int]:
    assert isinstance(trainable, TrialSession)
    arrays = trainable.trial.program.state.copy_all()
    return {
        path: zlib.crc32(np.ascontiguousarray(parts[0]).tobytes()) for path, parts in arrays.items()
    }


def _worker(name: str, folder: str) -> Worker:
    job = Job(
        sweep="zoo",
        trainable=f"{ENTRIES[name].trainable.__module__}:{name}",
        import_folders=(Path(__file__).parent,),
        results_folder=Path(folder),
        objective=Objective("loss", "minimize"),
    )
    return Worker(job)


def _assignment(name: str, number: int, kind: str) -> Assignment:
    found = ENTRIES[name]
    params = {"batch_size": 16, **KINDS[kind], **found.params}
    if not found.rated:
        params.pop("learning_rate", None)
    seed = params.pop("seed")
    assert isinstance(seed, int)
    return Assignment(
        trial=number,
        params=params,
        seed=seed,
        epochs=EPOCHS,
        devices=Devices(cpus=1),
        training=dict(found.training),
        objective="loss",
    )
