"""The current state of a sweep, folded from its events, as live views and metrics show it.

It knows no terminal, no Ray and no clock: callers pass the time when they ask for rates and durations.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec import structs

from sweep.analysis.outline import BudgetLimits, Outline
from sweep.analysis.survival import Foresight, Prospect, estimate_seconds_left, estimate_survival
from sweep.errors import InputError, StoreAway
from sweep.events import (
    ON_REQUEST,
    WHOLE,
    ConfigurationsEnqueued,
    EpochReported,
    Event,
    Params,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    SteeringEvent,
    SweepChanged,
    TrialEnded,
    TrialStarted,
)
from sweep.prices import COST
from sweep.progress import count_units
from sweep.space.domains import configuration_key
from sweep.space.early_terminate import NoTermination, Own
from sweep.statistics.means import compute_mean
from sweep.store import ledger, log
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger, TrialState
from sweep.text import shortened

if TYPE_CHECKING:
    from sweep.analysis.present_spec import PresentSpec
    from sweep.spec import Spec

MOST = 128  # maximum number of points of a curve that are kept


class ThinnedCurve:
    """A curve in bounded memory: as it grows, it keeps every second value, then every fourth, and the last."""

    __slots__ = ("_count", "_kept", "_last", "_stride")

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._count = 0  # all values so far
        self._stride = 1  # every which value is kept
        self._last = 0.0

    def add(self, value: float) -> None:
        """Add the value of the next epoch.

        Once `MOST` values are kept, every second one is dropped, and only half as many of the later values are kept.
        The latest value is known in any case.
        """
        if self._count % self._stride == 0:
            self._kept.append(value)
            if len(self._kept) >= MOST:
                del self._kept[1::2]  # every second value
                self._stride *= 2  # and of later values only those at the same distance
        self._count += 1
        self._last = value

    def points(self, most: int) -> list[float]:
        """Return at most ``most`` evenly spaced ones of the values that are kept, of which the last is the latest.

        The result is empty if there is no value, or if ``most`` is less than 1.
        """
        if not self._count or most < 1:
            return []
        if (self._count - 1) % self._stride == 0:  # the latest value is among those that are kept
            values = self._kept
        else:
            values = [*self._kept, self._last]
        if len(values) <= most:
            return list(values)
        shown = []  # the last value of each of ``most`` parts of about the same length
        for part in range(1, most + 1):
            index = round(part * len(values) / most) - 1
            shown.append(values[index])
        return shown


@dataclass(slots=True)
class Open:
    """A trial that has not ended for good, with its progress, as the live view shows it."""

    state: TrialState
    of: int  # epochs that it is to train, or hundredths of its minutes
    counts_epochs: bool = True
    value: float | None = None  # the objective, as last reported
    curve: ThinnedCurve = field(default_factory=ThinnedCurve)
    measures: Mapping[str, float] = field(default_factory=dict)  # of its last epoch
    reached: int = 0  # units of `of`, as counted for the rungs
    trained_s: float | None = 0.0  # training time; None if it was not trained in one go
    heard: float | None = None  # when its last epoch ended; None before its first epoch

    @property
    def done(self) -> int:
        """How far the trial has trained, in the units of `of`: epochs, or hundredths of its minutes."""
        return count_units(self.state.epoch, self.state.share, self.of)

    @property
    def position(self) -> str:
        """How far the trial has trained, in words such as 3/10 (epochs) or 37 % (of its minutes)."""
        if self.counts_epochs:
            return f"{self.done}/{self.of}"
        return f"{self.done} %"


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial that ended or was interrupted; ``took_s`` are the seconds since its start."""

    trial: int
    status: Status
    reason: str
    epochs: int
    value: float | None
    params: Params
    took_s: float


@dataclass(slots=True)
class Failure:
    """How many trials failed for the same kind of reason, mostly the type of an exception, and the last of them."""

    count: int = 0
    trial: int = 0  # number of the latest one
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Best:
    """The best completed configuration, by the mean of its repeats."""

    value: float
    trials: tuple[int, ...]
    params: Params
    fresh: bool = False  # the value is the mean over fresh seeds


@dataclass(frozen=True, slots=True)
class RungStatus:
    """An epoch at which trials can be or were pruned, with the number of trials that reached it."""

    epoch: int
    reached: int
    pruned: int


@dataclass(slots=True)
class Spending:
    """What counts towards the budgets: the epochs, GPU seconds and cost of the search and the baseline."""

    epochs: int = 0
    gpu_s: float = 0.0
    cost: float = 0.0


