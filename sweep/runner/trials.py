"""The trials of a sweep as its coordinator chooses, starts and follows them.

An `OpenTrial` has not ended for good. `Terms` builds trials from the sweep file and decides which reports end them.
`AuxiliaryTrials` are those that the searcher does not choose: the baseline, and fresh seeds for finalists after the
search. `Upcoming` chooses which trial of the search starts next: if the order is free, one whose compiled structure the
free worker already holds. `Pauses` decides which trials pause, if the scheduler or the population lets them. A paused
trial is interrupted in the log, saved, and resumed by any worker once its rule no longer holds it. All of this follows
from the events, so a resumed session starts the same trials as an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from itertools import count
from typing import TypeAlias

from msgspec import structs

from sweep.analysis.numbering import Numbering
from sweep.backends import Order, Progress
from sweep.contract import Assignment, Devices, Fold
from sweep.events import (
    ON_REQUEST,
    PAUSES,
    TRIED_AGAIN,
    EpochReported,
    Facts,
    Params,
    Role,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.hyperparameters import Hyperparameters, Reads, from_json
from sweep.progress import count_units, get_share, passes_any
from sweep.runner import features
from sweep.runner.features import Copied, CopyingSearcher, Race
from sweep.schedulers import Pausing, Scheduler
from sweep.searchers import Searcher
from sweep.spec import Spec
from sweep.store.ledger import Change, Ledger, Printed, Reported, SessionChange, Started, TrialState
from sweep.text import guess


class Stage(Enum):
    """Where an open trial is in this session."""

    WAITING = auto()  # no worker has it, and the log does not say that it was interrupted
    TRAINING = auto()  # a worker trains it or is about to
    # its worker has handed it back; another process continues it once this worker is gone
    OUTGROWN = auto()
    # the log says that it was interrupted, and no worker has had it since; it may be paused
    INTERRUPTED = auto()


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """Why a trial ends after its last epoch, although it has epochs left."""

    # diverged; completed, as it reached the sweep's target; or pruned by the scheduler
    status: Status
    reason: str


@dataclass
class OpenTrial:
    """A trial that has not ended for good, with its stage and its counts in this session."""

    state: TrialState
    # that it is to train; with minutes alone, hundredths of these (`Spec.trial_length`)
    epochs: int
    decisions: tuple[int, ...]  # epochs at which it may be pruned or pause
    may_pause: bool = False  # at its decision epochs
    stage: Stage = Stage.WAITING
    units_before: int = 0  # how far it had trained before its last epoch
    units_after: int = 0  # and with that
    early_end: EarlyEnd | None = None  # that its last epoch calls for
    stop_requested: bool = False  # by a user; it ends at its next report
    restarts: int = 0  # number of lost workers
    lost_nodes: int = 0
    accumulate: int = 1  # micro-batches for each batch that it needs
    moved: bool = False  # it has outgrown a process before

    @property
    def has_worker(self) -> bool:
        """Whether a worker has the trial, or is being started for it.

        True also for a trial that its worker has handed back to be trained in another process (`Stage.OUTGROWN`), until
        that worker is gone.
        """
        return self.stage in (Stage.TRAINING, Stage.OUTGROWN)

    @property
    def started(self) -> TrialStarted:
        """The event that started the trial."""
        return self.state.start

    def end(self, status: Status, reason: str, facts: Facts) -> TrialEnded:
        """Return the event, to be logged, that ends this trial now with a status and a reason.

        The status interrupted only interrupts it. The trial itself is not changed.
        """
        return TrialEnded(
            trial=self.started.trial, status=status, reason=reason, time=time.time(), facts=facts
        )

    def make_requested_end(self) -> TrialEnded:
        """Return the event, to be logged, that prunes this trial now because a user has asked for that."""
        return structs.replace(self.end(Status.PRUNED, ON_REQUEST, Facts()), asked=True)

    @property
    def units(self) -> int:
        """How far the trial has trained, in units such as those of `epochs` and `decisions`.

        A unit is an epoch or, for a trial that only its minutes end, a hundredth of these. With both limits, it is the
        used share of the epochs or of the minutes, whichever is larger, times `epochs`, rounded down.
        """
        return count_units(self.state.epoch, self.state.share, self.epochs)

    @property
    def decided(self) -> bool:
        """Whether the last epoch of the trial has reached one of `decisions`."""
        if self.state.share is None:  # its minutes are not limited, so units are epochs
            return self.state.epoch in self.decisions
        # with minutes, an epoch may take several units, of which a decision may be any
        return passes_any(self.decisions, self.units_before, self.units_after)

    def note_epoch(self) -> None:
        """Update `units_before` and `units_after` after the latest epoch; call it once `state` has that epoch."""
        self.units_before = self.units_after
        self.units_after = self.units

    def find_decisions(
        self, epochs: Iterable[EpochReported]
    ) -> Iterator[tuple[EpochReported, bool]]:
        """Yield (epoch, whether the trial reaches one of `decisions` with it) for each of the trial's next epochs.

        ``epochs`` are reports that the log does not have yet. They must follow the last epoch in `state`, in order.
        """
        before = self.units
        for epoch in epochs:
            after = count_units(epoch.epoch, get_share(epoch.measures), self.epochs)
            yield epoch, passes_any(self.decisions, before, after)
            before = after

    def make_due_end(self) -> TrialEnded | None:
        """Return the event, to be logged, that ends the trial after its last epoch; None if it continues.

        It ends as diverged or pruned, or as completed if it has reached the target (`early_end`); or as completed
        without a reason if it has trained all its epochs. Then it is not pruned, but may still have diverged.
        """
        early = self.early_end
        diverged = early is not None and early.status is Status.DIVERGED
        # complete, even if the last epoch has also reached the target or would be pruned
        if self.units >= self.epochs and not diverged:
            return self.end(Status.COMPLETED, "", Facts())
        if early is None:
            return None
        end = self.end(early.status, early.reason, Facts())
        return structs.replace(end, at_target=early.status is Status.COMPLETED)


@dataclass(frozen=True, slots=True)
class StartTrial:
    """Choice of a new trial: of the baseline, the search, or the confirmation."""

    event: TrialStarted


@dataclass(frozen=True, slots=True)
class ResumeTrial:
    """Choice of an open trial: one that was interrupted or paused, has lost its worker, or is retried."""

    trial: int


NextTrial: TypeAlias = StartTrial | ResumeTrial


class Terms:
    """Makes the events, orders and ends of a sweep's trials by the settings in its file."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._objective = spec.objectives[0]
        self._target = spec.metrics[0].target

    def order(
        self,
        trial: OpenTrial,
        devices: Devices,
        to_beat: float | None = None,
        earlier_data: tuple[str, ...] = (),
    ) -> Order:
        """Return the order by which a worker trains a trial.

        Trials of the baseline and the confirmation are ordered to train whole, without decision epochs.

        Arguments:
            devices: those that the trial gets.
            to_beat: the loss that a trial must beat to keep a checkpoint, if any; only trials of the search get it.
            earlier_data: fingerprints of other data on which earlier sweeps have results for the trial.
        """
        started = trial.started
        shares = self._spec.resources.gpus == "auto"  # several trials may share a GPU
        assignment = self.assignment(started, devices, trial.accumulate)
        if started.role is not Role.SEARCH:
            return Order(
                assignment, whole=True, earlier_data=earlier_data, moved=trial.moved, shares=shares
            )
        return Order(
            assignment,
            trial.decisions,
            to_beat,
            earlier_data=earlier_data,
            moved=trial.moved,
            copied=started.parent is not None,
            waits=trial.may_pause,
            shares=shares,
        )

    def assignment(
        self, started: TrialStarted, devices: Devices, accumulate: int = 1
    ) -> Assignment:
        """Return the assignment that a trial's trainable gets: its parameters, seed, length, devices and settings.

        ``accumulate`` is the number of micro-batches for each batch, above 1 if the trial ran out of memory before.
        """
        spec = self._spec
        if not spec.folds or started.fold is None:  # no cross-validation
            fold = None
        else:
            fold = Fold(started.fold, spec.folds, started.seed)
        return Assignment(
            trial=started.trial,
            params=started.params,
            seed=started.seed,
            epochs=spec.trial_epochs(started.params),
            minutes=spec.minutes,
            devices=devices,
            training=spec.training,
            data_seed=spec.data_seed,
            objective=self._objective.name,
            maximize=self._objective.maximize,
            fold=fold,
            accumulate=accumulate,
        )

    def trial(self, number: int, params: Params, devices: Devices) -> Assignment:
        """Return the assignment of a trial that is not logged, as for a timing, with the first seed and fold."""
        return self.assignment(self.start(0, params, number), devices)

    def start(
        self,
        within: int,
        params: Params,
        number: int,
        role: Role = Role.SEARCH,
        place: int | None = None,
        parent: Copied | None = None,
    ) -> TrialStarted:
        """Return the event, to be logged, that starts a trial now.

        Arguments:
            within: number of the trial among those of its configuration, from 0; it determines repeat, seed and fold.
            number: number of the trial in the log.
            place: number of the trial within the search; None for other trials, or if it is ``number``.
            parent: the trial and epoch that it is a copy of.
        """
        # the folds of a repeat come one after another
        repeat, fold = divmod(within, self._spec.folds or 1)
        if place == number:  # None means that its place is its number (`TrialState.place`)
            place = None
        return TrialStarted(
            trial=number,
            trial_id=f"{self._spec.name}-{number:05d}",
            params=params,
            seed=self._spec.seed + repeat,
            repeat=repeat,
            fold=fold if self._spec.folds else None,
            time=time.time(),
            role=role,
            index=place,
            parent=None if parent is None else parent.trial,
            parent_epoch=None if parent is None else parent.epoch,
        )

    def find_early_end(
        self, report: EpochReported, verdict: str | None, *, in_search: bool
    ) -> EarlyEnd | None:
        """Return why a trial ends at this epoch: it diverged, reached the target, or is pruned for ``verdict``.

        The first of these that holds is returned, None if none does. ``verdict`` is the scheduler's reason to prune the
        trial, None or "" if it has none. ``in_search`` says whether the trial is of the search; only those end at the
        target.
        """
        diverged = self._objective.explain_divergence(report)
        if diverged:
            return EarlyEnd(Status.DIVERGED, diverged)
        if in_search:
            reached = self._objective.describe_reached(self._target, report.metrics)
        else:
            reached = None
        if reached:
            return EarlyEnd(Status.COMPLETED, reached)
        if not verdict:
            return None
        return EarlyEnd(Status.PRUNED, verdict)

    def decide_about_target(self, trial: OpenTrial) -> None:
        """Set the `early_end` of an open trial of the search by whether its last epoch has reached the present target.

        An end at an earlier target is removed if the present one is not reached. A trial that diverged or is pruned
        keeps that end. Do nothing for trials of the baseline and the confirmation.
        """
        is_of_search = trial.state.place is not None
        early = trial.early_end
        ends_otherwise = early is not None and early.status is not Status.COMPLETED
        if not is_of_search or ends_otherwise:
            return
        reached = self._objective.describe_reached(self._target, trial.state.last)
        if reached:
            trial.early_end = EarlyEnd(Status.COMPLETED, reached)
        else:
            trial.early_end = None

    def apply_retries(self, end: TrialEnded, retries: int) -> TrialEnded:
        """Return ``end`` or, if the trial failed and has retries left, an interruption after which it is tried again.

        ``retries`` is the number of retries that the trial has had; the sweep file limits them. The reason says which
        retry follows.
        """
        most = self._spec.retries
        if end.status is not Status.FAILED or retries >= most:
            return end
        reason = f"{end.reason}; {TRIED_AGAIN}, {retries + 1} of {most}"
        return structs.replace(end, status=Status.INTERRUPTED, again=True, reason=reason)

    def apply_constraints(self, end: TrialEnded, metrics: Mapping[str, float]) -> TrialEnded:
        """Return ``end`` with the status infeasible if the trial completed with metrics that violate a constraint.

        Otherwise return it unchanged. ``metrics`` are those of the last epoch; one that is missing violates its
        constraint. The reason names these constraints, and the metrics in them with their values.
        """
        if end.status is not Status.COMPLETED:
            return end
        violated = self._objective.list_violated(metrics)
        if not violated:
            return end
        names: set[str] = set()
        for one in self._spec.constraints:
            if one.text in violated:
                names |= one.names
        values = ", ".join(f"{name} {metrics.get(name, math.nan):.6g}" for name in sorted(names))
        reason = f"{' and '.join(violated)} not met: {values}"
        return structs.replace(end, status=Status.INFEASIBLE, reason=reason)

    def fresh(
        self, trial: OpenTrial, epochs: Sequence[EpochReported], facts: Facts
    ) -> tuple[Sequence[EpochReported], TrialEnded | None]:
        """Return (epochs that the log lacks, end): the end as failed if an epoch lacks a required metric, else None.

        ``epochs`` are reports of the trial, in order; those that the log has already are left out, and so are all from
        the first incomplete one on. Required are the objectives and all metrics that constraints name. ``facts`` are
        put into the end, whose reason names the metric.
        """
        # a trial that resumed from an earlier checkpoint trains and reports some epochs again
        epochs = [epoch for epoch in epochs if epoch.epoch > trial.state.epoch]
        required = {}  # by name, why: the predicate of a sentence for the user
        for objective in self._spec.objectives:
            required[objective.name] = "is the sweep's"
        for constraint in self._spec.constraints:
            required |= dict.fromkeys(constraint.names, f"the constraint {constraint.text!r} names")
        for index, epoch in enumerate(epochs):
            for name, why in required.items():
                if name not in epoch.metrics:
                    told = self._describe_missing_metric(name, why, epoch)
                    end = trial.end(Status.FAILED, told, facts)
                    return epochs[:index], structs.replace(end, error=told, incompatible=True)
        return epochs, None

    def _describe_missing_metric(self, name: str, why: str, epoch: EpochReported) -> str:
        """Return a message that an epoch lacks the required metric ``name``, with a hint if there is one.

        ``why`` ends the clause "which ...", such as ``is the sweep's``.
        """
        hint = self._suggest_backquotes(name, epoch) or guess(name, epoch.metrics)
        reported = ", ".join(epoch.metrics) or "none"
        return (
            f"in epoch {epoch.epoch} of trial {epoch.trial}, {self._spec.trainable} reports no metric "
            f"{name!r}, which {why}; it reports {reported}{hint and f'; {hint}'}"
        )

    def _suggest_backquotes(self, name: str, epoch: EpochReported) -> str:
        """Return a hint if a constraint must write a metric such as ``val/loss`` in backquotes; else "".

        ``name`` is a name in the constraint, as it was read, that the epoch does not report. The hint names the first
        metric of the epoch that contains ``name`` and stands in such a constraint.
        """
        constraints_with_name = []
        for one in self._spec.constraints:
            if name in one.names:
                constraints_with_name.append(one.text)
        for metric in epoch.metrics:
            # val/loss without backquotes was read as val divided by loss, so the name is a part of the metric's
            if name in metric and any(metric in text for text in constraints_with_name):
                return f"put a name such as {metric} in backquotes: `{metric}`"
        return ""


