"""Bounds the space that checkpoints take: of the completed trials the best ones keep theirs, of the others none."""

from __future__ import annotations

from bisect import insort
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sweep.backends import checkpoints
from sweep.events import Status
from sweep.spec import Spec
from sweep.store.ledger import Change, Ended, Reopened
from sweep.store.object_store import StoreAway

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
        self._ended: set[int] = set()  # trials without checkpoints
        self._past = checkpoints.begun(folder)  # those that had some before this session
        self._recalled: dict[int, Ended] = {}  # their ends, as far as these hold
        self._later: list[tuple[float, int]] = []  # kept trials of which the store could not be asked
        self._size = 0
        self._full = False

    def to_beat(self) -> float | None:
        """Return the objective that a trial must beat so that its checkpoint is kept; None: there is room."""
        return self._objective.of_loss(self._kept[-1].loss) if self._full else None

    def recall(self, change: Change) -> None:
        """See what is in the log, one by one; `begin` acts on it."""
        match change:
            case Ended(trial) if trial.number in self._past:
                self._recalled[trial.number] = change
            case Reopened(trial):  # it goes on from what it has
                self._recalled.pop(trial.number, None)
            case _:
                pass

    def begin(self) -> None:
        """Delete what a killed driver could not delete any more, and count what is kept."""
        for change in self._recalled.values():
            self.on(change)
        self._recalled.clear()

    def close(self) -> None:
        """Delete what workers have stored of trials after these had ended."""
        self._catch_up()
        with suppress(StoreAway):
            for trial in checkpoints.begun(self._folder) & self._ended:
                checkpoints.delete(self._folder, trial)

    def on(self, change: Change) -> None:
        """See what befalls trials."""
        if isinstance(change, Reopened):
            self._ended.discard(change.trial.number)
        if not isinstance(change, Ended):
            return
        self._catch_up()
        trial, number = change.trial, change.trial.number
        loss = self._objective.loss(trial.last)
        saved = trial.status is Status.COMPLETED and trial.facts.checkpoint is not None
        if not saved or loss is None:
            self._delete(number)
        else:
            self._keep(loss, number)

    def _delete(self, trial: int) -> None:
        self._ended.add(trial)
        checkpoints.delete(self._folder, trial)

    def _catch_up(self) -> None:
        waiting, self._later = self._later, []
        for loss, trial in waiting:
            self._keep(loss, trial)

    def _keep(self, loss: float, trial: int) -> None:
        self._ended.discard(trial)
        try:
            kept = _Kept(loss, trial, checkpoints.keep_best(self._folder, trial))
        except StoreAway:
            self._later.append((loss, trial))
            return
        if not kept.size:  # somebody has deleted it
            return
        insort(self._kept, kept)
        self._size += kept.size
        while len(self._kept) > 1 and (len(self._kept) > self._trials or self._size > self._bytes):
            worst = self._kept.pop()
            self._size -= worst.size
            self._delete(worst.trial)
            self._full = True
        self._full = self._full or len(self._kept) >= self._trials
