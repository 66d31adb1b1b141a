"""Replay the curves in a log under another stopping rule, in the log's order and in random orders.

The log does not say how a stopped trial would have continued. Where a rule would have let it continue, two extremes are
replayed: after its end it is as good as the best curve of the sweep at each epoch, or as bad as the worst. A result
that is the same in both does not depend on the unknown values; no values in between are invented.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING

from msgspec import structs

from sweep.analysis.ranking import ORDER, outcome
from sweep.events import (
    UNFINISHED,
    EpochReported,
    Event,
    Params,
    Status,
    SweepChanged,
    TrialEnded,
    TrialStarted,
)
from sweep.schedulers import Pausing, Scheduler
from sweep.space.domains import group_by_configuration
from sweep.space.objectives import Objective
from sweep.statistics.means import compute_mean
from sweep.store.ledger import Ended, Interrupted, Ledger, Reopened, Reported, Started

if TYPE_CHECKING:
    from sweep.spec import Spec

CUT = UNFINISHED | {Status.PRUNED}
"""Statuses of trials whose curves may have been cut short."""

Make = Callable[[], Scheduler]


@dataclass(slots=True)
class Curve:
    """The epochs that a trial of the search has reported, and how it ended."""

    place: int  # its position in the search, from 0, by which schedulers know it
    trial: int
    params: Params
    length: int  # epochs that it was to train
    # ascending, with `place` as their trial
    reports: list[EpochReported] = field(default_factory=list)
    status: Status = Status.RUNNING
    asked: bool = False  # the user stopped it

    @property
    def is_cut(self) -> bool:
        """Whether the trial was pruned or interrupted before its last epoch, so that the rest of its curve is unknown.

        A trial that is still running counts as interrupted; one that ended by itself, as by an error, does not.
        """
        return self.status in CUT and len(self.reports) < self.length


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The epochs that each trial trained in one replay, and which trials the rule stopped, by place."""

    epochs: Mapping[int, int]
    stopped: frozenset[int]  # by the rule, or paused until the end
    unknown: frozenset[int]  # trials that continued beyond the end of their curves

    @property
    def trained(self) -> int:
        """The number of epochs that all trials trained."""
        return sum(self.epochs.values())

    def is_whole(self, place: int) -> bool:
        """Return whether the trial at a place was trained and the rule neither stopped it nor left it paused."""
        return place in self.epochs and place not in self.stopped


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 95 % range of a number over the orderings."""

    median: float
    low: float  # 2.5 % quantile
    high: float


@dataclass(frozen=True, slots=True)
class Extreme:
    """The results of all orderings, if unknown values are as good, or as bad, as the best or the worst curve."""

    epochs: Spread
    winner_kept: float  # the share of orderings in which it still ranks first
    # difference to the winner of the one that ranks first; infinite if no trial is left
    lost: Spread


@dataclass(frozen=True, slots=True)
class Replay:
    """What a stopping rule would have done on a sweep, compared with what was done."""

    rule: str
    ran: str  # the rule that the sweep ran with
    trials: int
    configurations: int
    run_cap: int | None
    orderings: int
    at_once: int  # maximum number of concurrent trials in the log
    winner: tuple[int, ...]  # trials of the best completed configuration
    winner_params: Params
    whole_epochs: int  # if no trial was stopped
    ran_epochs: int  # that the log has
    # whether the rule, replayed in the log's order, decides as it did when it ran; None if another rule ran at any time
    same_as_live: bool | None
    live_decisions: int  # number of trials that the sweep's rule stopped
    log_order_epochs: int  # epochs of the log that the rule would have trained, in the log's order
    log_order_kept: bool  # whether the winner is not stopped in the log's order
    cut: int  # number of trials whose curves are cut short
    went_on: Spread  # how many of these the rule would have let continue
    if_worse: Extreme
    if_better: Extreme


def curves(events: Iterable[Event], length: Callable[[Params], int]) -> tuple[list[Curve], int]:
    """Return the curves of the search's trials in the order of their start, and how many trained at once at most.

    ``length`` returns the number of epochs of a trial from its parameters. The second result is at least 1; a trial
    counts as training from its first report to its end. Reports after a gap in a repaired log are left out. Raises
    `OutOfOrder` if an event cannot follow the earlier ones.
    """
    by_number: dict[int, Curve] = {}
    running: set[int] = set()
    max_concurrent = 1
    ledger = Ledger(keep_epochs=False)
    for event in events:
        match ledger.observe(event):
            case Started(trial) if trial.place is not None:  # a trial of the search
                by_number[trial.number] = Curve(
                    trial.place, trial.number, trial.params, length(trial.params)
                )
            case Reported(trial, report) if trial.number in by_number:
                curve = by_number[trial.number]
                if trial.reported == trial.epoch:  # up to a gap that a repair of the log has left
                    curve.reports.append(_use_place(report, curve.place))
                running.add(trial.number)
                max_concurrent = max(max_concurrent, len(running))
            case Interrupted(trial, end) | Reopened(trial, end) | Ended(trial, end) if (
                trial.number in by_number
            ):
                curve = by_number[trial.number]
                curve.status = trial.status
                curve.asked = end.asked
                running.discard(trial.number)
            case _:
                pass
    return list(by_number.values()), max_concurrent


def _use_place(event: EpochReported, place: int) -> EpochReported:
    """Return a report with its trial's position in the search, ``place``, instead of its number.

    It is the same object if both are equal, otherwise a copy.
    """
    if event.trial == place:
        return event
    return structs.replace(event, trial=place)


def _observe_start(scheduler: Scheduler, curve: Curve) -> None:
    """Let a scheduler observe the start of a curve's trial, whose parameters show the length of the trial."""
    scheduler.observe(
        TrialStarted(
            trial=curve.place,
            trial_id=str(curve.trial),
            params=curve.params,
            seed=0,
            repeat=0,
            time=0.0,
        )
    )


