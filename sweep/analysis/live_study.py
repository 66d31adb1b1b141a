"""A sweep as the trials of a study, looked at again and again while it runs: only what is new in its log is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sweep.analysis import studies
from sweep.analysis.trials import Trial, of_tables
from sweep.errors import InputError, StoreError
from sweep.events import EpochReported, Event, Status, TrialStarted, Value
from sweep.searchers import optuna_study
from sweep.searchers.optuna_study import Axis, Told
from sweep.space.domains import Domain
from sweep.store import log
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ended, Interrupted, Ledger, Reopened, Reported, Started, TrialState, naming

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class FollowedSweep:
    """One sweep as its log stands at each look; for several threads.

    ``say`` hears what went wrong with a look, which then shows what the one before did; the first look raises
    `StoreError` or `InputError`.
    """

    def __init__(self, folder: ResultsFolder, say: Callable[[str], None], name: str = "") -> None:
        self.name = name or folder.name
        self.objectives = studies.objectives(folder)
        self._folder = folder
        self._space = studies.space_of(folder)
        self._say = say
        self._said = ""
        self._lock = threading.Lock()
        self._load()

    @property
    def notes(self) -> Mapping[str, Value]:
        """What the sweep is, for the page of its study."""
        spec = self._folder.read_info().spec
        keys = ("description", "trainable", "method", "epochs", "repeats")
        named: dict[str, Value] = {
            key: value for key in keys if isinstance(value := spec.get(key), str | int) and value
        }
        return {**named, "results": str(self._folder.path), "state": "running" if self._alive else "not running"}

    def trials(self) -> list[FrozenTrial]:
        """All trials as they are now, new ones last."""
        with self._lock:
            try:
                self._follow()
                self._said = ""
            except (StoreError, InputError) as error:
                if str(error) != self._said:
                    self._say(str(error))
                self._said = str(error)
            return list(self._frozen.values())

    def _load(self) -> None:
        """Look at all of it."""
        from sweep.store import reading

        objective = f"metric.{self.objectives[0][0]}"
        read = reading.read(self._folder, ["trial", "epoch", objective])
        sweep = of_tables(self._folder, read)
        told = studies.told(sweep, read, self._space)
        self._told = {trial.trial: one for trial, one in zip(sweep.trials, told, strict=True)}
        self._ledger = Ledger(keep_epochs=False)
        self._ledger.trials = {one.trial: _state(one, self._told[one.trial]) for one in sweep.trials}
        self._read_to(read.history.log_bytes)
        self._frozen: dict[int, FrozenTrial] = {}
        self._alive = self._folder.is_running()
        self._draw()

    def _follow(self) -> None:
        if self._folder.log.exists() and self._is_another():
            self._load()
            return
        changed: set[int] = set()
        offset = self._offset
        while self._folder.log.exists():
            events, offset = log.read_from(self._folder.log, offset)
            if not events:
                break
            with naming(self._folder.log):
                for event in events:
                    self._observe(event, changed)
        self._read_to(offset)
        alive = self._folder.is_running()
        if alive != self._alive:
            self._alive = alive
            changed |= {number for number, told in self._told.items() if told.status is Status.RUNNING}
        self._tell(changed)

    def _is_another(self) -> bool:
        """Whether the log is not the one of the last look: repaired, or that of another sweep of the name."""
        size = self._folder.log.stat().st_size
        return size < self._offset or log.mark(self._folder.log, self._offset) != self._mark

    def _read_to(self, offset: int) -> None:
        self._offset = offset
        self._mark = log.mark(self._folder.log, offset) if self._folder.log.exists() else ""

    def _observe(self, event: Event, changed: set[int]) -> None:
        match self._ledger.observe(event):
            case Started(trial, start):
                known = (start.trial, start.trial_id, start.repeat, start.seed, start.params)
                self._told[trial.number] = Told(
                    params=start.params,
                    status=trial.status,
                    reason="",
                    started=start.time,
                    ended=None,
                    metrics={},
                    epochs=0,
                    by_epoch={},
                    notes=studies.notes(self._space, *known),
                )
            case Reported(trial, report):
                self._told[trial.number] = self._reported(self._told[trial.number], trial, report)
            case Interrupted(trial, end) | Reopened(trial, end) | Ended(trial, end):
                told = self._told[trial.number]
                self._told[trial.number] = replace(told, status=trial.status, reason=trial.reason, ended=end.time)
            case _:
                return
        changed.add(trial.number)

    def _reported(self, told: Told, trial: TrialState, event: EpochReported) -> Told:
        objective = self.objectives[0][0]
        new = {event.epoch: event.metrics[objective]} if objective in event.metrics else {}
        return replace(
            told,
            status=trial.status,
            reason="",
            ended=None,
            metrics={**told.metrics, **event.metrics},
            epochs=trial.reported,
            by_epoch={**told.by_epoch, **new},
        )

    def _draw(self) -> None:
        """Tell all trials anew, on axes with room for each."""
        told = list(self._told.values())
        self._domains: dict[str, Domain | None] = studies.searched(self._space, [one.params for one in told])
        self._axes: dict[str, Axis] = optuna_study.axes(self._domains, told)
        for number in self._told:
            self._freeze(number)

    def _tell(self, changed: set[int]) -> None:
        new = [self._told[number].params for number in changed if number not in self._frozen]
        if self._space is None and new:
            self._draw()
            return
        if any(not self._axes[name].holds(params[name]) for params in new for name in self._domains if name in params):
            self._draw()
            return
        for number in sorted(changed):
            self._freeze(number)

    def _freeze(self, number: int) -> None:
        metrics = [metric for metric, _ in self.objectives]
        frozen = optuna_study.told(self._told[number], self._axes, metrics, alive=self._alive)
        frozen.number = number
        self._frozen[number] = frozen


def _state(trial: Trial, told: Told) -> TrialState:
    """A trial out of the tables, as far as it takes to observe what follows."""
    start = TrialStarted(
        trial=trial.trial,
        trial_id=trial.trial_id,
        params=told.params,
        seed=trial.seed,
        repeat=trial.repeat,
        time=told.started,
        role=trial.role,
    )
    return TrialState(start, trial.status, trial.status_reason, epoch=trial.epochs, reported=trial.epochs)
