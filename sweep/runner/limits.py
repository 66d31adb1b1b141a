"""When a sweep has had enough, and when a trial has taken too long.

`Limits` (budgets, target, plateau, failures) follow from the events, so that a resumed sweep counts on. `Timeouts` go
by the driver's own clock, whatever the clocks of nodes say. A trial that hangs reports nothing, so that it is found by
the time since its last sign of life. Where the file gives no bound, one follows from the epochs that were measured so
far; before the first of them, nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from sweep import analysis, prices
from sweep.events import (
    JUDGED,
    EpochReported,
    Event,
    ModelTested,
    Params,
    SessionStarted,
    Status,
    TrialEnded,
)
from sweep.prices import COST
from sweep.spec import Spec
from sweep.spec.blocks import Resources
from sweep.store.ledger import Change, Ended, Reported, Session, TrialState

ALIKE = 2  # trials that fail for the same reason, which no parameter can change, and end the sweep


class Limits:
    """Watches the events for the reasons to end a sweep cleanly."""

    def __init__(self, spec: Spec) -> None:
        self._objective = spec.objectives[0]
        self._target = spec.metrics[0].target
        self._budget = spec.budget
        caps = [cap for cap in (spec.run_cap, spec.budget.trials) if cap is not None]
        self.cap = min(caps) * spec.trials_each if caps else None  # trials to start, of all sessions
        self._patience = spec.stop_when.no_improvement if spec.stop_when else None
        self._max_failures = spec.max_failures
        self._highest_price = 0.0 if spec.resources.price is None else prices.bounds(spec.resources.price)[1]
        self._bounds = analysis.Limits.of(spec)
        self._earlier_s = 0.0  # driving time of the sessions before
        self._session_s = 0.0  # and of this one
        self._is_timed = False  # the log has the driver's own clock for this session
        self._last_time: float | None = None
        self._gpu_s = 0.0
        self._under_way_s = 0.0  # training that no epoch has come of yet
        self._epochs = 0
        self._cost = 0.0
        self._since_better = 0
        self._failures: list[Params] = []  # configurations that failed one after the other
        self._last_failure = ""
        self._alike = 0  # failures one after the other that no parameter had a part in, all for the last reason
        self._best_loss: float | None = None
        self._hit: tuple[float, str] | None = None  # the best loss that reached the target, and what to say of it

    @property
    def reached(self) -> str | None:
        """The limit that is reached, as a reason to stop."""
        return (self._hit and self._hit[1]) or self._spent() or self._plateau() or self._at_fault()

    def drive(self, session_s: float, under_way_s: float) -> None:
        """Look at the driver's clock: this session's time, and what running trials have trained since they reported."""
        self._is_timed, self._session_s, self._under_way_s = True, session_s, under_way_s

    def observe(self, change: Change) -> None:
        """Count an event in."""
        match change:
            case Session(SessionStarted(time=now)):
                self._earlier_s, self._session_s = self._earlier_s + self._session_s, 0.0
                self._is_timed, self._last_time = False, now
                self._failures.clear()  # the code may have been mended
                self._alike = 0
                return
            case Reported(_, report):
                self._hear(report)
            case Ended(trial, end):
                self._finish(trial, end)
            case _:
                pass
        self._clock(change.event)

    def _hear(self, event: EpochReported) -> None:
        if not event.memo:  # else it was trained in another sweep, on its account
            self._epochs += 1
            self._cost += event.measures.get(COST, 0.0)
            self._gpu_s += self._bounds.gpu_s(event)
        loss = self._objective.loss(event.metrics)
        reached = self._objective.reached(self._target, event.metrics)
        if loss is not None and reached and (self._hit is None or loss < self._hit[0]):
            self._hit = loss, f"{reached} in trial {event.trial}"

    def _finish(self, trial: TrialState, event: TrialEnded) -> None:
        if event.status is Status.FAILED:
            self._alike = (self._alike if event.reason == self._last_failure else 0) + 1 if event.regardless else 0
            self._last_failure = event.reason
        else:
            self._failures.clear()
            self._alike = 0
        if event.status is Status.FAILED and trial.params not in self._failures:
            self._failures.append(trial.params)
        if event.waits or event.status not in JUDGED:
            return  # those that wait until the search is over end with it
        completed, loss = event.status is Status.COMPLETED, self._objective.loss(trial.last)
        if completed and loss is not None and (self._best_loss is None or loss < self._best_loss):
            self._best_loss = loss
            self._since_better = 0
        else:
            self._since_better += 1

    def _clock(self, event: Event) -> None:
        if isinstance(event, SessionStarted | ModelTested):
            return
        if event.driven_s is not None:
            self._is_timed, self._session_s = True, event.driven_s
        elif not self._is_timed:  # the log of an earlier release: by the clocks of the nodes
            last, now = self._last_time or event.time, event.time
            self._session_s += max(now - last, 0.0)
            self._last_time = max(now, last)

    def _plateau(self) -> str | None:
        if self._patience is None or self._since_better < self._patience:
            return None
        return f"no improvement in {self._patience} trials"

    def _at_fault(self) -> str | None:
        if self._alike >= ALIKE:
            return (
                f"{self._alike} trials failed in the same way, before reading any searched parameter: "
                f"{self._last_failure}"
            )
        if len(self._failures) < self._max_failures:
            return None
        return (
            f"{len(self._failures)} configurations failed in a row; this looks like a bug in the training code: "
            f"{self._last_failure}"
        )

    def _spent(self) -> str | None:
        budget = self._budget
        under_way_s = self._under_way_s * self._bounds.gpus
        for limit, spent, unit in (
            (budget.hours, (self._earlier_s + self._session_s) / 3600, "hours"),
            (budget.gpu_hours, (self._gpu_s + under_way_s) / 3600, "GPU hours"),
            (budget.epochs, self._epochs, "epochs"),
            (budget.money, self._cost + under_way_s / 3600 * self._highest_price, "in money"),
        ):
            if limit is not None and spent >= limit:
                return f"budget of {limit:g} {unit}"
        return None


LOOK_S = 0.2  # between two looks at the clock
_TIMES = 10  # as long as the longest wait for an epoch before
_AFTER_S = 600.0  # and so much more: a checkpoint, a validation, a neighbour
_FIRST_AFTER_S = 3600.0  # a trial's first epoch comes after its data and its compilation
_ABSENT_S = 30.0  # a driver that did not look for so long was stopped itself, or busy


@dataclass(slots=True)
class _Running:
    """A trial that a worker has begun."""

    since: float  # the last sign of life
    spent_s: float  # until then
    longest_s: float | None = None  # that it took for an epoch
    together: float = 1.0  # trials that its worker trains at once


class Timeouts:
    """Times a session and the trials that run in it."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hours, self._minutes = resources.trial_hours, resources.epoch_minutes
        self._began = self._looked = clock()
        self._running: dict[int, _Running] = {}
        self._spent_s: dict[int, float] = {}  # by trials that were begun before and have not ended
        self._longest_first_s: float | None = None

    @property
    def session_s(self) -> float:
        """Seconds since the session began."""
        return self._clock() - self._began

    @property
    def under_way_s(self) -> float:
        """Seconds that workers have trained since their trials reported last, all together."""
        now = self._clock()
        return sum((now - trial.since) / trial.together for trial in self._running.values())

    def is_due(self) -> bool:
        """Return whether it is time for a look; one that comes late is not the trials' fault."""
        late = self._clock() - self._looked
        if late < LOOK_S:
            return False
        self._looked += late
        if late > _ABSENT_S:
            for trial in self._running.values():
                trial.since += late
        return True

    def stamp(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return events for the log with this session's time, by which durations and a resumed budget are counted."""
        now_s = round(self.session_s, 3)
        return [
            event if isinstance(event, SessionStarted | ModelTested) else structs.replace(event, driven_s=now_s)
            for event in events
        ]

    def recall(self, number: int, time_s: float) -> None:
        """An epoch of an earlier session took so long."""
        self._spent_s[number] = self._spent_s.get(number, 0.0) + time_s

    def begin(self, number: int) -> None:
        """A worker begins a trial."""
        self._running[number] = _Running(self._clock(), self._spent_s.get(number, 0.0))

    def hear(self, number: int, epochs: int, together: float = 1.0) -> None:
        """A trial gives a sign of life, with so many epochs, one of so many that are trained ``together``."""
        trial = self._running.get(number)
        if trial is None:
            return
        now = self._clock()
        took_s = now - trial.since
        trial.since, trial.spent_s, trial.together = now, trial.spent_s + took_s, together
        if not epochs:
            return
        if trial.longest_s is None:
            self._longest_first_s = max(self._longest_first_s or 0.0, took_s)
        trial.longest_s = max(trial.longest_s or 0.0, took_s / epochs)

    def end(self, number: int) -> None:
        """A trial's worker has it no more."""
        trial = self._running.pop(number, None)
        if trial:
            self._spent_s[number] = trial.spent_s + self._clock() - trial.since

    def overdue(self) -> Iterator[tuple[int, str]]:
        """Yield the trials that have taken too long, each with the reason to end it."""
        now = self._clock()
        for number, trial in list(self._running.items()):
            waited_s = now - trial.since
            if self._hours is not None and trial.spent_s + waited_s > self._hours * 3600:
                yield number, f"took more than {self._hours:g} hours (resources.trial_hours)"
            elif self._minutes is not None:
                if waited_s > self._minutes * 60:
                    yield number, f"no epoch within {self._minutes:g} minutes (resources.epoch_minutes)"
            elif (bound_s := self._measured_bound_s(trial)) is not None and waited_s > bound_s:
                minutes = f"{waited_s / 60:.0f} minutes"
                yield number, f"no epoch within {minutes}, far longer than any before (resources.epoch_minutes)"

    def _measured_bound_s(self, trial: _Running) -> float | None:
        if trial.longest_s is not None:
            return _TIMES * trial.longest_s + _AFTER_S
        if self._longest_first_s is not None:
            return _TIMES * self._longest_first_s + _FIRST_AFTER_S
        return None