class _PausedTrials:
    """The paused trials of a replay; always empty if the scheduler does not pause trials."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # the scheduler, if it pauses trials
        self._rule = scheduler if isinstance(scheduler, Pausing) else None
        # by place, in the order of their pauses, with the epoch of the pause
        self.by_place: dict[int, tuple[Curve, int]] = {}

    def pause(self, curve: Curve, epoch: int) -> bool:
        """Pause a trial after epoch ``epoch`` if the rule holds it there; return whether it was paused."""
        if self._rule is None or epoch not in self._rule.decision_epochs(curve.length):
            return False
        if self._rule.holds(curve.place) is None:  # it may continue
            return False
        self.by_place[curve.place] = curve, epoch
        return True

    def take_ready(self) -> tuple[Curve, int] | None:
        """Remove the first paused trial that may resume; return it with the epoch of its pause, or None if none may.

        The first is the one that was paused before the others.
        """
        if self._rule is None:
            return None
        for place in self.by_place:
            if self._rule.holds(place) is None:  # it may continue
                return self.by_place.pop(place)
        return None

    def take_last(self) -> tuple[Curve, int] | None:
        """Remove the paused trial that the rule resumes if no other is left; return it with its epoch, or None.

        None means that the rule resumes none, or that none is paused.
        """
        if self._rule is None or not self.by_place:
            return None
        place = self._rule.last()
        if place is None:
            return None
        return self.by_place.pop(place, None)

    def end(self, curve: Curve) -> None:
        """Let a pausing rule observe that a trial has ended by itself; other rules only observe starts and reports.

        Does nothing for a trial whose curve is cut, because it did not end by itself.
        """
        if self._rule is not None and not curve.is_cut:
            self._scheduler.observe(
                TrialEnded(trial=curve.place, status=curve.status, reason="", time=0.0)
            )


def live(events: Iterable[Event], known: Sequence[Curve], make: Make) -> dict[int, int]:
    """Return the epochs at which a rule stops trials, by place, if the events come in the log's order.

    ``known`` has the curves of the log; trials without one are ignored. ``make`` makes the rule's scheduler. Trials
    that the rule lets train to their end are left out. A paused trial that the rule resumes continues with the epochs
    that the log has of it up to that moment. One that is still paused at the end, or resumes only then and has no later
    epoch in the log, counts as stopped where it paused.
    """
    return _LiveReplay(known, make()).run(events)


class _LiveReplay:
    """Applies a rule to the events of a log in their own order."""

    def __init__(self, known: Sequence[Curve], scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._curves = {curve.trial: curve for curve in known}
        self._paused = _PausedTrials(scheduler)
        # by place: the epoch at which the rule stopped the trial
        self._stopped: dict[int, int] = {}
        self._reached: dict[int, int] = {}  # by place: the last epoch that the log has so far

    def run(self, events: Iterable[Event]) -> dict[int, int]:
        """Return by place the epochs at which trials stop or stay paused, for all ``events``. To be called once."""
        for event in events:
            if isinstance(event, EpochReported):
                self._observe(event)
        ended = self._resume_rest()
        still_paused = {}
        for place, (_, epoch) in self._paused.by_place.items():
            still_paused[place] = epoch
        return self._stopped | ended | still_paused

    def _observe(self, event: EpochReported) -> None:
        """Record an epoch of the log, and let the rule decide about it unless its trial is paused.

        Then resume the paused trials that the rule lets continue now. Does nothing for a trial without a curve or one
        that the rule has stopped, nor for an epoch beyond the curve.
        """
        curve = self._curves.get(event.trial)
        if curve is None or curve.place in self._stopped:
            return
        if event.epoch > len(curve.reports):  # after a gap that a repair of the log has left
            return
        if curve.place not in self._reached:
            _observe_start(self._scheduler, curve)
        self._reached[curve.place] = event.epoch
        if curve.place in self._paused.by_place:
            return
        self._decide(curve, event.epoch)
        while (resumed := self._paused.take_ready()) is not None:  # this epoch may let others go on
            resumed_curve, pause_epoch = resumed
            self._decide(resumed_curve, pause_epoch + 1)

    def _decide(self, curve: Curve, epoch: int) -> None:
        """Let the rule decide about epoch ``epoch`` of a trial and the later ones that the log has up to now.

        It ends with the epoch at which the trial is stopped or pauses. After the last epoch of its curve, the rule
        observes that the trial has ended by itself, if it has.
        """
        while epoch <= self._reached[curve.place]:
            # after its last epoch, a trial is complete, whatever the rule says
            if self._scheduler.observe(curve.reports[epoch - 1]) and epoch < curve.length:
                self._stopped[curve.place] = epoch
                return
            if self._paused.pause(curve, epoch):
                return
            epoch += 1
        if epoch > len(curve.reports):  # the log has no later epoch of it
            self._paused.end(curve)

    def _resume_rest(self) -> dict[int, int]:
        """Resume the paused trials after the last event, as far as the rule lets them continue.

        Return by place the epoch of the pause of those that have no later epoch in the log.
        """
        ended: dict[int, int] = {}
        while (resumed := self._paused.take_ready() or self._paused.take_last()) is not None:
            curve, pause_epoch = resumed
            if self._reached[curve.place] == pause_epoch:
                ended[curve.place] = pause_epoch
            else:
                self._decide(curve, pause_epoch + 1)
        return ended


class _UnknownEpochs:
    """Makes reports for the unknown rest of a curve, with the metrics of the best or the worst trial at each epoch."""

    def __init__(self, known: Sequence[Curve], objective: Objective, *, better: bool) -> None:
        # by epoch: the metrics of the best or the worst trial, with the loss by which trials are compared
        self._extremes: dict[int, tuple[float, Mapping[str, float]]] = {}
        times: list[float] = []
        for curve in known:
            for report in curve.reports:
                times.append(report.time_s)
                loss = objective.constrained_loss(report.metrics)
                if loss is None:
                    continue
                found = self._extremes.get(report.epoch)
                # a smaller loss is better
                if found is None or (loss < found[0] if better else loss > found[0]):
                    self._extremes[report.epoch] = loss, report.metrics
        # for epochs that no trial has reached
        choose = min if better else max
        nothing: tuple[float, Mapping[str, float]] = 0.0, {objective.name: 0.0}
        self._extreme_of_all = choose(
            self._extremes.values(), key=lambda one: one[0], default=nothing
        )
        self._time_s = median(times) if times else 1.0

    def report(self, place: int, epoch: int) -> EpochReported:
        """Return a report for an unknown epoch of the trial at a place; it takes the median time of all epochs.

        The metrics are those of the best or the worst trial at the epoch. At an epoch at which no trial has a finite
        objective, they are the best or the worst ones of all epochs.
        """
        _, metrics = self._extremes.get(epoch, self._extreme_of_all)
        return EpochReported(
            trial=place, epoch=epoch, metrics=metrics, time=0.0, time_s=self._time_s
        )


def simulate_trials(
    order: Sequence[Curve], make: Make, at_once: int, beyond: _UnknownEpochs
) -> ReplayResult:
    """Train the trials in ``order`` by their logged curves, ``at_once`` at a time; return how far each trained.

    A trial trains until its curve ends or the rule, whose scheduler ``make`` makes, stops it; ``beyond`` has the epochs
    after the end of cut curves. Trials that are still paused at the end count as stopped.
    """
    return _Simulation(order, make(), at_once, beyond).run()


class _Simulation:
    """Simulates workers that train the trials of an ordering, one epoch after the other by their logged times."""

    def __init__(
        self, order: Sequence[Curve], scheduler: Scheduler, workers: int, beyond: _UnknownEpochs
    ) -> None:
        self._scheduler = scheduler
        self._free_workers = workers
        self._beyond = beyond
        self._paused = _PausedTrials(scheduler)
        self._epochs: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._unknown: set[int] = set()
        self._waiting = iter(order)
        self._started = 0
        self._now = 0.0
        # end of the epoch, order of start, epoch, curve, report; no two have the same order, so curves are not compared
        self._clock: list[tuple[float, int, int, Curve, EpochReported]] = []

    def run(self) -> ReplayResult:
        """Train all trials; return how far each trained, and which the rule stopped or left paused.

        To be called once.
        """
        while True:
            while self._free_workers and self._start_trial():
                self._free_workers -= 1
            if not self._clock:  # no trial trains
                stopped = frozenset(self._stopped | self._paused.by_place.keys())
                return ReplayResult(self._epochs, stopped, frozenset(self._unknown))
            # the epoch that ends next; ``number`` is the order in which its trial was started or resumed
            self._now, number, epoch, curve, report = heapq.heappop(self._clock)
            self._epochs[curve.place] = epoch
            if self._scheduler.observe(report) and epoch < curve.length:
                self._stopped.add(curve.place)
            elif not self._paused.pause(curve, epoch) and self._schedule(number, curve, epoch + 1):
                continue  # neither stopped nor paused nor at its end: its worker goes on with it
            self._free_workers += 1

    def _start_trial(self) -> bool:
        """Let a free worker train its next trial; return False if no trial can start now.

        Trials without a further epoch are skipped: they count as trained, with the epochs that they have.
        """
        while True:
            chosen = self._choose_next()
            if chosen is None:
                return False
            curve, epoch = chosen
            if curve.place not in self._epochs:  # a new trial, not a resumed one
                self._epochs[curve.place] = 0
                _observe_start(self._scheduler, curve)
            self._started += 1
            if self._schedule(self._started, curve, epoch + 1):
                return True

    def _choose_next(self) -> tuple[Curve, int] | None:
        """Remove the next trial to train and return it with the epochs it has already trained; None if there is none.

        Paused trials that may resume come first, then new ones, then, if nothing else trains, one that the rule resumes
        only in that case.
        """
        resumed = self._paused.take_ready()
        if resumed is not None:
            return resumed
        new = next(self._waiting, None)
        if new is not None:
            return new, 0
        if self._clock:  # some trial still trains, which may let a paused one go on
            return None
        return self._paused.take_last()

    def _schedule(self, number: int, curve: Curve, epoch: int) -> bool:
        """Schedule the end of an epoch on the simulated clock; return False if the trial has no such epoch.

        Beyond the end of a cut curve, up to the trial's length, epochs are made by `_UnknownEpochs`, unless the curve
        has no epoch at all. If there is no such epoch, a pausing rule observes that the trial has ended. ``number``
        decides between trials whose epochs end at the same time: lower ones are first.
        """
        if epoch <= len(curve.reports):
            report = curve.reports[epoch - 1]
        elif curve.is_cut and curve.reports and epoch <= curve.length:
            self._unknown.add(curve.place)
            report = self._beyond.report(curve.place, epoch)
        else:
            self._paused.end(curve)
            return False
        heapq.heappush(
            self._clock, (self._now + max(report.time_s, 0.0), number, epoch, curve, report)
        )
        return True


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The trials of one configuration, and the losses of those that completed."""

    completed: tuple[Curve, ...]
    curves: tuple[Curve, ...]
    losses: Mapping[int, float]  # of the completed trials, by place
    repeats: int  # number of trials that it was to have

    @property
    def loss(self) -> float:
        """The mean loss of the completed trials; infinite if none completed."""
        if self.losses:
            return compute_mean(self.losses.values())
        return math.inf

    @property
    def sort_key(self) -> tuple[float, int, float]:
        """Its sort key in a ranking, lower is better: minus the share of completed repeats, the status, the loss."""
        share, status = outcome(
            [curve.status for curve in self.curves], len(self.completed), self.repeats
        )
        return -share, ORDER[status], self.loss