class AuxiliaryTrials:
    """Makes the events that start trials, with their numbers, and chooses the trials of baseline and confirmation."""

    def __init__(self, spec: Spec, terms: Terms, ledger: Ledger, numbering: Numbering) -> None:
        self._spec = spec
        self._terms = terms
        self._ledger = ledger
        self._numbering = numbering
        self._baseline_begun = 0  # number of baseline trials that have begun
        self.confirmed = 0
        """Number of confirmation trials that have begun."""
        self._highest_number = -1  # of the trials that have begun, in the log
        # cached state of the confirmation; None if trials began or ended since
        self._race: Race | None = None

    def observe(self, change: Change) -> None:
        """Count a trial that a change of the log has started, and note whether the confirmation must be computed again.

        All changes count for that, except of sessions, reports of epochs, and printed output.
        """
        if isinstance(change, Started):
            trial = change.trial
            self._highest_number = max(self._highest_number, trial.number)
            if trial.role is Role.BASELINE:
                self._baseline_begun += 1
            elif trial.role is Role.CONFIRM:
                self.confirmed += 1
        if not isinstance(change, SessionChange | Reported | Printed):
            self._race = None  # `race` computes it again

    def contains(self, trial: int) -> bool:
        """Return whether a trial, which must have started, is of the baseline or the confirmation.

        ``trial`` is its number in the log. No rule and no target ends such a trial early. Raises KeyError if it has not
        started.
        """
        return self._ledger.trials[trial].place is None

    def start_search_trial(
        self, place: int, params: Params, parent: Copied | None = None
    ) -> TrialStarted:
        """Return the event, to be logged, that starts a trial of the search now.

        ``place`` is its number within the search, from 0, which determines its number in the log; once the confirmation
        has begun, that is the one after the highest so far. With ``parent``, the trial begins as a copy of that trial
        at its epoch.
        """
        if self.confirmed:  # trials of the confirmation may have the numbers that would follow
            number = self._highest_number + 1
        else:
            number = self._numbering.number_search(place)
        within = self._numbering.find(place).within
        return self._terms.start(within, params, number, place=place, parent=parent)

    def start_baseline_trial(self) -> TrialStarted | None:
        """Return the event, to be logged, that starts the next baseline trial; None if there is none left to start.

        Once the confirmation has begun, its number in the log is the one after the highest so far.
        """
        begun = self._baseline_begun
        if self._spec.baseline is None or begun >= self._spec.baseline_trials:
            return None
        if self.confirmed:  # trials of the confirmation may have the numbers that would follow
            number = self._highest_number + 1
        else:
            number = self._numbering.number_baseline(begun)
        return self._terms.start(begun, self._spec.baseline, number, Role.BASELINE)

    def start_confirmation_trial(self) -> TrialStarted | None:
        """Return the event, to be logged, that starts the next trial of the confirmation; None if there is none now.

        The confirmation is then over, or waits for running trials.
        """
        wanted = self.race().wanted
        if not wanted:
            return None
        params, repeat, fold = wanted[0]
        within = repeat * (self._spec.folds or 1) + (fold or 0)
        return self._terms.start(within, params, self._highest_number + 1, Role.CONFIRM)

    def change(self, spec: Spec, terms: Terms, numbering: Numbering) -> None:
        """Use a changed sweep file, with its terms and its numbering of trials, from now on."""
        self._spec, self._terms, self._numbering = spec, terms, numbering
        self._race = None

    def is_complete(self, total: int | None) -> bool:
        """Return whether all trials and the confirmation, if there is one, have ended.

        ``total`` is the number of trials of the search and the baseline. False if it is None, which means unknown, if
        fewer have begun, or if any trial runs or is interrupted.
        """
        if total is None:
            return False
        begun = 0
        for trial in self._ledger.trials.values():
            if trial.ended is None:
                return False
            if trial.role is not Role.CONFIRM:
                begun += 1
        if begun < total:
            return False
        if self._spec.confirm is None:
            return True
        return bool(self.race().over)

    def race(self) -> Race:
        """Return the state of the confirmation, which is computed again only after trials or the sweep changed."""
        if self._race is None:
            self._race = features.find_race(self._ledger, self._spec)
        return self._race


