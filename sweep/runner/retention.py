"""Bounds the space that checkpoints take: of the completed trials the best ones keep theirs, of the others none."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from pathlib import Path

from sweep.backends import checkpoints
from sweep.events import Status
from sweep.spec import Spec
from sweep.store.ledger import Change, Ended

GB = 1_000_000_000


@dataclass(frozen=True, slots=True, order=True)
class _Kept:
    """A completed trial's checkpoints."""

    loss: float
    trial: int
    size: int = field(compare=False)  # bytes


class CheckpointKeeper:
    """Leaves completed trials their last and their best checkpoint, as long as there is room; ended ones none."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._folder, self._objective = folder, spec.objectives[0]
        self._trials, self._bytes = spec.checkpoint.trials, spec.checkpoint.space_gb * GB
        self._kept: list[_Kept] = []  # best first
        self._size = 0
        self._full = False

    def to_beat(self) -> float | None:
        """Return the objective that a trial must beat so that its checkpoint is kept; None: there is room."""
        return self._objective.of_loss(self._kept[-1].loss) if self._full else None

    def on(self, change: Change) -> None:
        """See what befalls trials, also in the log: what a killed driver could not delete any more is deleted then."""
        if not isinstance(change, Ended):
            return
        trial, number = change.trial, change.trial.number
        loss = self._objective.loss(trial.last)
        saved = trial.status is Status.COMPLETED and trial.facts.checkpoint is not None
        if not saved or loss is None:
            checkpoints.delete(self._folder, number)
        elif checkpoints.of_trial(self._folder, number).is_dir():  # else deleted before this was replayed
            self._keep(loss, number)

    def _keep(self, loss: float, trial: int) -> None:
        folder = checkpoints.of_trial(self._folder, trial)
        checkpoints.trim(folder, keep=1)
        kept = _Kept(loss, trial, checkpoints.size(folder))
        insort(self._kept, kept)
        self._size += kept.size
        while len(self._kept) > 1 and (len(self._kept) > self._trials or self._size > self._bytes):
            worst = self._kept.pop()
            self._size -= worst.size
            checkpoints.delete(self._folder, worst.trial)
            self._full = True
        self._full = self._full or len(self._kept) >= self._trials
