"""The state machine of a sweep: what to train next, what to make of what was trained.

Every event is in the log before anything acts on it, so that a replay of the log puts searcher, scheduler
and coordinator back to where they were. It knows no Ray, no TensorFlow and no terminal.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from sweep.backends.worker import Order, Progress
from sweep.contract import Assignment, Devices
from sweep.errors import TrainableError, did_you_mean
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
from sweep.schedulers.contract import Scheduler
from sweep.searchers.contract import Searcher
from sweep.spec import Spec
from sweep.store.log import Log


@dataclass
class _Running:
    started: TrialStarted
    epochs: int
    last_epoch: int = 0
    verdict: str | None = None  # the scheduler's reason to prune it at its last epoch
    diverged: str | None = None


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
    ) -> None:
        self._spec = spec
        self._objective = spec.objectives[0]
        self._devices = devices
        self._searcher = searcher
        self._scheduler = scheduler
        self._log = log
        self._listen = listen
        self._limits = Limits(spec, devices.gpus)
        self._running: dict[int, _Running] = {}
        self._again: deque[int] = deque()  # trials of an earlier session, to be gone on with
        self._count = 0
        self._best: float | None = None
        self._failures: list[object] = []  # configurations that failed one after the other
        self.completed = 0
        self.stopping: str | None = None
        self.error: TrainableError | None = None
        self.on_stop: Callable[[], None] = lambda: None

    @property
    def running(self) -> int:
        """Trials that a worker has, or should have."""
        return len(self._running) - len(self._again)

    def open(self, events: Iterable[Event] = ()) -> None:
        """Start a session; with the events of the log so far, one that resumes."""
        resumed = False
        for event in events:
            resumed = True
            self._learn(event)
        now = time.time()
        self._emit([SessionStarted(time=now, resumed=resumed, version=version("sweep"))])
        ends = [end for running in self._running.values() if (end := self._overdue(running, now))]
        self._emit(ends)
        self._again.extend(sorted(self._running))

    def next(self) -> Order | None:
        """The next trial for a free worker; None when there is none left to start."""
        if self.stopping:
            return None
        if self._again:
            return self._order(self._running[self._again.popleft()])
        if self._limits.cap is not None and self._count >= self._limits.cap:
            return None
        params = self._searcher.suggest(self._count)
        if params is None:
            return None
        repeat = self._count % self._spec.repeats
        started = TrialStarted(
            trial=self._count,
            trial_id=f"{self._spec.name}-{self._count:05d}",
            params=params,
            seed=self._spec.seed + repeat,
            repeat=repeat,
            time=time.time(),
        )
        self._emit([started])
        return self._order(self._running[started.trial])

    def take(self, trial: int, progress: Progress) -> bool:
        """Take in what a step brought; whether the trial goes on."""
        running = self._running.get(trial)
        if running is None:  # ended already: a worker that was given up for lost came back
            return False
        fresh = [epoch for epoch in progress.epochs if epoch.epoch > running.last_epoch]
        if not self._names_objective(fresh):
            return False
        self._emit(fresh)
        end = progress.end
        if end is None and running.verdict:
            end = self._end(running, Status.PRUNED, running.verdict, progress.facts)
        if end is not None:
            self._emit([end])
            return False
        return True

    def lose(self, trial: int, reason: str) -> None:
        """A trial's worker is gone for good."""
        running = self._running.get(trial)
        if running is not None:
            self._emit([self._end(running, Status.FAILED, reason, Facts())])

    def stop(self, reason: str) -> None:
        """Start no more trials, and let the running ones end after their present epoch."""
        if not self.stopping:
            self.stopping = reason
            self.on_stop()

    def close(self) -> None:
        """End the session: what still runs is interrupted."""
        ends = [
            self._end(running, Status.INTERRUPTED, self.stopping or "the sweep ended", Facts())
            for running in self._running.values()
        ]
        self._emit([*ends, SessionEnded(time=time.time(), reason=self.stopping or "finished")])

    def _emit(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._log.append(events)
        for event in events:
            self._learn(event)
            self._listen(event)

    def _learn(self, event: Event) -> None:
        """Change all state by one event, whether it is new or replayed."""
        self._searcher.observe(event)
        verdict = self._scheduler.observe(event)
        self._limits.observe(event)
        match event:
            case TrialStarted():
                self._count = event.trial + 1
                self._running[event.trial] = _Running(event, self._spec.trial_epochs(event.params))
            case EpochReported():
                running = self._running[event.trial]
                running.last_epoch, running.verdict = event.epoch, verdict
                running.diverged = self._divergence(event)
            case TrialEnded(status=Status.INTERRUPTED):
                self._interrupted(event.trial)
            case TrialEnded():
                self._ended(event)
            case _:
                pass
        reason = self._limits.reached
        if reason:
            self.stop(reason)

    def _interrupted(self, trial: int) -> None:
        running = self._running.get(trial)
        if running is not None and self.stopping:
            del self._running[trial]  # in a replay it stays: to be gone on with

    def _ended(self, event: TrialEnded) -> None:
        running = self._running.pop(event.trial)
        if event.status is Status.COMPLETED:
            self.completed += 1
        if event.status is Status.FAILED:
            if running.started.params not in self._failures:
                self._failures.append(running.started.params)
            if len(self._failures) >= self._spec.max_failures:
                self.stop(
                    f"the last {len(self._failures)} configurations failed, so the code is at fault and not "
                    f"they: {event.reason}"
                )
        else:
            self._failures.clear()

    def _order(self, running: _Running) -> Order:
        started = running.started
        assignment = Assignment(
            trial=started.trial,
            params=started.params,
            seed=started.seed,
            epochs=running.epochs,
            devices=self._devices,
            training=self._spec.training,
            objective=self._objective.name,
        )
        return Order(assignment, self._scheduler.decision_epochs(running.epochs), self._limits.best)

    def _overdue(self, running: _Running, now: float) -> TrialEnded | None:
        """The end that a killed driver could not write any more."""
        if running.diverged:
            return self._end(running, Status.DIVERGED, running.diverged, Facts())
        if running.last_epoch >= running.epochs:
            return self._end(running, Status.COMPLETED, "", Facts())
        if running.verdict:
            return self._end(running, Status.PRUNED, running.verdict, Facts())
        return None

    def _end(self, running: _Running, status: Status, reason: str, facts: Facts) -> TrialEnded:
        return TrialEnded(trial=running.started.trial, status=status, reason=reason, time=time.time(), facts=facts)

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