LOOK_AHEAD = 64
"""Trials beyond the first unstarted one among which `Upcoming` may choose; limited so that none waits for long."""


class Upcoming:
    """Chooses which trial of the search starts next; trials have their numbers within the search.

    Trial n has the same parameters whenever it starts. If suggestions depend on events, trials start in order.
    Otherwise a worker gets the first of the next trials whose compiled structure it holds, else the first whose
    structure no other worker holds, else the first.
    """

    def __init__(
        self,
        searcher: Searcher,
        cap: int | None,
        is_added: Callable[[Params], bool] = lambda params: False,
    ) -> None:
        """Initialize.

        Arguments:
            cap: the first number that must not start; None for no limit.
            is_added: returns whether a person has added a configuration, which then starts first.
        """
        self._searcher = searcher
        self._cap = cap
        self._is_added = is_added
        self._first_unstarted = 0  # all trials before this one have started
        self._started_beyond: set[int] = set()  # later trials that have started as well
        self.exhausted = False  # the searcher has no more trials
        # parameters of the next trials, as far as suggested
        self._suggested: dict[int, Params] = {}
        # worker and structure of each running trial, by its number in the log
        self._running: dict[int, tuple[str, str | None]] = {}
        self._held: dict[str, list[str]] = {}  # structures by worker, the most recently used last

    def change(self, cap: int | None) -> None:
        """Replace the limit on trials by ``cap``, the first number that must not start; None for no limit."""
        self._cap = cap

    def forget(self) -> None:
        """Discard the suggestions for trials that have not started, so that the searcher is asked again."""
        self._suggested.clear()
        self.exhausted = False

    def replace_searcher(self, searcher: Searcher, first: int) -> None:
        """Take trials from number ``first`` within the search on from another searcher, and forget suggestions.

        None of them may have started, and all before ``first`` count as started. The searcher is asked for trials by
        the same numbers, so next for trial ``first``.
        """
        self._searcher = searcher
        self._first_unstarted = first
        self._started_beyond.clear()
        self.forget()

    def record_start(self, trial: int) -> None:
        """Record that the trial with this number within the search has started, in this session or before."""
        self._suggested.pop(trial, None)
        if trial >= self._first_unstarted:  # otherwise it was recorded already
            self._started_beyond.add(trial)
        while self._first_unstarted in self._started_beyond:
            self._started_beyond.remove(self._first_unstarted)
            self._first_unstarted += 1

    def record_structures(self, trial: int, progress: Progress) -> None:
        """Record by a worker's step which compiled structures the worker holds; ``trial`` is a number in the log.

        The trial counts as running. A trial's later step may report a different structure, which then replaces the
        earlier one; a step without one leaves it. Only the most recently used structures are kept, as many as the step
        says that the worker holds. A worker that must not be used again (``spoilt``) holds none, and the trial does not
        count as running.
        """
        _, before = self._running.get(trial, ("", None))  # worker, structure
        structure = progress.facts.structure or before
        self._running[trial] = progress.worker, structure
        if structure is not None:
            held = []  # the most recently used structure comes last
            for other in self._held.get(progress.worker, []):
                if other not in (before, structure):
                    held.append(other)
            held.append(structure)
            if progress.facts.structures:  # the worker has dropped the least recently used ones
                held = held[-progress.facts.structures :]
            self._held[progress.worker] = held
        if progress.spoilt is not None:
            self.forget_lost_worker(trial)

    def record_end(self, trial: int) -> None:
        """Record that a trial, by its number in the log, has ended. Does nothing for a trial that is not running.

        For `choose`, its worker still holds the compiled structures that `record_structures` has recorded.
        """
        self._running.pop(trial, None)

    def forget_lost_worker(self, trial: int) -> None:
        """Forget a running trial, by its number in the log, and all structures of its worker, which is not used again.

        Does nothing for a trial that is not running.
        """
        # "" if it is not running, which no worker is called
        worker, _ = self._running.pop(trial, ("", None))
        self._held.pop(worker, None)

    def find_next(self) -> tuple[int, Params] | None:
        """Return (number within the search, parameters) of the first trial that has not started.

        The searcher is asked for the parameters, if its earlier answer was not kept. None if there is no such trial to
        start now: the limit on trials is reached, or the searcher has none now (then `exhausted` may be set).
        """
        return next(self._iterate_waiting(), None)

    def choose(self, worker: str) -> tuple[int, Params] | None:
        """Return (number within the search, parameters) of the next trial for a worker; None if none can start now.

        If suggestions do not depend on events, it is the first of the next trials whose compiled structure the worker
        holds, else the first whose structure no other worker holds, else the first. Otherwise it is always the first.
        If the first one is an added configuration, it is returned whatever its structure.
        """
        first = self.find_next()
        if first is None:
            return None
        _, params_of_first = first
        # a searcher whose suggestions depend on events (it does not foresee them) has its trials started in order
        in_order = not self._searcher.foresees or self._is_added(params_of_first)
        if in_order or not self._held:  # no worker holds a structure yet
            return first
        own = self._held.get(worker, [])  # structures of this worker
        others: set[str] = set()  # and of all others
        for name, held in self._held.items():
            if name != worker:
                others.update(held)
        # the first trial whose structure no other worker holds
        unheld: tuple[int, Params] | None = None
        for trial, params in self._iterate_waiting():
            if any(fits_structure(params, structure) for structure in own):
                return trial, params
            if unheld is None and not any(
                fits_structure(params, structure) for structure in others
            ):
                unheld = trial, params
        return unheld or first

    def _iterate_waiting(self) -> Iterator[tuple[int, Params]]:
        """Yield (number within the search, parameters) of the trials that have not started, in order.

        Ends at the limit on trials, `LOOK_AHEAD` numbers beyond the first one, or if the searcher has no further trial
        now.
        """
        for trial in count(self._first_unstarted):
            is_over_cap = self._cap is not None and trial >= self._cap
            if is_over_cap or trial > self._first_unstarted + LOOK_AHEAD:
                return
            if trial in self._started_beyond:
                continue
            params = self._suggest(trial)
            if params is None:
                return
            yield trial, params

    def _suggest(self, trial: int) -> Params | None:
        """Return the parameters of a trial; None if the searcher has none for it now.

        Then also set `exhausted`, unless a population may suggest more later. The searcher is not asked again once
        `exhausted` is set, nor for a trial whose suggestion is remembered, as all are that do not depend on events.
        """
        if trial in self._suggested:
            return self._suggested[trial]
        if self.exhausted:
            params = None
        else:
            params = self._searcher.suggest(trial)
        if params is None:
            # a population may suggest more after trials that are running; others are exhausted for good
            may_continue = isinstance(self._searcher, CopyingSearcher) and self._searcher.waits
            self.exhausted = not may_continue
        elif self._searcher.foresees:  # the suggestion does not depend on events
            self._suggested[trial] = params
        return params