_NONE = _Configuration((), (), {}, 1)


def _group_curves(known: Sequence[Curve], spec: Spec) -> list[_Configuration]:
    """Return the configurations of the curves ``known``, with the final losses of their completed trials."""
    configurations = []
    for group in group_by_configuration(known).values():
        losses = {}  # infinite for trials that did not complete
        for curve in group:
            losses[curve.place] = _final_loss(curve, spec.objectives[0])
        completed = tuple(curve for curve in group if math.isfinite(losses[curve.place]))
        finite_losses = {}
        for curve in completed:
            finite_losses[curve.place] = losses[curve.place]
        configurations.append(
            _Configuration(completed, tuple(group), finite_losses, spec.trials_each)
        )
    return configurations


def _choose_best(
    configurations: Iterable[_Configuration],
    winner: _Configuration,
    is_whole: Callable[[int], bool],
) -> _Configuration:
    """Return the configuration that ranks first if only trials with ``is_whole(place)`` count as completed.

    Only configurations that had the winner's share of completed repeats and its status in the log are compared. As in a
    ranking, the larger share of repeats that are whole comes first, then their mean loss; of equals, the ``winner``,
    the best configuration of the log. Returns `_NONE` if no trial is whole.
    """
    best = _NONE
    best_key: tuple[float, float, bool] | None = None
    for one in configurations:
        losses = []  # of the trials that still complete
        for place, loss in one.losses.items():
            if is_whole(place):
                losses.append(loss)
        # the first two items of the key are the share of completed repeats and the status
        if not losses or one.sort_key[:2] != winner.sort_key[:2]:
            continue
        key = (
            -len(losses) / max(len(one.curves), one.repeats),
            compute_mean(losses),
            one is not winner,
        )
        if best_key is None or key < best_key:  # of equal keys, the first one
            best = one
            best_key = key
    return best


