"""Bounds the space that checkpoints take: of the completed trials the best ones keep theirs, of the others none."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sweep.backends import checkpoint_folders
from sweep.events import EpochReported, Event, Status, TrialEnded
from sweep.spec import Spec

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
        self._last: dict[int, Mapping[str, float]] = {}
        self._kept: list[_Kept] = []  # best first
        self._size = 0
        self._full = False

    def to_beat(self) -> float | None:
        """The objective that a trial must beat so that its checkpoint is kept; None: there is room."""
        return self._objective.sign * self._kept[-1].loss if self._full else None

    def on(self, event: Event) -> None:
        """See an event, new or replayed: what a killed driver could not delete any more is deleted then."""
        match event:
            case EpochReported():
                self._last[event.trial] = event.metrics
            case TrialEnded(status=status, trial=trial) if status is not Status.INTERRUPTED:
                value = self._objective.value(self._last.pop(trial, {}))
                saved = status is Status.COMPLETED and event.facts.checkpoint is not None
                if not saved or value is None:
                    checkpoint_folders.delete(self._folder, trial)
                elif checkpoint_folders.of_trial(self._folder, trial).is_dir():  # else deleted before this was replayed
                    self._keep(self._objective.sign * value, trial)

    def _keep(self, loss: float, trial: int) -> None:
        folder = checkpoint_folders.of_trial(self._folder, trial)
        checkpoint_folders.trim(folder, keep=1)
        kept = _Kept(loss, trial, checkpoint_folders.size(folder))
        insort(self._kept, kept)
        self._size += kept.size
        while len(self._kept) > 1 and (len(self._kept) > self._trials or self._size > self._bytes):
            worst = self._kept.pop()
            self._size -= worst.size
            checkpoint_folders.delete(self._folder, worst.trial)
            self._full = True
        self._full = self._full or len(self._kept) >= self._trials
