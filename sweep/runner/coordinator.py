"""The state machine of a sweep: chooses what to train next and handles what was trained.

Every event is logged before anything acts on it, so replaying the log restores the searcher, the scheduler and the
coordinator. This module does not depend on Ray, TensorFlow or a terminal.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import assert_never

from msgspec import structs

from sweep.analysis.numbering import Numbering
from sweep.analysis.present_spec import Position, PresentSpec
from sweep.backends import (
    Continues,
    Crowded,
    Ends,
    Lost,
    Moves,
    Order,
    Outgrown,
    Progress,
    SameData,
)
from sweep.contract import Devices, count_parts
from sweep.errors import StoreError, TrainableError, in_short
from sweep.events import (
    FAILED,
    ConfigurationsEnqueued,
    EpochReported,
    Event,
    Facts,
    OutputPrinted,
    Params,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    SteeringEvent,
    SweepChanged,
    TrialEnded,
    TrialStarted,
    Value,
)
from sweep.progress import UnitReports
from sweep.runner import features, methods
from sweep.runner.features import Answer, CopyingSearcher, EarlierResults, SteeringRequest
from sweep.runner.limits import Limits, Timeouts
from sweep.runner.methods import Repeated, can_change_space
from sweep.runner.trials import (
    AuxiliaryTrials,
    NextTrial,
    OpenTrial,
    Pauses,
    ResumeTrial,
    Stage,
    StartTrial,
    Terms,
    Upcoming,
)
from sweep.schedulers import Scheduler
from sweep.schedulers.early_termination import build_scheduler
from sweep.searchers import Queueing, Searcher, SpaceChanging
from sweep.spec import Spec, changes
from sweep.spec.work import find_max_length
from sweep.store import log as store_log
from sweep.store.ledger import (
    Change,
    Ended,
    Interrupted,
    Ledger,
    Reopened,
    Reported,
    SessionChange,
    Started,
    Steered,
    renumber_for_search,
)
from sweep.store.log import Log
from sweep.store.sweep_info import VERSION

MAX_LOST_NODES = 20  # per trial, since the trial itself may be bringing nodes down


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Callbacks by which a coordinator reaches its session; by default, they do nothing."""

    # called with each change after it is logged
    listen: Callable[[Change], None] = lambda change: None
    # called when no more trials start and the running ones must end; return whether their workers learn of it
    stop: Callable[[], bool] = lambda: True
    # called often; may stop the sweep
    look: Callable[[Coordinator], None] = lambda coordinator: None
    # called from time to time; may stop the sweep
    tick: Callable[[Coordinator], None] = lambda coordinator: None
    say: Callable[[str], None] = lambda text: None  # print a line for the user
    # new GPU shares of running trials
    share: Callable[[Mapping[int, float]], None] = lambda wanted: None
    # trials at once with so many GPUs each
    at_once: Callable[[float], int] = lambda gpus: count_parts(1.0, gpus)
    to_beat: Callable[[], float | None] = lambda: None  # return what workers get as `Order.to_beat`
    # checkpoint of a trial's epoch, for `Facts`
    kept: Callable[[int, int], str | None] = lambda trial, epoch: None
    # called when a person has changed the sweep
    changed: Callable[[Spec], None] = lambda spec: None
    # copy the parent's checkpoint; return why it failed
    inherit: Callable[[TrialStarted], str] = lambda started: ""
    # return a new searcher over configurations that has observed nothing of this sweep
    # by default, that of the first spec's method
    make_searcher: Callable[[], Searcher] | None = None
    memo: EarlierResults | None = None  # results of earlier sweeps
    clock: Callable[[], float] = time.monotonic