def _count_whole_epochs(curve: Curve) -> int:
    """Return how many epochs a trial would have trained if no rule had stopped it: all, unless it ended by itself."""
    if curve.is_cut:
        return curve.length
    return len(curve.reports)


def _final_loss(curve: Curve, objective: Objective) -> float:
    """Return the loss of a trial's last epoch; infinite unless the trial completed with a finite one."""
    if not curve.reports or curve.status is not Status.COMPLETED:
        return math.inf
    loss = objective.loss(curve.reports[-1].metrics)
    return math.inf if loss is None else loss


def _list_curves(configurations: Sequence[_Configuration]) -> list[Curve]:
    """Return the curves of all trials of configurations, configuration by configuration."""
    curves: list[Curve] = []
    for one in configurations:
        curves += one.curves
    return curves


def _decide_on_ended(events: Sequence[Event], known: Sequence[Curve], make: Make) -> dict[int, int]:
    """Return the epochs at which a rule stops trials, by place, if the events come in the log's order (see `live`).

    Decisions at the last epoch of a trial that has not ended are left out: it was waiting when the sweep was
    interrupted.
    """
    decisions = live(events, known, make)
    unfinished = {}  # by place: the last epoch of a trial that has not ended
    for curve in known:
        if curve.status in UNFINISHED:
            unfinished[curve.place] = len(curve.reports)
    decided = {}
    for place, epoch in decisions.items():
        if unfinished.get(place) != epoch:
            decided[place] = epoch
    return decided