class LogReader:
    """Reads the events of a log as they are written, from byte ``offset`` on."""

    def __init__(self, folder: ResultsFolder, offset: int = 0) -> None:
        self._folder, self._path = folder, folder.log
        self._offset = offset
        # by which `more` notices that what was read is not in the log any more
        if offset and self._path.exists():
            self._mark = log.mark(self._path, offset)
        else:
            self._mark = ""
        self._refreshed = time.monotonic()

    @property
    def share(self) -> float:
        """The share of the log's bytes that was read or skipped, from 0 to 1; 1 if it is empty or cannot be found."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return 1.0
        if not size:
            return 1.0
        return min(self._offset / size, 1.0)

    def more(self) -> list[Event] | None:
        """Return the next events of the log, about a megabyte at most; an empty list if there are none yet, or no log.

        Returns None if the log was replaced (repaired, truncated or rewritten): then discard all earlier events; the
        next call starts from the beginning, whatever the first offset was. If the sweep is in an object store, its copy
        here is updated before, at most once a second; nothing is raised if the store is unavailable. Raises
        `StoreError` if the log is damaged, or the copy cannot be updated for another reason.
        """
        if time.monotonic() - self._refreshed > REFRESH_S:
            with suppress(StoreAway):  # the next refresh may succeed
                self._folder.refresh()
            self._refreshed = time.monotonic()
        if not self._path.exists():
            return []
        if log.was_replaced(self._path, self._offset, self._mark):
            self._offset = 0
            return None
        events, self._offset = log.read_from(self._path, self._offset)
        self._mark = log.mark(self._path, self._offset)
        return events


REFRESH_S = 1.0  # between refreshes from an object store
STEP_S = 2.0  # within which workers report the epochs that they have trained
RATE_S = 10  # seconds over which the rate of epochs is measured
RECENT = 256  # number of epochs, and of trials, whose times are averaged
KINDS = 50  # maximum number of kinds of failures
LATEST = 50  # number of ended trials that are kept


class Standing:
    """The state of a sweep after the events observed so far: what live views and metrics show.

    Its attributes are for reading only. Not thread-safe.
    """

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        if outline.spec is None:
            self._present_spec = None
        else:
            self._present_spec = _follow_spec(outline.spec)
        # the changes whose result is not valid, as one; see `_follow_change`
        self._invalid_change: SweepChanged | None = None
        self._ledger = Ledger(keep_epochs=False)
        self.open: dict[int, Open] = {}
        # the open trials that train now, in the order of their start
        self.running: dict[int, Open] = {}
        self.ended: dict[Status, int] = dict.fromkeys(Status, 0)
        # trials that trained all their epochs, without those with fresh seeds
        self._trained_to_end = 0
        self.failures: dict[tuple[Status, str], Failure] = {}
        self.searched_best: Best | None = None  # by the trials of the search alone
        self._confirmed_best: Best | None = None
        self._knows_confirmed_best = False  # whether it is that of the present trials
        self.latest: deque[FinishedTrial] = deque(maxlen=LATEST)
        self.epochs = 0
        self.started = 0  # trials
        self.session: float | None = None  # start of the current session
        # why the last session ended; None while one runs, or if its driver was killed
        self.over: str | None = None
        # it ended because nothing was left to do, or because a limit was reached
        self.has_finished = False
        self.last: float | None = None  # the time of the last event
        self.has_reported = False  # whether a trial has reported an epoch in the current session
        # whether it was changed or added to since its last session ended
        self.is_steered_after_end = False
        self._trained_s = 0.0
        self._gpu_s = 0.0  # GPU-seconds of training
        self.cost = 0.0  # of the GPUs, over all epochs
        self._priced_s = 0.0  # training time of the epochs that have a cost
        # costs of first epochs, which include the start of the trial
        self._first_epoch_costs: deque[float] = deque(maxlen=RECENT)
        self._later_epoch_costs: deque[float] = deque(maxlen=RECENT)  # costs of other epochs
        self.measures = False  # whether trials measure their use of resources
        self.confirming: set[int] = set()  # trials with fresh seeds
        self._earlier_sessions_s = 0.0  # duration of the sessions before the current one
        self.spent = Spending()
        # since when the current session has trained only fresh seeds; None while the search goes on
        self._confirming_since: float | None = None
        self._earlier_confirming_s = 0.0  # how long earlier sessions trained only fresh seeds
        # the kind of failure of trials that may be retried
        self._failure_kinds: dict[int, tuple[Status, str]] = {}
        # trials by epoch, in the units of the rungs
        self._reached_by_unit: Counter[int] = Counter()
        # trials that ended early or pause, by their last epoch, also in these units
        self._lost_by_unit: Counter[int] = Counter()
        # those of them that the stopping rule ended
        self._pruned_by_unit: Counter[int] = Counter()
        # trials paused by a stopping rule, and the epochs where they paused
        self._paused_at: dict[int, int] = {}
        rule = outline.rule
        # whether the rule can be rehearsed: not a user's own, nor one that pauses trials
        acts = not (isinstance(rule, NoTermination | Own) or rule.pauses)
        self._foresight = (
            Foresight(
                rule,
                outline.objective,
                outline.drawn_lengths or (outline.epochs,),
                outline.max_length,
            )
            if acts
            else None
        )
        # of completed trials, by configuration and number
        self._scores_of_configurations: dict[str, dict[int, float]] = {}
        self._params_of_configurations: dict[str, Params] = {}  # of these configurations
        # pairs [second, epochs that ended in it]
        self._epochs_by_second: deque[list[int]] = deque(maxlen=RATE_S + 2)
        self._epoch_times_s: deque[float] = deque(maxlen=RECENT)
        self._overheads_s: deque[float] = deque(maxlen=RECENT)
        # how many trials ran, at the latest starts of trials
        self._running_counts: deque[int] = deque(maxlen=32)

    @property
    def best(self) -> Best | None:
        """The best configuration so far: the leader of the confirmation, or else the best of the search.

        The baseline counts as one of the search. None before a trial has completed with a finite score.
        """
        if not self.confirming:
            return self.searched_best
        if not self._knows_confirmed_best:
            self._confirmed_best = self._find_confirmed_best()
            self._knows_confirmed_best = True
        return self._confirmed_best or self.searched_best

    def _find_confirmed_best(self) -> Best | None:
        """Return the leader of the confirmation, scored by its completed trials; None if it has none.

        These are its trials with fresh seeds or, before one of them has completed, those of the search. Also None if
        the sweep file is not known or has no ``confirm``.
        """
        from sweep.analysis import confirmation  # imports numpy, for few sweeps

        spec = self.outline.spec
        if spec is None or spec.confirm is None:
            return None
        runs = confirmation.list_runs(self._ledger, self.outline.objective)
        found = confirmation.list_leader_trials(runs, confirmation.make_rules(spec.confirm, spec))
        if found is None:
            return None
        values = {one.trial: self.outline.objective.from_loss(one.loss) for one in found}
        fresh = found[0].role is Role.CONFIRM
        return Best(compute_mean(values.values()), tuple(sorted(values)), found[0].params, fresh)

    @property
    def total(self) -> int | None:
        """The number of trials of the search and the baseline, and of those with fresh seeds that have begun.

        None if unknown. It is at least the number of trials that have started: these may be more than were planned,
        because copies that failed are replaced, and a limit may have been lowered.
        """
        total = self.outline.total
        present = self._present_spec
        # after such changes, the number depends on what had begun before
        if present is not None and (present.is_steered or present.repeats_changed):
            total = present.all_trials
        if total is None:
            return None
        return max(total + len(self.confirming), self.started)

    @property
    def queued(self) -> int:
        """The number of configurations that a person has added and that have not started yet."""
        return len(self._ledger.queue)

    @property
    def finished(self) -> int:
        """The number of trials that ended for good, in whatever way, also those with fresh seeds."""
        return sum(self.ended.values())

    @property
    def spec(self) -> Spec | None:
        """The sweep file with all changes so far; None if the outline has no sweep file."""
        return None if self._present_spec is None else self._present_spec.spec

    @property
    def note(self) -> str:
        """The note that a person has written on the sweep; "" if there is none."""
        return self._ledger.note

    def list_marked_trials(self) -> list[TrialState]:
        """Return the trials that now have a star or a note by a person, in the order of their start."""
        return [trial for trial in self._ledger.trials.values() if trial.starred or trial.note]

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all epochs trained so far; results that were reused instead of trained do not count."""
        return self._gpu_s / 3600

    @property
    def paused(self) -> int:
        """The number of trials that wait until `early_terminate` resumes them."""
        return len(self._paused_at)

    def observe(self, event: Event) -> FinishedTrial | None:
        """Update the state with an event; return the trial that it ended, interrupted or reopened, or None.

        Raises `OutOfOrder` if the event cannot follow the earlier ones.
        """
        before = self.last
        if not isinstance(event, SteeringEvent):  # a person may steer a sweep that does not run
            self.last = event.time
        change = self._ledger.observe(event)  # what the event means, such as `ledger.Started`
        if self._present_spec is not None:
            change = self._follow_change(self._present_spec, change)
        match change:
            case ledger.Reported(trial, report):
                self._follow_confirmation(trial, report)
                self._count_epoch(trial, report)
            case ledger.Started(trial, start):
                self._follow_confirmation(trial, start)
                if trial.role is Role.CONFIRM:
                    self.confirming.add(trial.number)
                self.started += 1
                self._knows_confirmed_best = False  # `best` finds it again
                self.running[trial.number] = self._add_open_trial(trial)
                self._running_counts.append(len(self.running))
            case ledger.Interrupted() | ledger.Reopened() | ledger.Ended():
                return self._end(change)
            case ledger.Steered(steered):
                self._steer(steered)
            case ledger.SessionChange(SessionStarted() as session):
                self._begin_session(session, before)
            case ledger.SessionChange(SessionEnded() as end):
                self.over = end.reason
                self.has_finished = _is_finished(end)
            case _:
                pass
        return None

    def _follow_confirmation(self, trial: TrialState, event: TrialStarted | EpochReported) -> None:
        """Record since when the session trains only fresh seeds, in `_confirming_since`; ``event`` is the trial's.

        That is from the first event of a trial with a fresh seed on, until a trial of the search reports an epoch.
        Events of the baseline change nothing.
        """
        if trial.role is Role.CONFIRM:
            if self._confirming_since is None:
                self._confirming_since = event.time
        elif trial.role is Role.SEARCH and isinstance(event, EpochReported):
            self._confirming_since = None

    def _follow_change(self, present: PresentSpec, change: ledger.Change) -> ledger.Change:
        """Let the present spec observe what an event of the log has changed, and return the change.

        A change of the sweep file after which the file is not valid is kept and applied together with the next change
        of the file; then both are returned as one. That happens because the outline's sweep file may have later changes
        that do not fit an earlier one, or because another version of sweep has made the change.
        """
        if not (isinstance(change, ledger.Steered) and isinstance(change.event, SweepChanged)):
            present.observe(change)
            return change
        event = change.event
        if self._invalid_change is not None:  # apply both as one
            settings = {**self._invalid_change.settings, **event.settings}
            dropped = (*self._invalid_change.dropped, *event.dropped)
            event = structs.replace(event, settings=settings, dropped=dropped)
        change_of_file = ledger.Steered(event)
        try:
            present.observe(change_of_file)
            self._invalid_change = None
        except InputError:  # the spec is as before
            self._invalid_change = event
        return change_of_file

    def _steer(self, event: SteeringEvent) -> None:
        """Apply a changed sweep file, and record whether a sweep whose session has ended was changed or added to.

        Added are configurations, by a person. Notes and stars change nothing here. Without a sweep file in the outline,
        no change is applied.
        """
        if isinstance(event, SweepChanged | ConfigurationsEnqueued):
            self.is_steered_after_end = self.over is not None
        if isinstance(event, SweepChanged) and self._present_spec is not None:
            self._apply_change(event, self._present_spec.spec)

    def _apply_change(self, event: SweepChanged, spec: Spec) -> None:
        """Apply the sweep file after a change, ``spec``: its limits, its stopping rule and its repeats.

        If the stopping rule has changed, survivors are from now on estimated from those so far, without rehearsing a
        rule. If ``repeats`` is among the changed keys, the best configuration is found again.
        """
        before = self.outline
        self.outline = Outline.of(spec)
        self._knows_confirmed_best = False
        if self.outline.rule != before.rule:
            self._foresight = None
        if "repeats" in event.settings:
            self._find_best_again()

    def _add_open_trial(self, trial: TrialState) -> Open:
        """Add a trial that starts or is reopened to the open ones, without a score or a curve, and return it."""
        opened = Open(trial, self.outline.epochs_of(trial.params), self.outline.counts_epochs)
        # what a copy has from its parent, or a trial from before it failed, does not count again
        opened.reached = opened.done
        self.open[trial.number] = opened
        return opened

    def active_s(self, now: float) -> float:
        """Return the seconds of all sessions up to ``now``, without the time between them; 0 before the first session.

        Times are in seconds since 1970. If the last session has ended, it counts up to its last event. If its driver
        was killed, the log has no end of it, and it counts up to ``now``.
        """
        if self.session is None:
            return 0.0
        return self._earlier_sessions_s + max(self._find_session_end(now) - self.session, 0.0)

    def counted_s(self, now: float) -> float:
        """Return the seconds of `active_s` that count towards the budget of hours, at least 0.

        Those in which only fresh seeds were trained do not count.
        """
        active_s = self.active_s(now) - self._earlier_confirming_s
        if self._confirming_since is not None:
            active_s -= max(self._find_session_end(now) - self._confirming_since, 0.0)
        return max(active_s, 0.0)

    def _find_session_end(self, now: float) -> float:
        """Return the time of the last event if the last session has ended, otherwise ``now``."""
        if self.over is None or self.last is None:
            return now
        return self.last

    def epochs_per_s(self, now: float) -> float:
        """Return the number of epochs per second over the ten seconds before ``now``, in seconds since 1970.

        If the present session is younger, it is over the time since its start, at least one second. Epochs that were
        reused from another sweep do not count.
        """
        if self.session is None:
            since = now - RATE_S
        else:
            since = max(now - RATE_S, self.session)
        # epochs are counted by whole seconds; one that begins before ``since`` and ends after it counts, too
        count = 0
        for second, epochs in self._epochs_by_second:
            if since - 1 < second <= now:
                count += epochs
        return count / max(now - since, 1.0)

    @property
    def longest_epoch_s(self) -> float:
        """The seconds of the longest of the latest 256 epochs that were trained here; 0 before the first one."""
        return max(self._epoch_times_s, default=0.0)

    def rungs(self) -> list[RungStatus]:
        """Return the status of each epoch at which trials can be or were pruned, ascending.

        Epochs are in the units in which the rule counts: hundredths of a trial's minutes if only these end a trial.
        Trials with fresh seeds are not among those that reached it. Those that a person stopped do not count as pruned.
        """
        epochs = sorted({*self.outline.decisions, *self._pruned_by_unit})
        statuses = []
        for epoch in epochs:
            reached, pruned = self._reached_by_unit[epoch], self._pruned_by_unit[epoch]
            statuses.append(RungStatus(epoch, reached, pruned))
        return statuses

    def survivors(self) -> float | None:
        """Estimate how many trials of the sweep will end by training all their epochs, including those that have.

        Trials with fresh seeds do not count. Return None if the number of trials is unknown, unless only fresh seeds
        are trained now.
        """
        waiting = self._count_trials_to_start()
        if waiting is None:
            return None
        if self._confirming_since is not None:
            # the search is over, except for trials that were still running when the first fresh seed began
            of_search = 0
            for _, trial in self._list_going():
                of_search += trial.state.role is not Role.CONFIRM
            return self._trained_to_end + of_search
        prospect = self._prospect()
        return self._trained_to_end + prospect.whole + waiting * prospect.waiting_whole

    def waiting(self) -> int | None:
        """Return how many trials of `total` have not started, at least 0; None if `total` is unknown."""
        if self.total is None:
            return None
        return max(self.total - self.started, 0)

    def left_s(self, now: float) -> float | None:
        """Estimate the seconds until the sweep ends, at least 0: until all trials have ended or a budget is spent.

        ``now`` is the time in seconds since 1970. Returns None if the last session has ended, before an epoch was
        trained, or if neither the number of trials nor a budget is known. While only fresh seeds are trained, no budget
        counts, and no trials but those that have begun.
        """
        if self.over is not None or not self._epoch_times_s:
            return None
        # the number of workers: the most trials that have recently run at once
        slots = max(*self._running_counts, len(self.running), 1)
        bounds = []  # seconds to each end that is known; the first of them ends the sweep
        waiting = self._count_trials_to_start()
        if waiting is not None:
            bounds.append(self._estimate_seconds_of_trials(now, waiting, slots))
        bounds += self._list_seconds_of_budgets(now, slots)
        return max(min(bounds), 0.0) if bounds else None

    def _estimate_seconds_of_trials(self, now: float, waiting: int, slots: int) -> float:
        """Estimate the seconds until the open trials and ``waiting`` new ones have ended, with ``slots`` workers.

        At least one epoch must have been trained.
        """
        unit_s = self._unit_s
        # The lower quartile, because a worker's first trial also imports and compiles, which its later trials do not.
        if self._overheads_s:
            overhead_s = sorted(self._overheads_s)[len(self._overheads_s) // 4]
        else:
            overhead_s = 0.0
        prospect = self._prospect()
        seconds_left = []  # of each open trial
        for (number, trial), units_left in zip(self._list_going(), prospect.left, strict=True):
            left_s = units_left * unit_s
            if number in self.running:
                left_s += self._time_under_way(trial, now, overhead_s)
            seconds_left.append(max(left_s, 0.0))
        new_trial_s = prospect.waiting_left * unit_s + overhead_s
        return estimate_seconds_left(seconds_left, waiting, new_trial_s, slots)

    def _list_seconds_of_budgets(self, now: float, slots: int) -> list[float]:
        """Return the estimated seconds until each budget of the sweep is spent, with ``slots`` trials training at once.

        They are negative if more is spent. Budgets whose use is not known yet are left out. At least one epoch must
        have been trained.
        """
        limits = self._find_limits()
        seconds = []
        if limits.hours is not None:
            seconds.append(limits.hours * 3600 - self.counted_s(now))
        if limits.epochs is not None:
            # this budget counts epochs, even if the units of a trial are hundredths of its minutes
            left_epochs = limits.epochs - self.spent.epochs
            seconds.append(left_epochs * fmean(self._epoch_times_s) / slots)
        if limits.gpu_hours is not None and self._gpu_s:
            left_gpu_s = limits.gpu_hours * 3600 - self.spent.gpu_s
            # GPU-seconds as seconds of one trial
            seconds.append(left_gpu_s * self._trained_s / self._gpu_s / slots)
        if limits.money is not None and self.cost:
            seconds.append((limits.money - self.spent.cost) / self._cost_per_s / slots)
        return seconds

    def _count_trials_to_start(self) -> int | None:
        """Return the number of trials that are still to start, as `waiting`; None if unknown.

        It is 0 while only fresh seeds are trained, because it is not known how many of these follow.
        """
        if self._confirming_since is not None:
            return 0
        return self.waiting()

    def _find_limits(self) -> BudgetLimits:
        """Return the budgets that may end the session: none while only fresh seeds are trained, which do not count."""
        if self._confirming_since is not None:
            return BudgetLimits()
        return self.outline.limits

    def _time_under_way(self, trial: Open, now: float, overhead_s: float) -> float:
        """Return the seconds to add to the time that a running trial's remaining epochs take.

        Before the trial's first epoch, these are the rest of the start-up time ``overhead_s``, at least 0. Later, it is
        minus the time since the last report, because a part of the next epoch is already trained. This time counts up
        to that of the longest epoch, or up to `STEP_S` if that is longer.
        """
        if trial.heard is None:
            return max(overhead_s - max(now - trial.state.started, 0.0), 0.0)
        since_s = max(now - trial.heard, 0.0)
        return -min(since_s, max(self.longest_epoch_s, STEP_S))

    @property
    def trained_trials(self) -> float:
        """The training so far, in trials: 1 for each trial that has ended, however early, and a share of each open one.

        The share is that of `count_trained`.
        """
        return self.finished + self.count_trained(self.open.values())

    def count_trained(self, trials: Iterable[Open]) -> float:
        """Return the sum of the trained shares of ``trials``, each at most 1; one at half of its epochs counts 0.5.

        A trial without epochs to train counts 0.
        """
        return sum(min(trial.done / trial.of, 1.0) for trial in trials if trial.of)

    @property
    def _unit_s(self) -> float:
        """Mean seconds of one unit of a trial: of an epoch, or of a hundredth of its minutes if only these end it.

        If both epochs and minutes limit a trial, it is the mean time of an epoch, but at most the trial's minutes
        divided by its epochs. At least one epoch must have been trained.
        """
        epoch_s = fmean(self._epoch_times_s)
        if self.outline.minutes is None:
            return epoch_s
        # `epochs` is 100 if only the minutes end a trial
        unit_s = 60 * self.outline.minutes / self.outline.epochs
        # a trial with epochs as well ends at the limit that it reaches first
        if self.outline.counts_epochs:
            return min(epoch_s, unit_s)
        return unit_s

    @property
    def _cost_per_s(self) -> float:
        """Mean cost of one second in which one trial trains, over the epochs that have a cost; 0 without any."""
        return self.cost / max(self._priced_s, 1e-9)

    def cost_in_all(self, now: float) -> float | None:
        """Estimate what the sweep's GPUs will have cost in all when it ends; None if that cannot be estimated.

        After the end of the last session, this is the cost so far, even if that is 0. Otherwise the cost of what is
        left is added to the cost so far. If the number of trials is known, what is left are the epochs expected of open
        and future trials, each at the mean cost of an epoch, and more for the first epoch of a new trial. If it is
        unknown, what is left is the time until the end (`left_s`), in which the trials that run now continue at the
        mean cost of a second of training. A budget in money is the upper limit. Returns None before an epoch with a
        cost was trained, or if neither the number of trials, nor that time, nor a budget in money is known.
        """
        if self.over is not None:
            return self.cost
        if not self.cost or not self._epoch_times_s:
            return None
        waiting = self._count_trials_to_start()
        limits = self._find_limits()
        bounds = []  # costs, of which the smallest is the estimate
        if limits.money is not None:
            # the budget, and what fresh seeds have cost in earlier sessions
            bounds.append(limits.money + self.cost - self.spent.cost)
        if waiting is not None:
            prospect = self._prospect()
            # units of open and new trials: epochs, or hundredths of their minutes
            left = sum(prospect.left) + waiting * prospect.waiting_left
            if self._later_epoch_costs:
                each = fmean(self._later_epoch_costs)
            else:
                each = self.cost / max(self.epochs, 1)
            # the cost of an epoch becomes that of a unit, which may be shorter
            if self.outline.minutes is not None:
                each *= self._unit_s / fmean(self._epoch_times_s)
            # A first epoch costs more than a later one, because of the start-up; the lower quartile, as in `left_s`.
            if self._first_epoch_costs:
                first = sorted(self._first_epoch_costs)[len(self._first_epoch_costs) // 4]
            else:
                first = each
            bounds.append(self.cost + left * each + waiting * max(first - each, 0.0))
        elif (left_s := self.left_s(now)) is not None:
            bounds.append(self.cost + left_s * max(len(self.running), 1) * self._cost_per_s)
        return min(bounds) if bounds else None

    def usage(self) -> Mapping[str, float]:
        """Return the resources that the running trials used in their last epochs; empty if they measure none.

        The keys, each only if a trial has measured a finite value, are ``cpu_cores`` and ``memory_peak_bytes``, summed
        over trials, and ``gpu_utilization``, the mean over those that measure it. All other measures are left out.
        """
        values_by_name: dict[str, list[float]] = {}
        for trial in self.running.values():
            for name, value in trial.measures.items():
                if math.isfinite(value):
                    values_by_name.setdefault(name, []).append(value)
        sums = {}
        means = {}
        for name, values in values_by_name.items():
            if name in ("cpu_cores", "memory_peak_bytes"):
                sums[name] = sum(values)
            elif name == "gpu_utilization":
                means[name] = fmean(values)
        return sums | means

    def _prospect(self) -> Prospect:
        """Estimate how far open and new trials will train: by rehearsing the stopping rule, or from survival so far.

        The open trials are those of `_list_going`, in the same order.
        """
        going = {}  # by trial: units trained, and units to train
        for number, trial in self._list_going():
            going[number] = (trial.done, trial.of)
        if self._foresight is None:  # the rule cannot be rehearsed
            return estimate_survival(self._reached_by_unit, self._lost_by_unit).prospect(
                [*going.values()], self.outline.expected_length
            )
        # only the trials that failed or pause, since the rehearsed rule prunes by itself
        return self._foresight.prospect(
            going, self._count_trials_to_start() or 0, self._lost_by_unit - self._pruned_by_unit
        )

    def _list_going(self) -> list[tuple[int, Open]]:
        """Return the open trials that are expected to train on, as pairs of number and trial, in the order of `open`.

        Paused ones are left out, as they count among those that ended early, at the epoch of their pause. While only
        fresh seeds are trained, trials of the search or the baseline that are open but not running are left out, too.
        """
        going = []
        is_confirming = self._confirming_since is not None
        for number, trial in self.open.items():
            if number in self._paused_at:
                continue
            is_fresh = trial.state.role is Role.CONFIRM
            if is_confirming and number not in self.running and not is_fresh:
                continue
            going.append((number, trial))
        return going

    def _count_epoch(self, state: TrialState, event: EpochReported) -> None:
        """Count an epoch of an open trial, which is running from now on: its time, its cost, its score and its rungs.

        An epoch that was reused from another sweep counts only for the score and the rungs: nothing was trained.
        """
        self.has_reported = True
        trial = self.running[state.number] = self.open[state.number]
        trial.heard = event.time
        self._unpause(state.number)
        # in a sweep with minutes, an epoch may reach several units of the trial, or none
        new_units = range(trial.reached + 1, trial.done + 1)
        for unit in new_units:
            if state.role is not Role.CONFIRM:  # no rule stops trials with fresh seeds
                self._reached_by_unit[unit] += 1
            if self._foresight is not None:  # the stopping rule is rehearsed
                loss = self.outline.objective.loss(event.metrics)
                self._foresight.hear(state.number, unit, loss, event.time_s / len(new_units))
        trial.reached = trial.done
        if self.outline.metric in event.metrics:
            trial.value = event.metrics[self.outline.metric]
            trial.curve.add(trial.value)
        if event.measures:
            trial.measures = event.measures
            self.measures = True
        if event.memo:  # the epoch was reused
            trial.trained_s = None
        else:
            self._count_training(trial, event)

    def _count_training(self, trial: Open, event: EpochReported) -> None:
        """Count the time and the cost of an epoch that was trained here, and the epoch in `epochs`.

        An epoch of a trial with fresh seeds does not count as spent.
        """
        self.epochs += 1
        self._epoch_times_s.append(event.time_s)
        self._trained_s += event.time_s
        self._gpu_s += self.outline.limits.gpu_s(event)
        if trial.state.role is not Role.CONFIRM:
            self.spent.epochs += 1
            self.spent.gpu_s += self.outline.limits.gpu_s(event)
            self.spent.cost += event.measures.get(COST, 0.0)
        if COST in event.measures:
            self.cost += event.measures[COST]
            self._priced_s += event.time_s
            # a first epoch includes the start of its trial
            costs = self._first_epoch_costs if event.epoch == 1 else self._later_epoch_costs
            costs.append(event.measures[COST])
        if trial.trained_s is not None:
            trial.trained_s += event.time_s
        # the last pair is [second, epochs that ended in it]
        second = int(event.time)
        if not self._epochs_by_second or self._epochs_by_second[-1][0] < second:
            self._epochs_by_second.append([second, 0])
        self._epochs_by_second[-1][1] += 1

    def _end(self, change: ledger.Interrupted | ledger.Reopened | ledger.Ended) -> FinishedTrial:
        """Update all counts by the end, interruption or reopening of a trial, and return its result.

        An interrupted or reopened trial stays open; one that the stopping rule pauses counts as paused as well. Any
        other trial is no longer open, and is counted by its status as `_count_end` says.
        """
        state, event = change
        number = state.number
        self.running.pop(number, None)
        self._knows_confirmed_best = False
        self._unpause(number)
        if isinstance(change, ledger.Reopened):
            self._reopen(state)
        trial = self.open[number]
        # without decision epochs, there is no rule: it only waits for other trials of its population
        if event.pauses and self.outline.decisions:
            self._paused_at[number] = trial.done
            self._lost_by_unit[trial.done] += 1
        took_s = _compute_duration(event, state.started)
        ended = FinishedTrial(
            number, event.status, event.reason, trial.state.epoch, trial.value, state.params, took_s
        )
        if event.status is Status.INTERRUPTED:
            trial.trained_s = None  # the time until it continues is no overhead
        else:
            self._count_end(trial, event, ended)
        return ended

    def _count_end(self, trial: Open, event: TrialEnded, ended: FinishedTrial) -> None:
        """Count a trial that has ended for good, which is no longer open, by its status; ``ended`` is its result.

        A completed trial is compared with the best one. One that failed, diverged, ran out of memory or was infeasible
        is counted as `_count_failure` says.
        """
        del self.open[event.trial]
        self.ended[event.status] += 1
        # it trained all its epochs
        if event.status in WHOLE and trial.state.role is not Role.CONFIRM:
            self._trained_to_end += 1
        if self._foresight is not None:
            self._foresight.end(event.trial, (trial.done, trial.of))
        self.latest.append(ended)
        if trial.trained_s is not None and trial.state.epoch:  # trained here, and in one go
            self._overheads_s.append(max(ended.took_s - trial.trained_s, 0.0))
        match event.status:
            case Status.COMPLETED:
                self._compare(ended)
            case Status.INFEASIBLE:
                self._count_failure(event)
            case Status.PRUNED:
                if not event.asked:  # by the stopping rule, not by a person
                    self._pruned_by_unit[trial.done] += 1
                self._lost_by_unit[trial.done] += 1
            case _:
                self._lost_by_unit[trial.done] += 1
                self._count_failure(event)

    def _unpause(self, trial: int) -> None:
        """Remove a trial from the paused ones and from those that ended early, if it is paused."""
        epoch = self._paused_at.pop(trial, None)
        if epoch is not None:
            self._lost_by_unit[epoch] -= 1

    def _count_failure(self, event: TrialEnded) -> None:
        """Count in `failures` a trial without a usable result, by its status and, if it failed, its type of error.

        Once there are `KINDS` kinds, new ones are counted together as "others", for each status. The kind of a failed
        trial is remembered, because it may be reopened.
        """
        error_type = get_error_type(event.reason) if event.status is Status.FAILED else ""
        kind = event.status, error_type
        if kind not in self.failures and len(self.failures) >= KINDS:
            kind = event.status, "others"
        failure = self.failures.setdefault(kind, Failure())
        failure.count += 1
        failure.trial = event.trial
        failure.reason = event.reason
        if event.status is Status.FAILED:
            self._failure_kinds[event.trial] = kind  # for `_reopen`

    def _reopen(self, state: TrialState) -> None:
        """Count a failed trial as open again instead of failed, with its last score but without its curve.

        Raises KeyError if its failure was not counted.
        """
        trial = self._add_open_trial(state)
        # what `_end` has counted is taken back
        kind = self._failure_kinds.pop(state.number)
        trial.value = state.last.get(self.outline.metric)
        trial.trained_s = None
        if self._foresight is not None:
            self._foresight.reopen(state.number)
        self.ended[Status.FAILED] -= 1
        self._lost_by_unit[trial.done] -= 1
        self.failures[kind].count -= 1
        if not self.failures[kind].count:
            del self.failures[kind]

    def _begin_session(self, event: SessionStarted, before: float | None) -> None:
        """Begin a session, in which no trial runs yet; ``before`` is the time of the last event before it.

        If there was an earlier session, the time from its start to ``before`` is added to the active time, whether it
        ended or was killed, and likewise its time with only fresh seeds. What is known of the present session, such as
        its end and the running trials, is reset.
        """
        # The last event before is the end of the earlier session or, if that was killed, the last that it has logged.
        if before is not None and self.session is not None:
            self._earlier_sessions_s += max(before - self.session, 0.0)
        if before is not None and self._confirming_since is not None:
            self._earlier_confirming_s += max(before - self._confirming_since, 0.0)
        self._confirming_since = None
        self.session = event.time
        self.over = None
        self.has_finished = False
        self.has_reported = False
        self.is_steered_after_end = False
        self.running.clear()
        self._running_counts.clear()
        self._epochs_by_second.clear()
        for trial in self.open.values():  # if its driver was killed, the log has no interruptions
            trial.trained_s = None

    def _compare(self, ended: FinishedTrial) -> None:
        """Compare a completed trial's configuration with the best one of the search, which it replaces if it is better.

        The configuration is compared with all its scores so far if there are repeats, otherwise with that of the trial
        alone. Does nothing if the trial has no finite score or is of the confirmation; the baseline counts.
        """
        value = ended.value
        if value is None or not math.isfinite(value) or ended.trial in self.confirming:
            return
        key = configuration_key(ended.params)
        self._params_of_configurations.setdefault(key, ended.params)
        scores = self._scores_of_configurations.setdefault(key, {})
        scores[ended.trial] = value
        if not self._averages_repeats:  # each trial counts alone
            scores = {ended.trial: value}
        self._compare_with_best(scores, ended.params)

    @property
    def _averages_repeats(self) -> bool:
        """Whether the score of a configuration is the mean over its trials, rather than that of its best trial."""
        return self.outline.repeats > 1 or self._have_repeats_changed

    @property
    def _have_repeats_changed(self) -> bool:
        """Whether a person has changed the number of repeats of this sweep."""
        return self._present_spec is not None and self._present_spec.repeats_changed

    def _find_best_again(self) -> None:
        """Find the best configuration of the search again, after the number of repeats has changed."""
        self.searched_best = None
        for key, scores in self._scores_of_configurations.items():
            self._compare_with_best(scores, self._params_of_configurations[key])

    def _compare_with_best(self, scores: Mapping[int, float], params: Params) -> None:
        """Replace the best configuration of the search by that with the parameters ``params``, if it is better.

        ``scores`` has the score of each of its completed trials by number. `_make_sort_key` decides: more trials are
        better than fewer; with as many, the better mean counts. Of equals, the earlier best one stays.
        """
        best = Best(compute_mean(scores.values()), tuple(sorted(scores)), params)
        if self.searched_best is None or self._make_sort_key(best) > self._make_sort_key(
            self.searched_best
        ):
            self.searched_best = best

    def _make_sort_key(self, best: Best) -> tuple[int, float]:
        """Return the sort key of a configuration, higher is better: the number of its trials and minus its mean loss.

        The number is at most that of the repeats. There may be more trials if there were more repeats before, or if the
        search also tries the configuration of the baseline; their scores are in the mean.
        """
        # more trials than the others have are no merit
        count = min(len(best.trials), self.outline.repeats)
        return count, -self.outline.objective.to_loss(best.value)


def _follow_spec(spec: Spec) -> PresentSpec:
    """Return a `PresentSpec` that begins with ``spec``, to apply the changes in the log; its import takes a while."""
    from sweep.analysis.present_spec import PresentSpec

    return PresentSpec(spec)


def _compute_duration(end: TrialEnded, started: float) -> float:
    """Return the seconds from the start of a trial, or since it was resumed, to its end or interruption.

    They are those that its worker has measured. Without these, they begin when its training code first ran or, if that
    is not known either, at ``started``, the time of its start in the log.
    """
    if end.facts.lived_s is not None:
        return end.facts.lived_s
    began = started if end.facts.started is None else end.facts.started
    return max(end.time - began, 0.0)


def get_error_type(reason: str) -> str:
    """Return the text before the first colon of an error's reason, such as ``ValueError``, cut to 40 characters.

    Each run of white space becomes one space. Returns "failed" if there is no colon.
    """
    head, colon, _ = reason.partition(":")
    if not colon:
        return "failed"
    return shortened(" ".join(head.split()), 40)


def _is_finished(end: SessionEnded) -> bool:
    """Return whether a session ended because nothing was left to do, or because a limit of the sweep was reached.

    If the event does not say so, its reason decides: anything but an interruption, a stop on request, a crash or a
    backend that gave up counts as finished.
    """
    if end.finished is not None:
        return end.finished
    return not end.reason.startswith(
        ("interrupted", ON_REQUEST, "crashed: ", "the backend gave up")
    )
