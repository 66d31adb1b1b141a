"""Decides when a sweep must stop and when a trial has taken too long.

`Limits` (budgets, target, plateau, failures) follow from the events, so a resumed sweep continues counting. `Timeouts`
use the driver's own clock and ignore the clocks of nodes. A trial that hangs reports nothing, so it is detected by the
time since its last sign of life. If the sweep file sets no bound, the epochs measured so far determine one; before the
first epoch there is none.
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
from sweep.store.ledger import Change, Ended, Reported, SessionChange, TrialState
from sweep.text import counted

ALIKE = 2  # trials that fail in the same way, regardless of their parameters, before the sweep ends


NEXT = 8
"""The number of configurations whose gain `stop_when.gain` asks for."""


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """The expected gain of the next configurations, and the smallest gain for which the search continues."""

    gain: float  # in the units of the objective
    least: float
    why: str  # where the least gain comes from
    configurations: int = NEXT

    @property
    def is_enough(self) -> bool:
        """Whether the search continues, because the expected gain is not below the smallest one."""
        return self.gain >= self.least

    def describe(self) -> str:
        """Return the comparison of the two gains, such as ``expected gain of the next 8 configurations 0.1 >= 0.05``.

        The reason of the smallest gain follows in parentheses. Both are rounded to two digits, so that gains that look
        equal may still be compared with ``<``.
        """
        sign = ">=" if self.is_enough else "<"
        next_ones = counted(self.configurations, "configuration")
        return f"expected gain of the next {next_ones} {self.gain:.2g} {sign} {self.least:.2g} ({self.why})"


class Limits:
    """The limits of a sweep (target, budgets, plateau, failures), and what its events have counted towards them."""

    def __init__(self, spec: Spec) -> None:
        self._set_limits(spec)
        self._earlier_s = 0.0  # driving time of earlier sessions
        self._session_s = 0.0  # driving time of this session
        self._is_timed = False  # the log has the driver's own clock for this session
        # whether the confirmation trains now, whose time does not count towards the budget of hours
        self._is_confirming = False
        self._last_time: float | None = None  # of the last event, if the log is not timed
        self._gpu_s = 0.0  # GPU-seconds of the epochs so far
        self._under_way_s = 0.0  # training time of running trials since their last report
        self._epochs = 0
        self._cost = 0.0
        self._since_better = 0  # trials that have ended since the best completed one
        self._failures: list[Params] = []  # configurations that failed in a row
        self._last_failure = ""
        self._alike = 0  # failures in a row, regardless of parameters and for the last reason
        self._best_loss: float | None = None  # of completed trials, at their ends
        # the best loss of all epochs, and the report with it
        self._best_report: tuple[float, EpochReported] | None = None

    def _set_limits(self, spec: Spec) -> None:
        """Set the limits to those of a sweep file; nothing that was counted changes."""
        self._objective = spec.objectives[0]
        self._target = spec.metrics[0].target
        self._budget = spec.budget
        caps = []
        for cap in (spec.run_cap, spec.budget.trials):
            if cap is not None:
                caps.append(cap)
        self.cap = min(caps, default=None)  # configurations to try in all sessions together
        if spec.stop_when:  # `GainRule` checks its other settings
            # trials without a better one; None: no limit
            self._patience = spec.stop_when.no_improvement
        else:
            self._patience = None
        self._max_failures = spec.max_failures
        if spec.resources.price is None:
            self._highest_price = 0.0
        else:
            self._highest_price = prices.find_price_bounds(spec.resources.price)[1]
        self._bounds = analysis.BudgetLimits.of(spec)

    def change(self, spec: Spec) -> None:
        """Replace the limits by those of a changed sweep file; what was counted so far stays."""
        self._set_limits(spec)

    @property
    def reached(self) -> str | None:
        """Which limit is reached, in words; None if none is. The order: target, budget, plateau, failures.

        The limit on configurations, `cap`, is not among them.
        """
        return (
            self._describe_target()
            or self._describe_spent_budget()
            or self._describe_plateau()
            or self._describe_failures()
        )

    def set_times(self, session_s: float, under_way_s: float) -> None:
        """Set the seconds that this session has run, and that running trials have trained since their last reports.

        ``session_s`` is ignored while the confirmation trains (`observe_confirmation`).
        """
        self._is_timed = True
        if not self._is_confirming:
            self._session_s = session_s
        self._under_way_s = under_way_s

    def observe(self, change: Change) -> None:
        """Count a change of the search or of a session: time and spending, failures, and trials without improvement.

        The start of a session sets the failures in a row to 0. The end of a session is ignored if the confirmation
        trains.
        """
        match change:
            case SessionChange(SessionStarted(time=now)):
                self._earlier_s = self._earlier_s + self._session_s
                self._session_s = 0.0
                self._is_timed, self._last_time = False, now
                self._is_confirming = False
                self._failures.clear()  # the code may have been corrected
                self._alike = 0
                return  # without `_clock`, which counts the time of events within a session
            case SessionChange() if self._is_confirming:
                return  # the session ends; the time since the last epoch of the search does not count
            case Reported(_, report):
                # the search goes on: only a trial of an interrupted confirmation was trained before
                self._is_confirming = False
                self._count_epoch(report)
            case Ended(trial, end):
                self._count_failure(trial, end)
                self._count_towards_plateau(trial, end)
            case _:
                pass
        self._clock(change.event)

    def observe_baseline(self, change: Change) -> None:
        """Count the time and the spending of a baseline trial, which counts towards no other limit."""
        if isinstance(change, Reported):
            self._count_spending(change.event)
        self._clock(change.event)

    def observe_confirmation(self) -> None:
        """Stop counting this session's time, except that of baseline trials, until the search reports an epoch."""
        self._is_confirming = True

    def _count_spending(self, event: EpochReported) -> None:
        """Add an epoch to the spent epochs, GPU time and cost, unless its result is taken from another sweep."""
        if not event.memo:
            self._epochs += 1
            self._cost += event.measures.get(COST, 0.0)
            self._gpu_s += self._bounds.gpu_s(event)

    def _count_epoch(self, event: EpochReported) -> None:
        """Add an epoch to what is spent, and note its loss if it is the best one that meets the constraints.

        That of an epoch in which the trial diverged does not count, whatever its objective.
        """
        self._count_spending(event)
        loss = self._objective.loss(event.metrics)
        if (
            loss is None
            or self._objective.list_violated(event.metrics)
            or self._objective.explain_divergence(event)
        ):
            return
        if self._best_report is None or loss < self._best_report[0]:
            self._best_report = loss, event

    def _describe_target(self) -> str | None:
        """Return in words which trial of the search has reached the target; None if none has, or there is no target.

        It is the trial with the best epoch so far, even if another one has reached the target before.
        """
        if self._best_report is None:
            return None
        _, best = self._best_report
        reached = self._objective.describe_reached(self._target, best.metrics)
        if not reached:
            return None
        return f"{reached} in trial {best.trial}"

    def _count_failure(self, trial: TrialState, event: TrialEnded) -> None:
        """Update the numbers of failures in a row with the end of a trial; any other status than failed sets them to 0.

        Counted are the different configurations that failed, and trials that failed for the same reason regardless of
        their parameters.
        """
        if event.status is not Status.FAILED:
            self._failures.clear()
            self._alike = 0
            return
        if not event.regardless:  # it had read a parameter, which may be the cause
            self._alike = 0
        elif event.reason == self._last_failure:
            self._alike += 1
        else:
            self._alike = 1
        self._last_failure = event.reason
        if trial.params not in self._failures:
            self._failures.append(trial.params)

    def _count_towards_plateau(self, trial: TrialState, event: TrialEnded) -> None:
        """Update the number of trials that have ended since the best completed one, for `stop_when.no_improvement`.

        Only completed, infeasible and pruned trials count, without those that pause or were paused until the end; only
        a completed one can be better.
        """
        # ``waits``: it pauses, or was paused until the search was over, which does not show that it makes no progress
        if event.waits or event.status not in JUDGED:
            return
        completed = event.status is Status.COMPLETED
        loss = self._objective.loss(trial.last)
        if completed and loss is not None and (self._best_loss is None or loss < self._best_loss):
            self._best_loss = loss
            self._since_better = 0
        else:
            self._since_better += 1

    def _clock(self, event: Event) -> None:
        """Set the time of the session to that of an event, by the driver's clock if the log has it (``driven_s``).

        For a log of an earlier release, add the time since the last event by the clocks of the nodes. `SessionStarted`
        and `ModelTested` events are ignored, and so is one without ``driven_s`` in a session that has others with it.
        """
        if isinstance(event, SessionStarted | ModelTested):
            return
        if event.driven_s is not None:
            self._is_timed = True
            self._session_s = event.driven_s
        # the log of an earlier release: use the clocks of the nodes, which may go back
        elif not self._is_timed:
            last = self._last_time or event.time
            now = event.time
            self._session_s += max(now - last, 0.0)
            self._last_time = max(now, last)

    def _describe_plateau(self) -> str | None:
        """Return in words that `stop_when.no_improvement` trials have ended without a better one; else None."""
        if self._patience is None or self._since_better < self._patience:
            return None
        return f"no improvement in {self._patience} trials"

    def _describe_failures(self) -> str | None:
        """Return in words that too many trials have failed in a row, with the last reason; else None.

        Too many are `max_failures` configurations, or `ALIKE` trials that failed alike regardless of their parameters.
        """
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

    def _describe_spent_budget(self) -> str | None:
        """Return in words which budget is spent, such as ``budget of 4 GPU hours``; None if none is.

        The budgets are hours, GPU hours, epochs and money; the first one of these that is spent is returned. The time
        that running trials have trained since their last reports is included, at the highest price.
        """
        budget = self._budget
        under_way_gpu_s = self._under_way_s * self._bounds.gpus  # `gpus` are those of a trial
        for limit, spent, unit in (
            (budget.hours, (self._earlier_s + self._session_s) / 3600, "hours"),
            (budget.gpu_hours, (self._gpu_s + under_way_gpu_s) / 3600, "GPU hours"),
            (budget.epochs, self._epochs, "epochs"),
            (budget.money, self._cost + under_way_gpu_s / 3600 * self._highest_price, "in money"),
        ):
            if limit is not None and spent >= limit:
                return f"budget of {limit:g} {unit}"
        return None