def replay_rule(
    events: Sequence[Event],
    spec: Spec,
    rule: tuple[str, Make],
    ran: tuple[str, Make],
    *,
    run_cap: int | None = None,
    orderings: int = 200,
) -> Replay | None:
    """Return what ``rule`` would have done on the curves of a log; None if no configuration completed.

    It is replayed once in the log's order, and in ``orderings`` random orders on as many simulated workers as trials
    trained at once. Only trials of the search count. The random orders are the same in each call. Raises `OutOfOrder`
    if an event cannot follow the earlier ones.

    Arguments:
        events: all events of the log.
        spec: the sweep; its first objective decides.
        rule: a description and a function that makes the scheduler.
        ran: the same for the sweep's own rule; equal descriptions mean the same rule.
        run_cap: number of configurations, the first ones of each order, that are trained; None: all.
        orderings: number of random orders of the configurations, at least 1.
    """
    objective = spec.objectives[0]
    known, at_once = curves(events, spec.trial_epochs)
    configurations = _group_curves(known, spec)
    winner = min(configurations, key=lambda one: one.sort_key, default=None)
    if winner is None or not winner.losses:
        return None
    words, make = rule
    # by place: the last epoch of the trials that the sweep's own rule stopped
    pruned = {}
    for curve in known:
        if curve.status is Status.PRUNED and not curve.asked:
            pruned[curve.place] = len(curve.reports)
    same_as_live = None
    if words == ran[0] and not _has_changed_rule(events):
        same_as_live = pruned == _decide_on_ended(events, known, make)
    in_log_order = _list_curves(configurations[:run_cap])
    stops = live(events, in_log_order, make)  # the epochs at which the rule stops trials, by place
    numbers = random.Random(0)  # a fixed seed: another rule is replayed in the same orders
    orders = []
    for _ in range(orderings):
        orders.append(numbers.sample(configurations, len(configurations))[:run_cap])
    extremes = []
    # of each replay: the number of trials that continue beyond their curves
    went_on: list[float] = []
    # unknown epochs are as bad as the worst ones, and then as good as the best ones
    for better in (False, True):
        beyond = _UnknownEpochs(known, objective, better=better)
        results = []
        for order in orders:
            results.append(simulate_trials(_list_curves(order), make, at_once, beyond))
        extremes.append(_summarize_results(results, orders, winner))
        went_on += [float(len(one.unknown)) for one in results]
    best_in_log_order = _choose_best(
        configurations[:run_cap], winner, lambda place: place not in stops
    )
    return Replay(
        rule=words,
        ran=ran[0],
        trials=len(known),
        configurations=len(configurations),
        run_cap=run_cap,
        orderings=orderings,
        at_once=at_once,
        winner=tuple(curve.trial for curve in winner.completed),
        winner_params=winner.curves[0].params,
        whole_epochs=sum(_count_whole_epochs(curve) for curve in known),
        ran_epochs=sum(len(curve.reports) for curve in known),
        same_as_live=same_as_live,
        live_decisions=len(pruned),
        log_order_epochs=sum(stops.get(curve.place, len(curve.reports)) for curve in in_log_order),
        log_order_kept=best_in_log_order is winner,
        cut=sum(curve.is_cut for curve in known),
        went_on=_measure_spread(went_on),
        if_worse=extremes[0],
        if_better=extremes[1],
    )


