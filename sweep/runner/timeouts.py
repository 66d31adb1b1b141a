"""The driver's own clock: how long a session and its trials take, whatever the clocks of nodes say.

A trial that hangs reports nothing, so that it is found by the time since its last sign of life. Where the file gives
no bound, one follows from the epochs that were measured so far; before the first of them, nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from sweep.events import Event, ModelTested, SessionEnded, SessionStarted
from sweep.spec.blocks import Resources

STAMP_S = 10.0  # at most so much of a killed session's time is not in the log
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


class Timeouts:
    """Times a session and the trials that run in it."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hours, self._minutes = resources.trial_hours, resources.epoch_minutes
        self._began = self._looked = clock()
        self._running: dict[int, _Running] = {}
        self._spent_s: dict[int, float] = {}  # by trials that were begun before and have not ended
        self._longest_first_s: float | None = None
        self._stamped_s: float | None = None  # when the log was last told

    @property
    def session_s(self) -> float:
        """Seconds since the session began."""
        return self._clock() - self._began

    @property
    def under_way_s(self) -> float:
        """Seconds that running trials have trained since they reported last, all together."""
        now = self._clock()
        return sum(now - trial.since for trial in self._running.values())

    def is_due(self) -> bool:
        """Whether it is time for a look; one that comes late is not the trials' fault."""
        late = self._clock() - self._looked
        if late < LOOK_S:
            return False
        self._looked += late
        if late > _ABSENT_S:
            for trial in self._running.values():
                trial.since += late
        return True

    def stamp(self, events: Sequence[Event]) -> Sequence[Event]:
        """Events for the log, which is told this session's time now and then: a resumed sweep's budget counts on."""
        now, last = self.session_s, events[-1]
        due = self._stamped_s is None or now - self._stamped_s >= STAMP_S or isinstance(last, SessionEnded)
        if isinstance(last, SessionStarted | ModelTested) or not due:
            return events
        self._stamped_s = now
        return [*events[:-1], structs.replace(last, driven_s=round(now, 3))]

    def recall(self, number: int, time_s: float) -> None:
        """An epoch of an earlier session took so long."""
        self._spent_s[number] = self._spent_s.get(number, 0.0) + time_s

    def begin(self, number: int) -> None:
        """A worker begins a trial."""
        self._running[number] = _Running(self._clock(), self._spent_s.get(number, 0.0))

    def hear(self, number: int, epochs: int) -> None:
        """A trial gives a sign of life, with so many epochs."""
        trial = self._running.get(number)
        if trial is None:
            return
        now = self._clock()
        took_s = now - trial.since
        trial.since, trial.spent_s = now, trial.spent_s + took_s
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
        """The trials that have taken too long, each with the reason to end it."""
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