LOOK_S = 0.2  # seconds between checks of the clock
_TIMES = 10  # times the longest epoch of the trial so far
_AFTER_S = 600.0  # plus this: for a checkpoint, a validation, other load
_FIRST_AFTER_S = 3600.0  # a first epoch includes loading data and compiling
_ABSENT_S = 30.0  # if the driver did not look for longer, it was itself stopped or busy


@dataclass(slots=True)
class _Running:
    """Timing of a trial that a worker has begun."""

    since: float  # time of the last sign of life
    spent_s: float  # training time until then
    longest_s: float | None = None  # longest time for an epoch
    together: float = 1.0  # trials that its worker trains at once


class Timeouts:
    """Measures the time of a session and of its running trials by the driver's own clock."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hours = resources.trial_hours
        self._minutes = resources.epoch_minutes
        self._began = self._looked = clock()
        self._running: dict[int, _Running] = {}
        self._spent_s: dict[int, float] = {}  # by trials that began earlier and have not ended
        self._longest_first_s: float | None = None

    def change(self, resources: Resources) -> None:
        """Replace the time limits of trials and epochs by those of a changed sweep file."""
        self._hours = resources.trial_hours
        self._minutes = resources.epoch_minutes

    @property
    def session_s(self) -> float:
        """Seconds since this session began."""
        return self._clock() - self._began

    @property
    def under_way_s(self) -> float:
        """Seconds that running trials have trained since their last reports, in total.

        The time of trials that one worker trains together is divided by their number.
        """
        now = self._clock()
        return sum((now - trial.since) / trial.together for trial in self._running.values())

    def is_due(self) -> bool:
        """Return whether timeouts are to be checked now: at least `LOOK_S` seconds after this last returned True.

        The first time, the seconds count from the beginning of the session. If more than `_ABSENT_S` seconds have
        passed, the driver itself was stopped or busy, and that time is not counted as time of the trials.
        """
        late = self._clock() - self._looked
        if late < LOOK_S:
            return False
        self._looked += late
        if late > _ABSENT_S:  # the trials get that time back
            for trial in self._running.values():
                # it may have reported since the last check: its time must not begin in the future
                trial.since = min(trial.since + late, self._looked)
        return True

    def stamp(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events, each with the seconds since this session began as its ``driven_s``, to a millisecond.

        `SessionStarted` and `ModelTested` events have no such seconds and are returned as they are.
        """
        now_s = round(self.session_s, 3)
        stamped: list[Event] = []
        for event in events:
            if isinstance(event, SessionStarted | ModelTested):
                stamped.append(event)
            else:
                stamped.append(structs.replace(event, driven_s=now_s))
        return stamped

    def recall(self, number: int, time_s: float) -> None:
        """Add the seconds of an epoch, logged by an earlier session, to the time that trial ``number`` has taken."""
        self._spent_s[number] = self._spent_s.get(number, 0.0) + time_s

    def begin(self, number: int) -> None:
        """Start timing trial ``number``, which a worker has begun; the time that it took before is added to this."""
        self._running[number] = _Running(self._clock(), self._spent_s.get(number, 0.0))

    def record_step(self, number: int, epochs: int, together: float = 1.0) -> None:
        """Record that trial ``number`` has reported ``epochs`` epochs, and start waiting for its next report.

        ``epochs`` may be 0; otherwise the seconds since its last report are those of so many epochs of equal length.
        ``together`` is the number of trials that the worker trains at once. Does nothing for a trial that is not timed.
        """
        trial = self._running.get(number)
        if trial is None:
            return
        now = self._clock()
        took_s = now - trial.since
        trial.since = now
        trial.spent_s = trial.spent_s + took_s
        trial.together = together
        if not epochs:
            return
        # the first report of this worker, whose time includes loading and compiling
        if trial.longest_s is None:
            self._longest_first_s = max(self._longest_first_s or 0.0, took_s)
        trial.longest_s = max(trial.longest_s or 0.0, took_s / epochs)

    def end(self, number: int) -> None:
        """Stop timing trial ``number`` and keep the time it took, for `begin`; do nothing if it is not timed."""
        trial = self._running.pop(number, None)
        if trial:
            self._spent_s[number] = trial.spent_s + self._clock() - trial.since

    def list_overdue(self) -> Iterator[tuple[int, str]]:
        """Yield (trial, reason to end it) for each running trial that has taken too long.

        The limits are `trial_hours`, for all of its training in all sessions, and `epoch_minutes` since its last report
        or, without the latter, a bound by the epochs measured so far. Trials may be ended while this is iterated.
        """
        now = self._clock()
        # a copy: the caller ends trials in between
        for number, trial in list(self._running.items()):
            waited_s = now - trial.since
            if self._hours is not None and trial.spent_s + waited_s > self._hours * 3600:
                yield number, f"took more than {self._hours:g} hours (resources.trial_hours)"
            elif self._minutes is not None:
                if waited_s > self._minutes * 60:
                    yield (
                        number,
                        f"no epoch within {self._minutes:g} minutes (resources.epoch_minutes)",
                    )
            elif (bound_s := self._compute_bound_s(trial)) is not None and waited_s > bound_s:
                minutes = f"{waited_s / 60:.0f} minutes"
                yield (
                    number,
                    f"no epoch within {minutes}, far longer than any before (resources.epoch_minutes)",
                )

    def _compute_bound_s(self, trial: _Running) -> float | None:
        """Return the most seconds to wait for a trial's next report; None if no epoch was measured yet.

        The bound is 10 times the trial's longest epoch plus 10 minutes or, before the first epoch with its present
        worker, 10 times the longest such first epoch of any trial plus an hour.
        """
        if trial.longest_s is not None:
            return _TIMES * trial.longest_s + _AFTER_S
        if self._longest_first_s is not None:
            return _TIMES * self._longest_first_s + _FIRST_AFTER_S
        return None
