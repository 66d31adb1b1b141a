"""Bounds the space that checkpoints take: an ended trial keeps none, but for the best completed one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sweep.backends import checkpoints
from sweep.events import EpochReported, Event, Status, TrialEnded


class CheckpointKeeper:
    """Deletes the checkpoints of ended trials; the best completed one keeps its last and its best."""

    def __init__(self, folder: Path, objective: str, *, maximize: bool) -> None:
        self._folder, self._objective = folder, objective
        self._sign = -1.0 if maximize else 1.0
        self._last: dict[int, Mapping[str, float]] = {}
        self._best: tuple[float, int] | None = None

    def on(self, event: Event) -> None:
        """See an event, new or replayed: what a killed driver could not delete any more is deleted then."""
        match event:
            case EpochReported():
                self._last[event.trial] = event.metrics
            case TrialEnded(status=status, trial=trial) if status is not Status.INTERRUPTED:
                value = self._last.pop(trial, {}).get(self._objective)
                if status is Status.COMPLETED and value is not None and not event.memo:
                    self._compare(self._sign * value, trial)
                else:
                    checkpoints.delete(self._folder, trial)

    def _compare(self, loss: float, trial: int) -> None:
        worse: int | None = trial
        if self._best is None or loss < self._best[0]:
            worse = None if self._best is None else self._best[1]
            self._best = loss, trial
            checkpoints.trim(checkpoints.of_trial(self._folder, trial), keep=1)
        if worse is not None:
            checkpoints.delete(self._folder, worse)