class Coordinator:
    """Drives one sweep: chooses what to train, logs what was trained, and decides which trials end or pause.

    A backend calls the methods of `Driver` and does what they return.
    """

    def __init__(
        self,
        spec: Spec,
        devices: Devices,
        searcher: Searcher,
        scheduler: Scheduler,
        log: Log,
        hooks: Hooks | None = None,
    ) -> None:
        self._spec = self._first_spec = spec  # only the former follows the changes in the log
        self._numbering = Numbering.of(spec)
        self._terms = Terms(spec)
        self._objective = spec.objectives[0]
        self._target = spec.metrics[0].target
        self._hooks = hooks = hooks or Hooks()
        self._sharing = features.make_shares(spec, devices, hooks.at_once)
        self._searcher = searcher
        self._make_searcher = hooks.make_searcher or partial(methods.searcher, spec, ())
        self._scheduler = scheduler
        self._log = log
        self._ledger = Ledger(keep_epochs=False)
        self._present = PresentSpec(spec)
        self._observed = 0  # number of events so far
        self._auxiliary = AuxiliaryTrials(spec, self._terms, self._ledger, self._numbering)
        if spec.minutes is None:
            self._unit_reports = None
        else:
            self._unit_reports = UnitReports(spec.length)
        self._gain_rule = features.build_gain_rule(spec, searcher, self._numbering)
        self._limits = Limits(spec)
        self._timeouts = Timeouts(spec.resources, hooks.clock)
        self._open: dict[int, OpenTrial] = {}
        self._workers_to_kill: list[int] = []  # ended trials whose workers must be killed
        # interrupted trials to resume once their last workers are gone
        self._to_resume_later: set[int] = set()
        self._to_resume: deque[int] = deque()  # interrupted trials to resume
        # fingerprints of the data that workers have loaded in this session
        self._known_data: set[str] = set()
        # after `_limits` and `_numbering`, by which the end of the places is found
        self._upcoming = Upcoming(searcher, self._find_end_of_places(), self._present.is_added)
        self._population = searcher if isinstance(searcher, CopyingSearcher) else None
        reword = str if self._unit_reports is None else self._unit_reports.reword
        self._pauses = Pauses(searcher, scheduler, self._open, reword)
        self._resumed = False
        self._is_replayed = False  # the whole log has been replayed
        self._spec_at_start: Spec | None = None  # the sweep when this session began
        self._all_started = False  # the searcher has no more trials, or the cap is reached
        self._confirming = False  # the search has ended; its limits no longer apply
        self.completed = 0
        self.stopping: str | None = None
        self._stop_asked = False  # by the user
        self._workers_told = False  # whether the workers were told that the sweep stops
        self.error: TrainableError | None = None
        # why the sweep cannot continue now, through no fault of its own
        self.fault: str | None = None

    @property
    def spec(self) -> Spec:
        """The sweep file with the changes so far."""
        return self._spec

    @property
    def exhausted(self) -> bool:
        """Whether the searcher has said that it has no further configuration, now or later; limits do not matter.

        It may become False again, when a person adds configurations or changes the space or the repeats.
        """
        return self._upcoming.exhausted

    @property
    def enough(self) -> str | None:
        """Why the search starts no more configurations by `stop_when.gain`; None while it does, or without a gain."""
        if self._gain_rule is None:
            return None
        return self._gain_rule.reason

    @property
    def confirmed(self) -> str:
        """Why the confirmation has ended, in words; "" if it has not ended or not begun, or there is none."""
        if not self._confirming:
            return ""
        return self._auxiliary.race().over

    @property
    def room(self) -> int | None:
        """Number of trials that may run at once now with automatic GPU shares; None if the shares are fixed."""
        return self._sharing.room

    @property
    def left(self) -> int | None:
        """Number of trials of the search and the baseline that are still to start or to resume; None if unknown.

        Paused trials are included, and so are those of the confirmation that are to resume. Trials whose last worker is
        not gone yet are not. Budgets, and a session that only confirms, are not considered, although they may keep some
        from starting. Once `stop_when.gain` has ended the search, the searcher's own configurations do not start any
        more. Then these remain: configurations that a person has added, each of which counts once, however many trials
        it is to have; trials that resume; and trials that earlier configurations lack, because `repeats` was raised.
        """
        to_resume = len(self._to_resume)
        if self.enough:
            added = len(self._ledger.queue)  # by persons, and not started yet
            return added + self._count_lacking() + to_resume
        # Without that end, the number of all trials includes what was added and what is lacking.
        total = self._present.all_trials
        if total is None:
            return None
        # `confirmed` is the number of trials of the confirmation that have begun
        begun = len(self._ledger.trials) - self._auxiliary.confirmed
        to_start = max(total - begun, 0)
        return to_start + to_resume

    @property
    def running(self) -> int:
        """Number of open trials that have a worker, perhaps a starting one, or whose last worker is not gone yet."""
        return sum(trial.has_worker for trial in self._open.values()) + len(self._to_resume_later)

    def recall(self, event: Event) -> Change:
        """Replay a logged event of an earlier session, before `open`; return its change.

        The session then begins as one that resumes the sweep. Raises `OutOfOrder` if the event cannot follow the events
        before it.
        """
        self._resumed = True
        return self._update_state(event)

    def open(
        self,
        events: Iterable[Event] = (),
        *,
        retry_failed: bool = False,
        confirming: bool = False,
        settings: Mapping[str, Value] | None = None,
    ) -> int:
        """Start a session, after replaying ``events``; return the number of failed trials that are opened again.

        Logs the start and the changes, then the ends that a killed driver did not log, and queues the open trials. If
        the log cannot be written, the sweep stops with a ``fault``.

        Arguments:
            events: earlier events that `recall` has not been called with.
            retry_failed: whether to open again all trials that have failed, to retry them; otherwise the result is 0.
            confirming: whether to train only trials of the confirmation and the baseline, and leave the search as it
                is.
            settings: settings of the sweep file that change from now on; see `SweepChanged`.

        Raises:
            InputError: if the sweep file is not valid with ``settings``; as `RefusedError` if one of them cannot change
                now. Nothing is logged then.
            OutOfOrder: if one of ``events`` cannot follow the events before it.
        """
        self._confirming = confirming
        for event in events:
            self.recall(event)
        # checked while `_spec_at_start` is None: no session runs yet, so keys that it reads once may change
        change = self._make_change(settings or {})
        self._is_replayed = True  # the events from here on are new
        self._emit(
            [SessionStarted(time=time.time(), resumed=self._resumed, version=VERSION), *change]
        )
        self._spec_at_start = self._spec
        ends = []  # all are computed before the first is logged, which takes its trial out of `_open`
        for trial in self._open.values():
            ends.append(self._recover_end(trial))
        self._emit([end for end in ends if end])
        if retry_failed:
            retried = self._reopen_failed_trials()
        else:
            retried = 0
        self._queue_open_trials(confirming=confirming)
        # from now on, the user and the workers are told of new GPU shares
        self._sharing.connect(self._hooks.say, self._hooks.share)
        return retried

    def _reopen_failed_trials(self) -> int:
        """Log for each failed trial that it is tried again, which opens it; return the number of failed trials.

        The number is the same if the log cannot be written, so that none is opened.
        """
        again = partial(
            TrialEnded,
            status=Status.INTERRUPTED,
            reason="tried again",
            time=time.time(),
            again=True,
        )
        events = []
        for state in self._ledger.trials.values():
            if state.status is Status.FAILED:
                events.append(again(trial=state.number))
        self._emit(events)
        return len(events)

    def _queue_open_trials(self, *, confirming: bool) -> None:
        """Queue the open trials that this session may resume: by number, then paused ones in the order of their pauses.

        With ``confirming``, only the trials of the confirmation and the baseline are queued.
        """
        numbers = [
            number for number in self._open if not confirming or not self._is_of_search(number)
        ]
        # `position` is 0 for a trial that is not paused
        self._to_resume += sorted(
            numbers, key=lambda number: (self._pauses.position(number), number)
        )

    def next(self, worker: str = "") -> Order | None:
        """Choose the next trial for the free worker named ``worker``, log its start, and return the order to train it.

        It is a new trial or an open one that continues. Return None if there is none to start now, or if the sweep
        stops. Paused trials that their rule gives up are ended first. If the chosen trial ends or pauses at once,
        because an earlier sweep has its result or its parent's checkpoint cannot be copied, another one is chosen.
        """
        while not self._is_stopping():
            self._end_given_up_trials()
            chosen = self._choose_next(worker)
            if chosen is None:
                return None
            trial = self._open_next(chosen)
            if trial is None:
                continue  # the log could not be written, so the sweep stops
            order = self._prepare_order(trial)
            if order is not None:
                return order
        return None

    def _prepare_order(self, trial: OpenTrial) -> Order | None:
        """Return the order with which a worker trains an open trial from now on, and set the trial's stage to training.

        First, the trial gets its parent's checkpoint if it is a copy, and the epochs of an earlier sweep that has
        trained the same. Return None if the trial ends or pauses by that, or if the sweep stops. An earlier result is
        used only if a worker of this session has loaded the same data. Until then, the order has the fingerprints of
        the data of all earlier results, and the worker reports whether that of its own data is among them (`SameData`).
        """
        if not self._ensure_parent_checkpoint(trial):  # the trial has ended as failed
            return None
        answer = self._find_earlier_result(trial, self._known_data)
        if answer is None:
            other_data = self._list_unloaded_data(trial)
        else:
            self._use_earlier_result(trial, answer)
            other_data = ()
        number = trial.started.trial
        # using the result may have ended the trial or paused it, or shown that the sweep must stop
        if number not in self._open or number in self._to_resume or self.stopping:
            return None
        trial.stage = Stage.TRAINING
        devices = self._sharing.devices(number, trial.started.params)
        return self._terms.order(trial, devices, self._hooks.to_beat(), other_data)

    def _choose_next(self, worker: str) -> NextTrial | None:
        """Return what a free worker trains next, without starting it; None if there is nothing to train now.

        The order is:

        1. the first open trial that waits for a worker, unless its rule keeps it paused;
        2. a new trial;
        3. if no trial of the search is running, the paused trial that its rule resumes anyway (`Pauses.find_last`);
        4. otherwise the paused trials end, and then a trial of the confirmation may start.
        """
        ready = self._pauses.find_ready(self._to_resume)
        if ready is not None:
            return ResumeTrial(ready)
        new = self._choose_new(worker)
        # while a trial of the search is running, its epochs may change what the rule says of paused trials
        if new is not None or self._confirming or self._is_searching():
            return new
        last = self._pauses.find_last()
        if last is not None:
            return ResumeTrial(last)
        any_ended = self._end_given_up_trials(rest=True)
        if not any_ended:
            return None
        # the search may be over now, so that the confirmation begins
        return self._choose_new(worker)

    def _choose_new(self, worker: str) -> StartTrial | None:
        """Return the next new trial; None if there is none to start now.

        The order is: the baseline, the search, and the confirmation once no trial of the search is open. The
        confirmation begins here, if the sweep file has ``confirm``: from then on, the limits of the search no longer
        apply. `_all_started` becomes whether the baseline and the search have nothing to start now. ``worker`` is the
        name of the worker that is to train the trial.
        """
        started = self._auxiliary.start_baseline_trial()
        if started is None and not self._confirming:
            started = self._choose_from_search(worker)
        # before a trial of the confirmation, which does not belong to these
        self._all_started = started is None
        # open trials also wait or pause; only once all have ended is it known which configurations are the best
        searching = not self._confirming and any(map(self._is_of_search, self._open))
        if started is None and self._spec.confirm and not searching:
            self._confirming = True
            started = self._auxiliary.start_confirmation_trial()
        if started is None:
            return None
        return StartTrial(self._present.mark(started))

    def _choose_from_search(self, worker: str) -> TrialStarted | None:
        """Return the event, not logged yet, that starts the search's next trial; None if there is none to start now.

        ``worker`` is the name of the worker that is to train it.
        """
        chosen = self._choose_place(worker)
        if chosen is None:
            return None
        place, params = chosen
        if self._population:
            parent = self._population.parent(place)
        else:
            parent = None
        return self._auxiliary.start_search_trial(place, params, parent)

    def _choose_place(self, worker: str) -> tuple[int, Params] | None:
        """Return the place (index in the search) and the parameters of the next trial; None if there is none to start.

        After `stop_when.gain` has ended the search, only added configurations and repeats that are still missing start.
        ``worker`` is the name of the worker that is to train it, which may hold the compiled program of a later trial.
        """
        if not self.enough:
            return self._upcoming.choose(worker)
        chosen = self._upcoming.find_next()
        if chosen is None:
            return None
        place, params = chosen
        if self._present.is_added(params) or self._numbering.is_lacking(place):
            return chosen
        return None

    def _count_lacking(self) -> int:
        """Return how many trials of earlier configurations still have to start because `repeats` was raised."""
        # All that were lacking when it was raised, less those that have started since.
        count = len(self._numbering.lacking)
        for trial in self._ledger.trials.values():
            # Trials with a place before `first` had started by then.
            if trial.place is None or trial.place < self._numbering.first:
                continue
            if self._numbering.is_lacking(trial.place):
                count -= 1
        return count

    def _count_remaining(self) -> int | None:
        """Return how many trials of the search and the baseline have not ended; None if unknown."""
        total = self._present.all_trials
        if total is None:
            return None
        ended = sum(
            trial.ended is not None and trial.role is not Role.CONFIRM
            for trial in self._ledger.trials.values()
        )
        return total - ended

    def _find_end_of_places(self) -> int | None:
        """Return the first trial of the search beyond the limit on configurations; None if there is no limit.

        The trial is given by its place: its index in the search, from 0, without the baseline's trials.
        """
        if self._limits.cap is None:
            return None
        return self._numbering.find_end(self._limits.cap)

    def _steer(self, event: SteeringEvent) -> None:
        """Apply a logged event, new or replayed, with which a person changed the sweep or added configurations.

        The ledger and `_present` must have observed it. Notes and stars change nothing here. For other events, the
        sharing of GPUs also learns how many trials are left.
        """
        if isinstance(event, SweepChanged):
            self._apply_change(event, self._present.spec)
        # the spec stays as it is
        elif _pass_to_searcher(event, self._searcher, self._spec, self._spec):
            self._upcoming.forget()  # what was suggested before may come later now
        if isinstance(event, SweepChanged | ConfigurationsEnqueued):
            self._sharing.set_remaining_trials(self._count_remaining())

    def _apply_change(self, event: SweepChanged, after: Spec) -> None:
        """Use ``after``, the sweep with the logged change ``event``, in everything that depends on the sweep file.

        If the change is new rather than replayed, also call `Hooks.changed`.
        """
        before, self._spec = self._spec, after
        self._terms = Terms(after)  # by which trials are ordered and end
        self._objective = after.objectives[0]
        self._target = after.metrics[0].target
        if self._target != before.metrics[0].target:
            # a trial that has reached the new target ends; one that has reached only the old one goes on
            for trial in self._open.values():
                self._terms.decide_about_target(trial)
        # first, as all of the following use the new numbering
        if after.trials_each != before.trials_each:
            self._change_numbering(after.trials_each)
        self._auxiliary.change(after, self._terms, self._numbering)
        self._limits.change(after)
        self._timeouts.change(after.resources)
        self._upcoming.change(self._find_end_of_places())
        if _pass_to_searcher(event, self._searcher, before, after):
            self._upcoming.forget()
        if after.early_terminate != before.early_terminate:
            self._change_rule(after)
        is_other_space = not after.space.is_same_as(before.space)
        asks_anew = is_other_space or after.stop_when != before.stop_when
        if asks_anew or after.trials_each != before.trials_each:
            self._change_gain_rule(after)  # after the searcher, which it asks for configurations
        if self._is_replayed:
            self._hooks.changed(after)

    def _change_numbering(self, trials_each: int) -> None:
        """Train each configuration ``trials_each`` times from now on; repeats that are missing start next.

        If the number of repeats of the present searcher cannot change, the searcher is replaced by one where it can.
        """
        self._numbering = self._numbering.change(self._ledger.trials.values(), trials_each)
        searcher = self._searcher
        if not isinstance(searcher, Repeated) or not searcher.can_change_numbering:
            searcher = self._make_changeable_searcher()
        searcher.change_numbering(self._numbering)
        self._searcher = searcher
        self._upcoming.replace_searcher(searcher, self._numbering.first)

    def _make_changeable_searcher(self) -> Repeated:
        """Return a new `Repeated` searcher, whose number of repeats can change, that has observed all events so far."""
        searcher = Repeated(
            self._make_searcher(), Numbering.of(self._first_spec), self._make_searcher
        )
        # follows the replayed changes; `_present` is past all of them
        present = PresentSpec(self._first_spec)
        for change, events in self._iterate_changes():
            for event in events:
                searcher.observe(event)
            if isinstance(change, Steered):
                before = present.spec
                present.observe(change)
                _pass_to_searcher(change.event, searcher, before, present.spec)
        return searcher

    def _change_rule(self, after: Spec) -> None:
        """Replace the scheduler by that of the changed stopping rule, after replaying all events into it.

        Open trials of the search get the decision epochs of the new rule, except those that have failed and were opened
        again, about which no rule decides.
        """
        self._scheduler = build_scheduler(
            after.early_terminate,
            after.objectives[0],
            find_max_length(after),
            default_epochs=after.length,
        )
        for event in self._iterate_search():
            self._scheduler.observe(event)
        # no pause is forgotten: only rules without pauses can be changed
        self._pauses = self._make_pauses()
        for trial in self._open.values():
            # the scheduler does not decide about reopened trials, and not about those outside of the search
            if trial.state.place is not None and not trial.state.reopened:
                trial.decisions = self._scheduler.decision_epochs(trial.epochs)

    def _change_gain_rule(self, after: Spec) -> None:
        """Replace the rule of the expected gain by that of the changed sweep, after replaying all events into it.

        There is none any more if the changed sweep asks for no gain.
        """
        self._gain_rule = features.build_gain_rule(after, self._searcher, self._numbering)
        if self._gain_rule is None:
            return
        # it decides again when the next trial ends, not about the past
        self._gain_rule.asks = False
        for event in self._iterate_search(in_units=False):
            self._gain_rule.observe(event)
        self._gain_rule.asks = True

    def _iterate_search(self, *, in_units: bool = True) -> Iterator[Event]:
        """Yield the events of the log so far in the form in which searcher and scheduler observe them.

        With ``in_units`` set to False, yield them as the gain rule observes them: reports of trials with minutes are
        not converted to units.
        """
        for _, events in self._iterate_changes(in_units=in_units):
            yield from events

    def _iterate_changes(
        self, *, in_units: bool = True
    ) -> Iterator[tuple[Change, Sequence[Event]]]:
        """Yield each logged change so far, with the events that `_iterate_search` yields for it."""
        ledger = Ledger(keep_epochs=False)
        if self._spec.minutes is None or not in_units:
            units = None
        else:
            # it remembers what it has converted, so not `_unit_reports`
            units = UnitReports(self._spec.length)
        # events are logged before they are processed, so the log may have later ones than those observed so far
        for event in islice(store_log.read(self._log.path), self._observed):
            change = ledger.observe(event)
            yield change, [*_translate_for_search(change, renumber_for_search(change), units)]

    def _make_pauses(self) -> Pauses:
        """Return the `Pauses` for the present searcher and scheduler."""
        reword = str if self._unit_reports is None else self._unit_reports.reword
        return Pauses(self._searcher, self._scheduler, self._open, reword)

    def _open_next(self, chosen: NextTrial) -> OpenTrial | None:
        """Log the start of a chosen new trial, or take a chosen open trial from the queue; return the trial.

        Return None if the log cannot be written.
        """
        match chosen:
            case StartTrial(event):
                if not self._emit([event]):
                    return None
                return self._open[event.trial]
            case ResumeTrial(number):
                self._to_resume.remove(number)
                return self._open[number]
            case _:
                assert_never(chosen)

    def _is_searching(self) -> bool:
        """Return whether a trial of the search has a worker, or waits for its last worker to end."""
        with_worker = (number for number, trial in self._open.items() if trial.has_worker)
        # the latter resume once their last workers are gone
        return any(map(self._is_of_search, (*with_worker, *self._to_resume_later)))

    def _is_of_search(self, number: int) -> bool:
        """Return whether a trial that has started is of the search, not of the baseline or the confirmation."""
        return not self._auxiliary.contains(number)

    def _has_worker(self, trial: int) -> bool:
        """Return whether a trial is open and has a worker."""
        return trial in self._open and self._open[trial].has_worker

    def _end_given_up_trials(self, *, rest: bool = False) -> bool:
        """End the paused trials that their rule gives up, as pruned; return whether there were any.

        A trial that a worker still has is left out. With ``rest``, which means that nothing else is left to run, the
        remaining paused trials end too. If the log cannot be written, they stay open and the sweep stops.
        """
        ends = []  # all of them first: an end that is logged changes what the rule says
        for end in self._pauses.list_given_up(rest=rest):
            if not self._has_worker(end.trial):
                ends.append(end)
        for end in ends:
            self._end_now(self._open[end.trial], end)
        return bool(ends)

    def _pause_if_held(self, trial: OpenTrial, facts: Facts) -> bool:
        """Log that a trial pauses and queue it, if its rule holds it now; return whether the pause was logged."""
        end = self._pauses.make_pause(trial, facts)
        if end is None or not self._emit([end]):
            return False
        self._to_resume.append(trial.state.number)
        return True

    def _ensure_parent_checkpoint(self, trial: OpenTrial) -> bool:
        """Copy the parent's checkpoint to a trial that is a copy, unless the trial has already trained that far.

        If the checkpoint cannot be copied, end the trial as failed, or queue it again if it has retries left, and
        return False. Otherwise return True, also for a trial that is no copy.
        """
        started = trial.started
        if (
            started.parent is None
            or started.parent_epoch is None
            or trial.state.epoch >= started.parent_epoch
        ):
            return True
        why = self._hooks.inherit(started)
        if why:
            self._end_now(trial, trial.end(Status.FAILED, why, Facts()))
        return not why

    def begun(self, trial: int) -> None:
        """Start timing a trial, since its worker has begun it; do nothing if the trial has no worker any more."""
        if self._has_worker(trial):
            self._timeouts.begin(trial)

    def tick(self) -> list[int]:
        """Check signals and, unless that was done just now, requests, limits and timeouts; end overdue trials.

        Overdue trials fail, or are queued again if they have retries left. Return the numbers of the trials that were
        ended since the last call without waiting for their workers, which must be killed.
        """
        self._hooks.look(self)
        if self._timeouts.is_due():
            self._hooks.tick(self)
            # no event tells of these
            self._limits.set_times(self._timeouts.session_s, self._timeouts.under_way_s)
            self._check_limits()
            for trial, reason in self._timeouts.list_overdue():
                self._end_now(
                    self._open[trial], self._open[trial].end(Status.FAILED, reason, Facts())
                )
        trials = self._workers_to_kill
        self._workers_to_kill = []
        return trials

    def take(self, trial: int, progress: Progress) -> bool:
        """Log and process the progress of a trial from its worker; return whether the worker trains it further.

        Log nothing and return False if the trial has ended, or has no worker any more because this one was considered
        lost. After `Outgrown` and `Crowded`, True only means that the trial has not ended: the worker gives it up, and
        `lose` must be called.
        """
        self._hooks.look(self)
        open_trial = self._open.get(trial)
        # a worker that was considered lost has come back
        if open_trial is None or not open_trial.has_worker:
            return False
        self._timeouts.record_step(trial, len(progress.epochs), progress.together)
        # what is reported is no longer under way
        self._limits.set_times(self._timeouts.session_s, self._timeouts.under_way_s)
        # what the step says besides its epochs: compiled structures, data, memory, printed text
        self._upcoming.record_structures(trial, progress)
        if progress.facts.data:
            self._known_data.add(progress.facts.data)
        self._sharing.record_step(trial, progress)
        self._record_output(trial, progress.output)
        match progress:
            case Continues():
                self._record(open_trial, progress)
            case SameData():
                self._take_same_data(open_trial, progress)
            case Moves():
                self._take_move(open_trial, progress)
            case Outgrown() | Crowded():
                self._take_outgrown(open_trial, progress)
            case Ends():
                self._take_end(open_trial, progress)
            case _:
                assert_never(progress)
        return self._has_worker(trial)

    def _take_same_data(self, trial: OpenTrial, progress: SameData) -> None:
        """Process a step that says that the worker has loaded the data of an earlier result, and use that result.

        Nothing is used if the step ends the trial or makes it pause, or if the log cannot be written.
        """
        if self._record(trial, progress):  # its worker may train it on
            self._use_earlier_result_in_training(trial, progress.facts.data or "")

    def _take_move(self, trial: OpenTrial, progress: Moves) -> None:
        """Process the last step of a trial in this worker, and queue the trial for another worker.

        It is not queued here if the step ends it or makes it pause, or if the log cannot be written.
        """
        if not self._record(trial, progress):
            return
        number = trial.started.trial
        self._timeouts.end(number)
        trial.stage = Stage.WAITING
        self._queue_again(number, spoilt=progress.spoilt is not None)

    def _take_outgrown(self, trial: OpenTrial, progress: Outgrown | Crowded) -> None:
        """Process the end of a trial's attempt that ran out of memory; the trial keeps its worker until it is lost.

        The backend calls `lose` for the worker, which must not be used again.
        """
        trial.stage = Stage.OUTGROWN
        if isinstance(progress, Outgrown):
            trial.accumulate = progress.accumulate  # the micro-batches with which it goes on
        self._record(trial, progress)

    def _take_end(self, trial: OpenTrial, progress: Ends) -> None:
        """Process the last step of a trial and log its end; stop the sweep if the step reports a fault."""
        if progress.fault:
            self._stop_with_fault(progress.fault)
        self._record(trial, progress, progress.end)

    def _record(self, trial: OpenTrial, progress: Progress, end: TrialEnded | None = None) -> bool:
        """Log the epochs of a step, and ``end`` if the trial gets there; return whether its worker may train it on.

        Epochs that the log has already are left out. The worker may not train it on if the trial has ended or pauses,
        also for a reason that applies after the step (`_stop_after_step`), or if the log cannot be written. If an epoch
        lacks a required metric, the trial fails there instead of ending as ``end`` says. A failed trial that has
        retries left is queued again.
        """
        # ``failure`` is the end of a trial that lacks a metric, else None
        epochs, failure = self._terms.fresh(trial, progress.epochs, progress.facts)
        end = failure or end
        if end is not None:
            end = self._terms.apply_retries(end, trial.state.retries)
        if not self._log_result(trial, epochs, end):
            trial.stage = Stage.WAITING  # its worker is released, and the sweep stops
            return False
        number = trial.started.trial
        # neither an end nor a pause was logged, either of which changes its stage
        if self._has_worker(number):
            return not self._stop_after_step(trial, progress.facts, has_new_epochs=bool(epochs))
        # it was interrupted, but a user wants it to end for good
        if trial.stop_requested and number in self._open:
            self._end_on_request(trial, progress.facts)
        elif end is not None and end.again:
            self._queue_again(number, spoilt=progress.spoilt is not None)
        return False

    def _stop_after_step(self, trial: OpenTrial, facts: Facts, *, has_new_epochs: bool) -> bool:
        """End, pause or interrupt a trial after a step, for the first reason that applies; return whether one did.

        The reasons are: its last epoch ends it, a user wants it to end, its rule holds it, or the sweep stops and
        cannot tell the workers so. It pauses only if the step has brought new epochs.
        """
        overdue = trial.make_due_end()
        if overdue is not None:
            self._emit([structs.replace(overdue, facts=facts)])
        elif trial.stop_requested:
            self._end_on_request(trial, facts)
        # a trial that resumes although its rule holds it (`Pauses.find_last`) must train before it can pause again
        elif has_new_epochs and self._pauses.explain_pause(trial):
            self._pause_if_held(trial, facts)
        elif self.stopping and not self._tell_workers():
            # otherwise its worker does so, after it has saved the trial
            end = trial.end(Status.INTERRUPTED, "the sweep was stopped", facts)
            self._emit([end])
        else:
            return False
        return True

    def _end_on_request(self, trial: OpenTrial, facts: Facts) -> None:
        """Log the end of a trial as pruned because a user has asked for that."""
        self._emit([structs.replace(trial.make_requested_end(), facts=facts)])

    def _use_earlier_result_in_training(self, open_trial: OpenTrial, data: str) -> None:
        """Give a running trial the result of an earlier sweep that was trained on the same data, if there is one.

        Call it once the trial's worker has reported that it has loaded the data with the fingerprint ``data``. If the
        trial must be trained on from there, it is queued for a worker that begins with the checkpoint.
        """
        answer = self._find_earlier_result(open_trial, {data})
        if answer is None:  # the results on these data cannot be used, or have been deleted since
            return
        if self._use_earlier_result(open_trial, answer) and self._has_worker(
            open_trial.started.trial
        ):
            self._queue_first(open_trial)  # its worker has begun it without the checkpoint

    def _record_output(self, trial: int, output: str) -> None:
        """Log what a trial has printed; do nothing if ``output`` is "" or the trial was not started."""
        if output and trial in self._ledger.trials:
            self._emit([OutputPrinted(trial=trial, text=output, time=time.time())])

    def lose(self, trial: int, reason: str, lost: Lost = "worker", output: str = "") -> bool:
        """Handle the loss of a trial's worker: queue the trial for another worker, or end it after too many losses.

        Return whether the user must be told that another worker retries the trial.

        ``reason`` says why the worker is gone, and ``output`` is what it had printed since its last step. Lost workers
        count towards ``max_restarts``. Lost nodes have a limit of their own, as they are rarely the trial's fault, and
        nodes that are taken away do not count at all. A trial that a user wants to end is pruned. For a trial that has
        no worker, only the output is logged. Also called for each worker that must not be used again
        (`TrialStep.spoilt`): a trial that waits for that is queued now, and False is returned.
        """
        self._record_output(trial, output)
        if trial in self._to_resume_later:
            self._to_resume_later.discard(trial)
            if trial in self._open:  # it may have been stopped on request since
                self._to_resume.append(trial)
            return False  # the worker was not lost, but had to be replaced
        open_trial = self._open.get(trial)
        if open_trial is None or not open_trial.has_worker:
            return False
        self._timeouts.end(trial)
        self._upcoming.forget_lost_worker(trial)
        has_outgrown = open_trial.stage is Stage.OUTGROWN
        # before the log is written, which may fail: the trial has no worker any more
        open_trial.stage = Stage.WAITING
        if open_trial.stop_requested:
            self._emit([open_trial.make_requested_end()])
            return False
        if has_outgrown:  # its worker has handed it back, and had to end
            open_trial.moved = True
            self._queue_first(open_trial)
            return False
        open_trial.restarts += lost == "worker"
        open_trial.lost_nodes += lost == "node"
        if open_trial.restarts > self._spec.max_restarts or open_trial.lost_nodes > MAX_LOST_NODES:
            # with `retries` left, it is tried again
            return self._end_after_restarts(open_trial, reason)
        self._queue_first(open_trial)
        return True

    def _end_after_restarts(self, trial: OpenTrial, reason: str) -> bool:
        """Log that a trial has failed because it has lost too many workers; ``reason`` says how it lost the last one.

        If `retries` are left, the trial is interrupted and queued again instead. Return whether it is queued again.
        """
        times = trial.restarts + trial.lost_nodes - 1  # the last loss is not followed by a restart
        end = trial.end(Status.FAILED, f"{reason}, after {times} restarts", Facts())
        end = structs.replace(end, worker_lost=True)
        end = self._terms.apply_retries(end, trial.state.retries)
        is_queued = self._emit([end]) and end.again
        if is_queued:
            self._to_resume.append(trial.started.trial)
        return is_queued

    def stop(self, reason: str, *, asked: bool = False) -> None:
        """Start no more trials, and interrupt the running ones after their present epoch, so that they can be resumed.

        ``asked`` says whether the user wants it; if so, the sweep counts as interrupted. Later calls have no effect.
        """
        if not self.stopping:
            self.stopping = reason
            self._stop_asked = asked
            self._tell_workers()

    def _tell_workers(self) -> bool:
        """Make workers save and interrupt their trials; return False if they cannot be told, as on a full disk.

        Once they were told, do nothing and return True.
        """
        self._workers_told = self._workers_told or self._hooks.stop()
        return self._workers_told

    def stop_trial(self, trial: int, *, now: bool = False) -> None:
        """Prune a trial on a user's request: after its present epoch or, with ``now`` or without a worker, at once.

        Do nothing if the trial has ended or was not started.
        """
        open_trial = self._open.get(trial)
        if open_trial is None:
            return
        open_trial.stop_requested = True
        if now or not open_trial.has_worker:
            self._end_now(open_trial, open_trial.make_requested_end())

    def steer(self, request: SteeringRequest) -> bool:
        """Carry out a person's request by logging its event; return False if the log cannot be written.

        A request that was carried out before is not carried out again, and True is returned.

        Raises:
            InputError: if the request is refused.
        """
        if request.id in self._ledger.requests:
            return True
        return self._emit([request.make_event(self._make_position())])

    def _make_position(self) -> Position:
        """Return the present state of the sweep, by which requests and changes are checked."""
        name = self._spec.name
        address = self._log.path.parent.name
        changes_space = can_change_space(self._searcher)
        return Position(
            name, address, self._ledger, self._present, changes_space, self._spec_at_start
        )

    def _make_change(self, settings: Mapping[str, Value]) -> Sequence[Event]:
        """Return a sequence with the event that changes ``settings``; empty if they change nothing.

        Raises `InputError` if the sweep file is not valid with them, and `RefusedError` if one of them cannot be
        changed.
        """
        if not settings:
            return []
        return features.make_change(
            changes.apply_settings(self._spec, settings), self._make_position()
        )

    def close(self) -> bool:
        """End the session in the log, interrupt unfinished trials, and return whether the session ended by itself.

        Return False if a user has stopped the sweep before all its trials had ended, or if the backend gave up. True
        means that the sweep is finished or that a limit, an error or a fault has ended it; see ``error`` and ``fault``.
        If a user stopped the sweep when nothing was left to do, ``stopping`` becomes None. Trials that are interrupted
        already, as paused ones, stay as they are.
        """
        asked = self._stop_asked
        # the user's request came too late: nothing was left to stop
        late = asked and self._auxiliary.is_complete(self._present.all_trials)
        if late:
            self.stopping = None
        unfinished = []
        for number in self._open:
            # once the confirmation has begun, open trials of the search are left as they are
            if not self._confirming or not self._is_of_search(number):
                unfinished.append(number)
        finished = late or (not self.stopping and not unfinished and self._all_started)
        if finished:
            reason = self.enough or "finished"
        else:  # a backend may return while trials are left
            reason = self.stopping or "the backend gave up"
        why = "the sweep failed" if self.error else reason
        ends = []
        for trial in self._open.values():
            if trial.stage is not Stage.INTERRUPTED:
                ends.append(trial.end(Status.INTERRUPTED, why, Facts()))
        # stopped, but not by a user or a problem: a limit of the sweep file was reached, which is a regular end
        at_limit = self.stopping is not None and not (asked or self.fault or self.error)
        self._emit(
            [*ends, SessionEnded(time=time.time(), reason=reason, finished=finished or at_limit)]
        )
        return finished or not (asked or self.stopping is None)

    def crash(self, error: BaseException) -> None:
        """Log that an exception has ended the session; its trials stay open, as after `leave`."""
        self.leave(f"crashed: {in_short(error)}")

    def leave(self, reason: str) -> None:
        """Log that the session ends at once, if the log can be written; its trials stay open, as after a kill."""
        with suppress(StoreError):
            self._log.append([SessionEnded(time=time.time(), reason=reason, finished=False)])

    def _is_stopping(self) -> bool:
        """Return whether the sweep is stopping, so that no more trials start; a signal may stop it here."""
        self._hooks.look(self)
        return self.stopping is not None

    def _end_now(self, trial: OpenTrial, end: TrialEnded) -> None:
        """Log the end of a trial now, without waiting for its worker, which the next `tick` returns as to be killed.

        If the trial failed and has retries left, it is interrupted and queued again instead. If the log cannot be
        written, the trial stays open without a worker, and the sweep stops.
        """
        number = trial.started.trial
        end = self._terms.apply_retries(end, trial.state.retries)
        had_worker = trial.has_worker
        if had_worker:
            self._workers_to_kill.append(number)
            self._upcoming.forget_lost_worker(number)
        if number in self._to_resume:
            self._to_resume.remove(number)
        if self._emit([end]) and end.again:
            # a worker that it had must be gone before it resumes
            self._queue_again(number, spoilt=had_worker)
        if trial.has_worker:  # the log could not be written
            trial.stage = Stage.WAITING
        self._timeouts.end(number)

    def _find_earlier_result(self, trial: OpenTrial, known_data: Collection[str]) -> Answer | None:
        """Return an earlier sweep's result that answers a trial or from which it continues; None if there is none.

        The fingerprint of the result's data is in ``known_data``. None also if earlier results are not to be used.
        """
        if not self._hooks.memo:
            return None
        return self._hooks.memo.recall(trial.started, trial.epochs, trial.state.epoch, known_data)

    def _list_unloaded_data(self, trial: OpenTrial) -> tuple[str, ...]:
        """Return the fingerprints of the data of a trial's earlier results that no worker has loaded yet.

        Whether these results can be used is decided once a worker has loaded such data.
        """
        if not self._hooks.memo:
            return ()
        fingerprints = self._hooks.memo.list_data(trial.started, trial.epochs, trial.state.epoch)
        return tuple(data for data in fingerprints if data not in self._known_data)

    def _use_earlier_result(self, trial: OpenTrial, answer: Answer) -> bool:
        """Copy an earlier result's checkpoint to a trial and log its epochs, up to where the trial stops or pauses.

        What follows from these epochs is logged too. At a pause, the trial is interrupted and queued. At a due end (it
        is pruned, diverged or at the target, or lacks a required metric), it ends. With a whole result, it ends as
        completed. Otherwise it stays open, to be trained on from the checkpoint. In all these cases, return True.
        Return False if the result is not used: it is not whole and its checkpoint cannot be copied, or the sweep stops
        here, as when the log cannot be written.
        """
        if self._hooks.memo:
            kept = self._hooks.memo.hand_over(answer, trial.started.trial)
        else:
            kept = None
        if not (kept or answer.whole):  # the rest could not be trained without the checkpoint
            return False
        epochs, failure = self._terms.fresh(trial, answer.epochs, answer.facts)
        if not self._log_result(trial, epochs, failure):
            return False
        if trial.started.trial not in self._open:  # ``failure`` has ended it
            return True
        # as in `_stop_after_step`
        if epochs and self._pauses.explain_pause(trial):
            return self._pause_if_held(trial, Facts())
        end = trial.make_due_end()
        facts = answer.facts
        # trained to its end, as the earlier trial was, and not pruned, diverged or at the target of this sweep
        if answer.whole and (end is None or (end.status is Status.COMPLETED and not end.at_target)):
            end = trial.end(Status.COMPLETED, answer.reason, Facts())
            facts = structs.replace(facts, checkpoint=kept)
        if end is None:
            return True
        return self._emit([structs.replace(end, facts=facts, memo=answer.source)])

    def _log_result(
        self, trial: OpenTrial, epochs: Sequence[EpochReported], end: TrialEnded | None
    ) -> bool:
        """Log a trial's epochs up to the one at which it stops or pauses, and ``end`` if it gets there.

        The epochs must follow the last logged one. If one before the last ends the trial or makes it pause, the later
        ones and ``end`` are dropped, and the caller must log that end or pause. Return False if the log cannot be
        written, or ``end`` is a failure that stops the whole sweep (`_check_first`).
        """
        return self._check_first(epochs, end) and self._log_epochs(trial, epochs, end)

    def _log_epochs(
        self, trial: OpenTrial, epochs: Sequence[EpochReported], end: TrialEnded | None
    ) -> bool:
        """Log epochs as `_log_result` does, without its check.

        They are logged in parts, up to the next epoch that may stop the trial: only once that is logged do scheduler
        and searcher know whether it does, and then the later epochs and ``end`` are dropped.
        """
        *parts, last = self._split_epochs(trial, epochs)
        for part in parts:
            if not self._emit(part):
                return False
            if trial.early_end is not None or self._pauses.explain_pause(trial):
                return True
        return self._emit(last if end is None else [*last, end])

    def _split_epochs(
        self, trial: OpenTrial, epochs: Sequence[EpochReported]
    ) -> list[list[EpochReported]]:
        """Split a trial's next epochs after each of them that may stop it; return at least one part, perhaps empty.

        The last part is not split off after the last epoch, so that the trial's end can be logged together with it.
        """
        parts: list[list[EpochReported]] = [[]]
        for epoch, decided in trial.find_decisions(epochs):
            parts[-1].append(epoch)
            is_last = epoch is epochs[-1]
            if not is_last and (decided or self._ends_trial(epoch)):
                parts.append([])
        return parts

    def _ends_trial(self, epoch: EpochReported) -> bool:
        """Return whether a trial may end at an epoch, because it diverged or reached the target.

        At the target, only a trial of the search ends; that is not checked here.
        """
        if self._objective.explain_divergence(epoch):
            return True
        return self._objective.describe_reached(self._target, epoch.metrics) is not None

    def _emit(self, events: Sequence[Event]) -> bool:
        """Log events and then update all state with them; return whether they were logged.

        First, each event gets the time since the session began, and completed trials that violate a constraint become
        infeasible. Each change is passed to `Hooks.listen`. Then the sweep stops if one of its limits is reached. If
        the log cannot be written, nothing changes and the sweep stops with a ``fault``. Without events, return True.
        """
        if not events:
            return True
        events = self._timeouts.stamp(self._mark_infeasible(events))
        try:
            self._log.append(events)
        except StoreError as error:
            self._stop_with_fault(str(error))
            return False
        for event in events:
            self._hooks.listen(self._update_state(event))
        self._check_limits()
        return True

    def _mark_infeasible(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return ``events`` with each end of a completed trial that violates a constraint changed to infeasible.

        A trial is judged by its last epoch, in ``events`` or before.
        """
        if not self._spec.constraints:
            return events
        last_metrics = {}
        for number, trial in self._open.items():
            last_metrics[number] = trial.state.last
        judged: list[Event] = []
        for event in events:
            if isinstance(event, EpochReported):
                last_metrics[event.trial] = event.metrics
            if isinstance(event, TrialEnded):
                # a failed trial that is reopened has none
                event = self._terms.apply_constraints(event, last_metrics.get(event.trial, {}))
            judged.append(event)
        return judged

    def _check_limits(self) -> None:
        """Stop the sweep if the search has reached one of its limits; they do not apply to the confirmation."""
        if not self._confirming and self._limits.reached:
            self.stop(self._limits.reached)

    def _stop_with_fault(self, fault: str) -> None:
        """Stop the sweep because of a problem outside of it, such as a full disk; the first one is kept."""
        self.fault = self.fault or fault
        self.stop(fault)

    def _update_state(self, event: Event) -> Change:
        """Update the state of the sweep with an event, new or replayed; return the change.

        The order of the updates is: the state of each trial according to the log, the searcher and the scheduler, the
        limits, the changes that a person has made, and the open trials.
        """
        change = self._ledger.observe(event)
        self._present.observe(change)
        self._auxiliary.observe(change)
        # None for baseline, confirmation and what persons do
        event_in_search = renumber_for_search(change)
        verdict = self._inform_search(change, event_in_search)
        if event_in_search is not None:
            self._limits.observe(change)
        elif not isinstance(change, SessionChange | Steered):
            if change.trial.role is Role.BASELINE:
                self._limits.observe_baseline(change)
            # not if it was only tried again or found interrupted, as when a session begins
            elif change.trial.role is Role.CONFIRM and isinstance(change, Started | Reported):
                self._limits.observe_confirmation()
        self._sharing.observe(change)
        if isinstance(change, Steered):
            self._steer(change.event)
        self._observed += 1  # after `_steer`, which replays the events before this one
        if isinstance(change, Reported):
            self._update_after_epoch(change, verdict, in_search=event_in_search is not None)
        else:
            self._update_open_trials(change)
        return change

    def _inform_search(self, change: Change, event_in_search: Event | None) -> str | None:
        """Let searcher, scheduler and gain rule observe a change; return why the scheduler prunes its trial, or None.

        ``event_in_search`` is what `renumber_for_search` returns for the change.
        """
        verdict = None
        for event in _translate_for_search(change, event_in_search, self._unit_reports):
            self._searcher.observe(event)
            # with minutes, a report may be several events
            verdict = self._scheduler.observe(event) or verdict
        if self._gain_rule is not None:
            # with the trial's own epochs, whose times it adds up
            for event in _translate_for_search(change, event_in_search, units=None):
                self._gain_rule.observe(event)
        if verdict and self._unit_reports is not None:
            return self._unit_reports.reword(verdict)
        return verdict

    def _update_after_epoch(
        self, change: Reported, verdict: str | None, *, in_search: bool
    ) -> None:
        """Update an open trial with an epoch that it has reported, in this session or in one that is replayed.

        ``verdict`` is why the scheduler prunes the trial, None if it does not. Only with ``in_search`` may the target
        end it.
        """
        state, report = change
        trial = self._open[state.number]
        trial.note_epoch()
        trial.early_end = self._terms.find_early_end(report, verdict, in_search=in_search)
        # In the log, an epoch after an interruption or a pause says that the trial was resumed. If a worker trains it,
        # its stage is TRAINING already. Otherwise (the log is replayed, or the epoch is from an earlier result), it is
        # an open trial that has no worker.
        if trial.stage is Stage.INTERRUPTED:
            trial.stage = Stage.WAITING
        self._pauses.record(state.number, paused=False)
        # While the log of earlier sessions is replayed, the timeouts get the time of each epoch here, unless it is from
        # an earlier result or a parent. In this session, they measure the time of running trials themselves (`begun`
        # and `take`).
        is_of_earlier_session = not self._is_replayed
        if is_of_earlier_session and report.memo is None:
            self._timeouts.recall(state.number, report.time_s)

    def _update_open_trials(self, change: Change) -> None:
        """Update which trials are open, and their stages, after a change that is not an epoch.

        Trials that have ended or were interrupted are not timed any more, and completed ones are counted.
        """
        match change:
            case Started(state):
                epochs = self._spec.trial_length(state.params)
                # of the baseline or the confirmation, which no rule stops or pauses
                if state.place is None:
                    self._open[state.number] = OpenTrial(state, epochs, ())
                else:
                    self._upcoming.record_start(state.place)
                    self._open[state.number] = self._pauses.open(state, epochs)
            case Interrupted(state, end):
                self._open[state.number].stage = Stage.INTERRUPTED
                self._pauses.record(state.number, paused=end.waits)
                self._timeouts.end(state.number)
            case Reopened(state):  # the scheduler no longer decides about it
                epochs = self._spec.trial_length(state.params)
                self._open[state.number] = OpenTrial(state, epochs, (), stage=Stage.INTERRUPTED)
            case Ended(state):
                self._upcoming.record_end(state.number)
                self._pauses.record(state.number, paused=False)
                self._timeouts.end(state.number)
                del self._open[state.number]
                self.completed += state.status is Status.COMPLETED
            case _:
                pass

    def _check_first(self, epochs: Sequence[EpochReported], end: TrialEnded | None) -> bool:
        """Return False if a trial's result, or an earlier one, shows that the trainable cannot train this sweep at all.

        A result shows that if the trial has failed before its first epoch, the failure is marked as incompatible, and
        no trial has reported an epoch. Then set ``error`` and stop the sweep.
        """
        if self.error is not None:
            return False
        if end is None or not end.incompatible or epochs:
            return True
        # so it can train other configurations
        if any(one.reported for one in self._ledger.trials.values()):
            return True
        self.error = TrainableError(end.reason)
        self.stop(f"{FAILED}{end.reason}")
        return False

    def _queue_first(self, trial: OpenTrial) -> None:
        """Put a trial that is to be trained by another worker at the front of the queue of trials to resume."""
        trial.stage = Stage.WAITING
        self._to_resume.appendleft(trial.started.trial)

    def _queue_again(self, trial: int, *, spoilt: bool) -> None:
        """Queue a trial to be resumed, behind others: now or, with ``spoilt``, once `lose` is called for its worker."""
        if spoilt:
            self._to_resume_later.add(trial)
        else:
            self._to_resume.append(trial)

    def _recover_end(self, trial: OpenTrial) -> TrialEnded | None:
        """Return the end or the pause of a trial that a killed driver did not log; None if the trial continues.

        A trial ends if its last logged epoch calls for it. For a trial that was to pause after that epoch, return the
        interruption that tells its rule of the pause.
        """
        end = trial.make_due_end()
        state = trial.state
        # the path of the checkpoint that the trial's worker has saved after its last logged epoch, if it has
        checkpoint = self._hooks.kept(state.number, state.epoch)
        facts = structs.replace(state.facts, checkpoint=checkpoint)
        if end is None and not state.paused:
            return self._pauses.make_pause(trial, facts)
        if end and end.status is Status.COMPLETED:  # others keep no checkpoint
            return structs.replace(end, facts=facts)
        return end


def _translate_for_search(
    change: Change, event_in_search: Event | None, units: UnitReports | None
) -> Iterator[Event]:
    """Yield the events that the search observes because of a change; none for a trial that was reopened.

    Arguments:
        event_in_search: what `renumber_for_search` returns for the change; if None, nothing is yielded.
        units: converts the reports of trials with minutes, for searcher and scheduler; None for trials with epochs, and
            for the gain rule.
    """
    if event_in_search is None or _was_reopened(change):
        return
    if units is None:
        yield event_in_search
    else:
        yield from units.translate(event_in_search)


def _was_reopened(change: Change) -> bool:
    """Return whether a change is of a failed trial that was opened again, which searcher and scheduler ignore."""
    return not isinstance(change, SessionChange | Steered) and change.trial.reopened


def _pass_to_searcher(event: SteeringEvent, searcher: Searcher, before: Spec, after: Spec) -> bool:
    """Pass added configurations or a changed space to a searcher; return whether something was passed.

    ``before`` and ``after`` are the sweep before and after the event. Nothing is passed to a searcher that cannot take
    it.
    """
    if isinstance(event, ConfigurationsEnqueued) and isinstance(searcher, Queueing):
        searcher.enqueue(event.configurations)
        return True
    if isinstance(searcher, SpaceChanging) and not after.space.is_same_as(before.space):
        searcher.change_space(after.space)
        return True
    return False