def _has_changed_rule(events: Iterable[Event]) -> bool:
    """Return whether a person has changed the stopping rule during the sweep."""
    return any(
        isinstance(event, SweepChanged) and "early_terminate" in event.settings for event in events
    )


def _summarize_results(
    results: Sequence[ReplayResult],
    orders: Sequence[Sequence[_Configuration]],
    winner: _Configuration,
) -> Extreme:
    """Summarize the results of all orderings, at least one, under one assumption about unknown epochs.

    ``orders`` are the configurations of each ordering, ``winner`` is the best configuration of the sweep as it ran.
    """
    chosen = []  # the configuration that ranks first in each ordering
    for one, order in zip(results, orders, strict=True):
        chosen.append(_choose_best(order, winner, one.is_whole))
    return Extreme(
        epochs=_measure_spread([float(one.trained) for one in results]),
        winner_kept=fmean([one is winner for one in chosen]),
        lost=_measure_spread([one.loss - winner.loss for one in chosen]),
    )


def _measure_spread(values: Sequence[float]) -> Spread:
    """Return the median and the 95 % range of values, at least one.

    Both ends of the range are among the values: those at or just outside of the 2.5 % and 97.5 % quantiles.
    """
    ordered = sorted(values)
    last = len(ordered) - 1
    return Spread(
        median(ordered), ordered[math.floor(0.025 * last)], ordered[math.ceil(0.975 * last)]
    )