def fits_structure(params: Params, structure: str) -> bool:
    """Return whether a trial with the parameters ``params`` would compile ``structure``.

    ``structure`` is the JSON text of the hyperparameters that the model's code has read, with their values.
    """
    return Hyperparameters(params).matches_reads(_parse_reads(structure))


@lru_cache(maxsize=1024)
def _parse_reads(structure: str) -> Reads:
    """Return the hyperparameters, with their values, that the JSON text of a structure contains."""
    return from_json(structure)


class Pauses:
    """Decides which open trials pause, resume or are given up, by the rule of the population or the scheduler.

    Without such a rule, no trial pauses.
    """

    def __init__(
        self,
        searcher: Searcher,
        scheduler: Scheduler,
        trials: Mapping[int, OpenTrial],
        reword: Callable[[str], str] = str,
    ) -> None:
        """Initialize with the rule: ``searcher`` if it pauses trials, as a population does, else such a ``scheduler``.

        Arguments:
            trials: the open trials by number; the caller adds and removes trials.
            reword: rewrites the rule's reasons for users.
        """
        self._reword = reword
        self._rule = next((one for one in (searcher, scheduler) if isinstance(one, Pausing)), None)
        self._deciding = self._rule or scheduler  # whose decision epochs count
        self._trials = trials
        self._count = 0  # pauses so far
        # of paused trials in the order of their pauses, from 1
        self._positions: dict[int, int] = {}

    def open(self, state: TrialState, epochs: int) -> OpenTrial:
        """Return a new open trial of the search that trains ``epochs`` epochs, in the stage of waiting for a worker.

        Its decision epochs are those of the rule that pauses trials, and it may pause there. Without such a rule, they
        are those of the scheduler, and it never pauses. The caller adds it to the open trials that this object knows.
        """
        return OpenTrial(
            state, epochs, self._deciding.decision_epochs(epochs), may_pause=self._rule is not None
        )

    def explain_pause(self, trial: OpenTrial) -> str | None:
        """Return why a trial must pause after its last reported epoch, in words for users; None if it may continue.

        A trial may continue, whatever its rule says, if it is not of the search, or if that epoch has reached none of
        its decision epochs. Nothing pauses without a rule that pauses.
        """
        place = trial.state.place
        if self._rule is None or place is None or not trial.decided:
            return None
        why = self._rule.holds(place)
        return None if why is None else self._reword(why)

    def make_pause(self, trial: OpenTrial, facts: Facts) -> TrialEnded | None:
        """Return the event, to be logged, that interrupts a trial because it must pause now; None if it need not.

        ``facts`` are put into the event.
        """
        why = self.explain_pause(trial)
        if not why:
            return None
        return structs.replace(trial.end(Status.INTERRUPTED, PAUSES + why, facts), waits=True)

    def record(self, trial: int, *, paused: bool) -> None:
        """Record that a trial pauses, as the last one in the order of pauses, or that it does not pause any more.

        ``trial`` is its number in the log. A trial that does not pause any more need not have paused.
        """
        if paused:
            self._count += 1
            self._positions[trial] = self._count
        else:
            self._positions.pop(trial, None)

    def position(self, trial: int) -> int:
        """Return the number of a trial's pause among all pauses so far, from 1; 0 for a trial that is not paused.

        Paused trials are tried in the order of these numbers when one may resume.
        """
        return self._positions.get(trial, 0)

    def find_ready(self, again: Iterable[int]) -> int | None:
        """Return the first of the open trials ``again``, by their numbers, that its rule lets train now; None if none.

        Raises KeyError if one of those before it is not open.
        """
        return next((trial for trial in again if not self.explain_pause(self._trials[trial])), None)

    def find_last(self) -> int | None:
        """Return the number of the paused trial to resume although its rule holds it, since nothing else is left.

        Call it only then. Return None if no trial is paused, or if the rule does not want any of them resumed.
        """
        place = self._rule.last() if self._rule else None
        if place is None:
            return None
        return next(
            (number for number, one in self._trials.items() if one.state.place == place), None
        )

    def list_given_up(self, *, rest: bool) -> list[TrialEnded]:
        """Return the events, to be logged, that end the paused trials that their rule gives up, as pruned.

        ``rest`` says that nothing is running and `find_last` has returned None, so that no paused trial can resume (see
        `Pausing`). Trials that are not open any more are left out.
        """
        if self._rule is None:
            return []
        reasons = self._rule.dropped(rest=rest)  # by number within the search
        if not reasons:
            return []
        trials_by_place = {}
        for trial in self._trials.values():
            trials_by_place[trial.state.place] = trial
        ends = []
        for place, reason in reasons.items():
            if place in trials_by_place:
                end = trials_by_place[place].end(Status.PRUNED, self._reword(reason), Facts())
                # with ``rest``, it was paused until the search was over
                ends.append(structs.replace(end, waits=rest))
        return ends
