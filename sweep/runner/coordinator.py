"""The state machine of a sweep: what to train next, what to make of what was trained.

Every event is in the log before anything acts on it, so that a replay of the log puts searcher, scheduler
and coordinator back to where they were. It knows no Ray, no TensorFlow and no terminal.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from sweep.backends.worker import Order, Progress
from sweep.contract import Assignment, Devices
from sweep.errors import StoreError, TrainableError, did_you_mean
from sweep.events import (
    EpochReported,
    Event,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.runner.limits import Limits
from sweep.runner.memo import Answer, Memo
from sweep.schedulers.contract import Scheduler
from sweep.searchers.contract import Searcher
from sweep.spec import Spec
from sweep.store.log import Log


@dataclass
class _Open:
    """A trial that has not ended for good."""

    started: TrialStarted
    epochs: int
    decisions: tuple[int, ...]  # epochs at which it can be pruned
    last_epoch: int = 0
    verdict: str | None = None  # the scheduler's reason to prune it at its last epoch
    diverged: str | None = None
    interrupted: bool = False
    restarts: int = 0  # in this session, of lost workers


class Coordinator:
    """Drives one sweep for a backend, which calls `next`, `take` and `lose` and obeys their answers."""

    def __init__(
        self,
        spec: Spec,
        devices: Devices,
        searcher: Searcher,
        scheduler: Scheduler,
        log: Log,
        listen: Callable[[Event], None],
        memo: Memo | None = None,
    ) -> None:
        self._spec = spec
        self._objective = spec.objectives[0]
        self._devices = devices
        self._searcher = searcher
        self._scheduler = scheduler
        self._log = log
        self._listen = listen
        self._memo = memo
        self._limits = Limits(spec, devices.gpus)
        self._open: dict[int, _Open] = {}
        self._out: set[int] = set()  # trials that a worker has, or should have
        self._again: deque[int] = deque()  # trials of an earlier session, to be gone on with
        self._known_data: set[str] = set()  # fingerprints of data that a worker has met in this session
        self._count = 0
        self.exhausted = False  # the searcher has no more trials
        self.completed = 0
        self.stopping: str | None = None
        self.error: TrainableError | None = None
        self.fault: str | None = None  # why the sweep cannot go on now, though nothing is wrong with it
        self.on_stop: Callable[[], None] = lambda: None
        self.to_beat: Callable[[], float | None] = lambda: None  # see Order

    @property
    def running(self) -> int:
        """Trials that a worker has, or should have."""
        return len(self._out)

    def open(self, events: Iterable[Event] = ()) -> None:
        """Start a session; with the events of the log so far, one that resumes."""
        resumed = False
        for event in events:
            resumed = True
            self._learn(event)
        self._emit([SessionStarted(time=time.time(), resumed=resumed, version=version("sweep"))])
        self._emit([end for trial in self._open.values() if (end := self._overdue(trial))])
        self._again.extend(sorted(self._open))

    def next(self) -> Order | None:
        """The next trial for a free worker; None when there is none left to start."""
        while not self.stopping:
            trial = self._open[self._again.popleft()] if self._again else self._start()
            if trial is None:
                return None
            answer = self._recall(trial)
            if answer is not None and (answer.data is None or answer.data in self._known_data):
                self._answer(trial, answer)
                answer = None
            if trial.started.trial in self._open and not self.stopping:
                self._out.add(trial.started.trial)
                trial.interrupted = False
                return self._order(trial, answer.data if answer else None)
        return None

    def take(self, trial: int, progress: Progress) -> bool:
        """Take in what a step brought; whether the trial goes on."""
        there = self._open.get(trial)
        if there is None or trial not in self._out:  # a worker that was given up for lost came back
            return False
        fresh = [epoch for epoch in progress.epochs if epoch.epoch > there.last_epoch]
        end = progress.end
        if progress.fault:
            self._fail(progress.fault)
        if not self._names_objective(fresh) or not self._hear(there, fresh, end):
            self._out.discard(trial)
            return False
        if trial in self._out and (overdue := self._overdue(there)):
            self._emit([replace(overdue, facts=progress.facts)])
        elif trial in self._out and progress.data_known and (answer := self._recall(there)):
            self._known_data.add(answer.data or "")
            if self._answer(there, answer) and trial in self._out:  # its worker has begun it without the checkpoint
                self._out.discard(trial)
                self._again.appendleft(trial)
        return trial in self._out

    def lose(self, trial: int, reason: str) -> bool:
        """A trial's worker is gone; whether another one takes the trial over, as it does a few times."""
        there = self._open.get(trial)
        if there is None or trial not in self._out:
            return False
        there.restarts += 1
        if there.restarts > self._spec.max_restarts:
            self._emit([self._end(there, Status.FAILED, f"{reason}, after {there.restarts - 1} restarts", Facts())])
            return False
        self._out.discard(trial)
        self._again.appendleft(trial)
        return True

    def stop(self, reason: str) -> None:
        """Start no more trials, and let the running ones end after their present epoch."""
        if not self.stopping:
            self.stopping = reason
            self.on_stop()

    def close(self) -> None:
        """End the session: what has not ended is interrupted."""
        reason = self.stopping or "the sweep ended"
        open_ends = [
            self._end(trial, Status.INTERRUPTED, reason, Facts())
            for trial in self._open.values()
            if not trial.interrupted
        ]
        self._emit([*open_ends, SessionEnded(time=time.time(), reason=self.stopping or "finished")])

    def _start(self) -> _Open | None:
        """Log a new trial; None when there is none to start."""
        number = self._count
        if self._limits.cap is not None and number >= self._limits.cap:
            return None
        params = None if self.exhausted else self._searcher.suggest(number)
        if params is None:
            self.exhausted = True
            return None
        repeat = number % self._spec.repeats
        started = TrialStarted(
            trial=number,
            trial_id=f"{self._spec.name}-{number:05d}",
            params=params,
            seed=self._spec.seed + repeat,
            repeat=repeat,
            time=time.time(),
        )
        return self._open[number] if self._emit([started]) else None

    def _recall(self, trial: _Open) -> Answer | None:
        return self._memo.recall(trial.started, trial.epochs, trial.last_epoch) if self._memo else None

    def _answer(self, trial: _Open, answer: Answer) -> bool:
        """Let an earlier sweep's epochs stand for this trial's, as far as the scheduler lets it come."""
        if self._memo and answer.checkpoint and not self._memo.hand_over(answer, trial.started.trial):
            return False
        epochs = [epoch for epoch in answer.epochs if epoch.epoch > trial.last_epoch]
        if not self._names_objective(epochs) or not self._hear(trial, epochs):
            return False
        end = self._overdue(trial)
        if answer.checkpoint is None and (end is None or end.status is Status.COMPLETED):
            end = self._end(trial, Status.COMPLETED, answer.reason, Facts())
        return end is None or self._emit([replace(end, facts=answer.facts, memo=answer.source)])

    def _hear(self, trial: _Open, epochs: Sequence[EpochReported], end: TrialEnded | None = None) -> bool:
        """Log epochs as far as the trial may come, and its end if it comes there; whether they are logged."""
        part: list[Event] = []
        for epoch in epochs:
            part.append(epoch)
            if epoch is not epochs[-1] and (epoch.epoch in trial.decisions or self._divergence(epoch)):
                if not self._emit(part):
                    return False
                part = []
                if trial.verdict or trial.diverged:
                    return True
        return self._emit([*part, end] if end else part)

    def _emit(self, events: Sequence[Event]) -> bool:
        """Log, then act; whether it is logged. Nothing is acted upon that is not."""
        if not events:
            return True
        try:
            self._log.append(events)
        except StoreError as error:
            self._fail(str(error))
            return False
        for event in events:
            self._learn(event)
            self._listen(event)
        if self._limits.reached:
            self.stop(self._limits.reached)
        return True

    def _fail(self, fault: str) -> None:
        self.fault = self.fault or fault
        self.stop(fault)

    def _learn(self, event: Event) -> None:
        """Change all state by one event, whether it is new or replayed."""
        self._searcher.observe(event)
        verdict = self._scheduler.observe(event)
        self._limits.observe(event)
        match event:
            case TrialStarted():
                self._count = event.trial + 1
                epochs = self._spec.trial_epochs(event.params)
                self._open[event.trial] = _Open(event, epochs, self._scheduler.decision_epochs(epochs))
            case EpochReported():
                trial = self._open[event.trial]
                trial.last_epoch, trial.verdict = event.epoch, verdict
                trial.diverged = self._divergence(event)
                trial.interrupted = False
            case TrialEnded(status=Status.INTERRUPTED):
                self._out.discard(event.trial)
                self._open[event.trial].interrupted = True
            case TrialEnded():
                self._out.discard(event.trial)
                del self._open[event.trial]
                self.completed += event.status is Status.COMPLETED
            case _:
                pass

    def _order(self, trial: _Open, known_data: str | None) -> Order:
        started = trial.started
        assignment = Assignment(
            trial=started.trial,
            params=started.params,
            seed=started.seed,
            epochs=trial.epochs,
            devices=self._devices,
            training=self._spec.training,
            objective=self._objective.name,
            maximize=self._objective.goal == "maximize",
        )
        return Order(assignment, trial.decisions, self.to_beat(), known_data)

    def _overdue(self, trial: _Open) -> TrialEnded | None:
        """The end that a killed driver could not write any more."""
        if trial.diverged:
            return self._end(trial, Status.DIVERGED, trial.diverged, Facts())
        if trial.last_epoch >= trial.epochs:
            return self._end(trial, Status.COMPLETED, "", Facts())
        if trial.verdict:
            return self._end(trial, Status.PRUNED, trial.verdict, Facts())
        return None

    def _end(self, trial: _Open, status: Status, reason: str, facts: Facts) -> TrialEnded:
        return TrialEnded(trial=trial.started.trial, status=status, reason=reason, time=time.time(), facts=facts)

    def _divergence(self, epoch: EpochReported) -> str | None:
        for name in ("loss", self._objective.name):
            value = epoch.metrics.get(name)
            if value is not None and not math.isfinite(value):
                return f"{name} is {value} in epoch {epoch.epoch}"
        return None

    def _names_objective(self, epochs: list[EpochReported]) -> bool:
        for epoch in epochs:
            for objective in self._spec.objectives:
                if objective.name not in epoch.metrics:
                    self.error = TrainableError(
                        f"{self._spec.trainable} reports no metric {objective.name!r}, which is the sweep's; "
                        f"it reports {', '.join(epoch.metrics)}; {did_you_mean(objective.name, epoch.metrics)}"
                    )
                    self.stop(str(self.error))
                    return False
        return True
