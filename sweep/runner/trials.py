"""The trials of a sweep as its coordinator chooses, starts and follows them.

An `OpenTrial` has not ended for good. `Terms` says what the sweep file asks of each trial: how it is trained, and which
reports end it. `AuxiliaryTrials` are not chosen by the searcher: the baseline before the search, and after it fresh
seeds for those that could still be best. `Upcoming` says which trial of the search starts next: where the order is
free, the one whose compiled structure the free worker holds. `Pauses` says which of them pause, where the scheduler
lets them or the method is a population: such a trial is interrupted in the log, saved, and gone on with by any worker
once its rule no longer holds it. All of it follows from the events, so that a session that
goes on starts what the one before would have started.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from msgspec import structs

from sweep.analysis import confirmation
from sweep.analysis.confirmation import Race, Rules, Run
from sweep.backends import Order, Progress
from sweep.contract import Assignment, Devices, Fold
from sweep.events import PAUSES, EpochReported, Facts, Params, Role, Status, TrialEnded, TrialStarted
from sweep.hyperparameters import Hyperparameters, Reads, from_json
from sweep.schedulers import Pausing, Scheduler
from sweep.searchers import Searcher
from sweep.searchers.population import Parent, Population
from sweep.spec import Spec
from sweep.store.ledger import Change, Ledger, Reported, Session, Started, TrialState
from sweep.text import guess


@dataclass
class OpenTrial:
    """How far one trial has come, and what was decided about it."""

    state: TrialState
    epochs: int
    decisions: tuple[int, ...]  # epochs at which it can be pruned, or pause
    verdict: str | None = None  # the scheduler's reason to prune it at its last epoch
    diverged: str = ""  # why it has, with its last epoch
    reached: str | None = None  # that it has the sweep's target, in words
    interrupted: bool = False  # and no worker has had it since
    restarts: int = 0  # in this session, of lost workers
    lost_nodes: int = 0  # in this session
    accumulate: int = 1  # parts of each batch that it is known to need, in this session
    outgrown: bool = False  # its worker gives it back, to be trained in another process
    moved: bool = False  # it was given back once
    unwanted: bool = False  # somebody asked that it be stopped
    pauses: bool = False  # at its decisions it may be left, to go on later
    paused: int = 0  # it is left: the how manieth that was, of all pauses

    @property
    def started(self) -> TrialStarted:
        return self.state.start

    def end(self, status: Status, reason: str, facts: Facts) -> TrialEnded:
        """Return the end of this trial, now."""
        return TrialEnded(trial=self.started.trial, status=status, reason=reason, time=time.time(), facts=facts)

    def dismissed(self, reason: str) -> TrialEnded:
        """Return the end of this trial because somebody asked for it."""
        return structs.replace(self.end(Status.PRUNED, reason, Facts()), asked=True)

    def overdue(self) -> TrialEnded | None:
        """Return the end that its epochs have come to."""
        if self.diverged:
            return self.end(Status.DIVERGED, self.diverged, Facts())
        if self.state.epoch >= self.epochs:
            return self.end(Status.COMPLETED, "", Facts())
        if self.reached:
            return structs.replace(self.end(Status.COMPLETED, self.reached, Facts()), at_target=True)
        if self.verdict:
            return self.end(Status.PRUNED, self.verdict, Facts())
        return None


class Terms:
    """The terms on which all trials of a sweep are trained."""

    def __init__(self, spec: Spec) -> None:
        self._spec, self._objective = spec, spec.objectives[0]

    def order(self, trial: OpenTrial, devices: Devices, to_beat: float | None, known_data: str | None) -> Order:
        """Return a trial as a worker gets it."""
        started, shares = trial.started, self._spec.resources.gpus == "auto"
        assignment = self.assignment(started, devices, trial.accumulate)
        if started.role is not Role.SEARCH:
            return Order(assignment, whole=True, known_data=known_data, moved=trial.moved, shares=shares)
        return Order(
            assignment,
            trial.decisions,
            to_beat,
            known_data=known_data,
            moved=trial.moved,
            waits=trial.pauses,
            shares=shares,
        )

    def assignment(self, started: TrialStarted, devices: Devices, accumulate: int = 1) -> Assignment:
        """Return a trial as a trainable gets it."""
        spec = self._spec
        return Assignment(
            trial=started.trial,
            params=started.params,
            seed=started.seed,
            epochs=spec.trial_epochs(started.params),
            devices=devices,
            training=spec.training,
            data_seed=spec.data_seed,
            objective=self._objective.name,
            maximize=self._objective.maximize,
            fold=None if not spec.folds or started.fold is None else Fold(started.fold, spec.folds, started.seed),
            accumulate=accumulate,
        )

    def trial(self, number: int, params: Params, devices: Devices) -> Assignment:
        """Return a trial that is no part of the sweep: with its first seed, and its first fold."""
        return self.assignment(self.start(0, params, number), devices)

    def start(
        self,
        place: int,
        params: Params,
        number: int | None = None,
        role: Role = Role.SEARCH,
        parent: Parent | None = None,
    ) -> TrialStarted:
        """Return a trial that begins now.

        ``place`` counts the trials of a search, or those of a configuration where it has another role; ``number`` is
        the same unless given.
        """
        number = place if number is None else number
        each = place % self._spec.trials_each if role is Role.SEARCH else place
        repeat, fold = divmod(each, self._spec.folds or 1)
        return TrialStarted(
            trial=number,
            trial_id=f"{self._spec.name}-{number:05d}",
            params=params,
            seed=self._spec.seed + repeat,
            repeat=repeat,
            fold=fold if self._spec.folds else None,
            time=time.time(),
            role=role,
            index=place if role is Role.SEARCH and place != number else None,
            parent=None if parent is None else parent.trial,
            parent_epoch=None if parent is None else parent.epoch,
        )

    def spared(self, end: TrialEnded, retries: int) -> TrialEnded:
        """Return a trial's end, or an interruption where it is a failure and has not been tried again often enough."""
        most = self._spec.retries
        if end.status is not Status.FAILED or retries >= most:
            return end
        reason = f"{end.reason}; tried again, {retries + 1} of {most}"
        return structs.replace(end, status=Status.INTERRUPTED, again=True, reason=reason)

    def judged(self, end: TrialEnded, metrics: Mapping[str, float]) -> TrialEnded:
        """Return a trial's end; infeasible where it completed, and its last metrics do not meet the constraints."""
        wrong = self._objective.violated(metrics) if end.status is Status.COMPLETED else []
        if not wrong:
            return end
        names = sorted(set().union(*(one.names for one in self._spec.constraints if one.text in wrong)))
        there = ", ".join(f"{name} {metrics.get(name, math.nan):.6g}" for name in names)
        return structs.replace(end, status=Status.INFEASIBLE, reason=f"{' and '.join(wrong)} not met: {there}")

    def fresh(
        self, trial: OpenTrial, epochs: Sequence[EpochReported], facts: Facts
    ) -> tuple[Sequence[EpochReported], TrialEnded | None]:
        """Return the new epochs of a trial; one without an objective, or what a constraint names, ends it before."""
        epochs = [epoch for epoch in epochs if epoch.epoch > trial.state.epoch]
        asked = {objective.name: "is the sweep's" for objective in self._spec.objectives}
        for constraint in self._spec.constraints:
            asked |= dict.fromkeys(constraint.names, f"the constraint {constraint.text!r} names")
        for place, epoch in enumerate(epochs):
            for name, what in asked.items():
                if name not in epoch.metrics:
                    hint = self._backquotes(name, epoch) or guess(name, epoch.metrics)
                    reported = ", ".join(epoch.metrics) or "none"
                    told = (
                        f"in epoch {epoch.epoch} of trial {epoch.trial}, {self._spec.trainable} reports no metric "
                        f"{name!r}, which {what}; it reports {reported}{hint and f'; {hint}'}"
                    )
                    return epochs[:place], structs.replace(
                        trial.end(Status.FAILED, told, facts), error=told, incompatible=True
                    )
        return epochs, None

    def _backquotes(self, name: str, epoch: EpochReported) -> str:
        """Return that a metric such as ``val/loss`` is torn into calculations in a constraint; empty if none is."""
        texts = [one.text for one in self._spec.constraints if name in one.names]
        torn = [metric for metric in epoch.metrics if name in metric and any(metric in text for text in texts)]
        return f"put a name such as {torn[0]} in backquotes: `{torn[0]}`" if torn else ""


class AuxiliaryTrials:
    """What trials there are beside the search's, and how those of the search are numbered among them."""

    def __init__(self, spec: Spec, terms: Terms, ledger: Ledger) -> None:
        self._spec, self._terms, self._ledger = spec, terms, ledger
        self._baseline = 0  # trials of it that have begun
        self._confirmed = False
        self._highest = -1
        self._race: Race | None = None  # as it stands; None where trials began or ended since

    def observe(self, change: Change) -> None:
        """Count an event in."""
        if isinstance(change, Started):
            trial = change.trial
            self._highest = max(self._highest, trial.number)
            self._baseline += trial.role is Role.BASELINE
            self._confirmed |= trial.role is Role.CONFIRM
        if not isinstance(change, Session | Reported):
            self._race = None

    def has(self, trial: int) -> bool:
        """Return whether a trial is none of the search: then nothing ends it before its last epoch."""
        return self._ledger.trials[trial].place is None

    def searched(self, place: int, params: Params, parent: Parent | None = None) -> TrialStarted:
        """Return the trial of a place in the search, which begins now, or goes on from a parent."""
        number = self._highest + 1 if self._confirmed else place + self._spec.baseline_trials
        return self._terms.start(place, params, number, parent=parent)

    def baseline(self) -> TrialStarted | None:
        """Return the next trial of the baseline; None when all have begun."""
        if self._spec.baseline is None or self._baseline >= self._spec.baseline_trials:
            return None
        number = self._highest + 1 if self._confirmed else self._baseline
        return self._terms.start(self._baseline, self._spec.baseline, number, Role.BASELINE)

    def confirmation(self) -> TrialStarted | None:
        """Return the next trial of the race; None when it is over, or waits for those that run."""
        wanted = self.race().wanted
        if not wanted:
            return None
        params, repeat, fold = wanted[0]
        place = repeat * (self._spec.folds or 1) + (fold or 0)
        return self._terms.start(place, params, self._highest + 1, Role.CONFIRM)

    def complete(self) -> bool:
        """Return whether all trials of the sweep have ended and its race is over; False where nobody knows how many."""
        trials, total = self._ledger.trials.values(), self._spec.all_trials
        if total is None or any(one.ended is None for one in trials):
            return False
        begun = sum(one.role is not Role.CONFIRM for one in trials)
        return begun >= total and (self._spec.confirm is None or bool(self.race().over))

    def race(self) -> Race:
        """Return how the race stands."""
        if self._race is None:
            self._race = race(self._ledger, self._spec)
        return self._race


def runs(ledger: Ledger, spec: Spec) -> list[Run]:
    """Return the trials as far as a race looks at them."""
    objective = spec.objectives[0]

    def run(one: TrialState) -> Run:
        loss = objective.loss(one.last)
        last = math.nan if loss is None else loss
        return Run(one.number, one.params, one.role, one.start.repeat, one.start.fold, one.status, last, one.reported)

    return [run(one) for one in ledger.trials.values()]


def race(ledger: Ledger, spec: Spec) -> Race:
    """Return how the race after a search stands; none where the sweep file says nothing of one."""
    confirm = spec.confirm
    if confirm is None:
        return Race()
    rules = Rules(confirm.seeds, confirm.finalists, confirm.share(), spec.repeats, spec.folds)
    return confirmation.run(runs(ledger, spec), rules)


LOOK_AHEAD = 64
"""How far beyond the first trial that has not started another one may be preferred: none waits for long."""


class Upcoming:
    """Chooses among the trials that have not started; trial n has the same parameters whenever it starts.

    A method that learns is asked for one trial after the other. Else a worker is given, of the next trials, the first
    one whose structure it holds, or else the first that fits no structure of another worker, or else the first.
    """

    def __init__(self, searcher: Searcher, cap: int | None) -> None:
        self._searcher = searcher
        self._cap = cap
        self._first = 0  # all trials before have started
        self._beyond: set[int] = set()  # these have as well
        self.exhausted = False  # the searcher has no more trials
        self._waiting: dict[int, Params] = {}  # what the next trials will be, as far as looked at
        self._running: dict[int, tuple[str, str | None]] = {}  # the worker of a trial, and its structure
        self._held: dict[str, list[str]] = {}  # structures by worker, the one used last at the end

    def started(self, trial: int) -> None:
        """A trial has started, in this session or before."""
        self._waiting.pop(trial, None)
        if trial >= self._first:  # else it is told once more
            self._beyond.add(trial)
        while self._first in self._beyond:
            self._beyond.remove(self._first)
            self._first += 1

    def heard(self, trial: int, progress: Progress) -> None:
        """Learn from a step which worker holds which structure; of one trial, the latest that it tells."""
        _, before = self._running.get(trial, ("", None))
        structure = progress.facts.structure or before
        self._running[trial] = progress.worker, structure
        if structure is not None:
            held = self._held.setdefault(progress.worker, [])
            held[:] = [*(other for other in held if other not in (before, structure)), structure]
            if progress.facts.structures:  # it has forgotten those used longest ago
                del held[: -progress.facts.structures]
        if progress.spoilt is not None:
            self.lost(trial)

    def ended(self, trial: int) -> None:
        """A trial has ended; its worker keeps what it holds."""
        self._running.pop(trial, None)

    def lost(self, trial: int) -> None:
        """The worker of a trial is gone, with all that it held."""
        worker, _ = self._running.pop(trial, ("", None))
        self._held.pop(worker, None)

    def choose(self, worker: str) -> tuple[int, Params] | None:
        """Return the next trial for a worker; None when there is none to start, and there will be none."""
        first = next(self._next(), None)
        if first is None or not self._held or not self._searcher.foresees:
            return first
        own = self._held.get(worker, [])
        others = {structure for name, held in self._held.items() if name != worker for structure in held}
        unheld: tuple[int, Params] | None = None
        for trial, params in self._next():
            if any(fits(params, structure) for structure in own):
                return trial, params
            if unheld is None and not any(fits(params, structure) for structure in others):
                unheld = trial, params
        return unheld or first

    def _next(self) -> Iterator[tuple[int, Params]]:
        """Yield the next trials that have not started, as far as one may look ahead."""
        for trial in count(self._first):
            if (self._cap is not None and trial >= self._cap) or trial > self._first + LOOK_AHEAD:
                return
            if trial in self._beyond:
                continue
            params = self._params(trial)
            if params is None:
                return
            yield trial, params

    def _params(self, trial: int) -> Params | None:
        if trial in self._waiting:
            return self._waiting[trial]
        params = None if self.exhausted else self._searcher.suggest(trial)
        if params is None:
            # Asked no more, unless what it would suggest depends on trials that run.
            self.exhausted = not (isinstance(self._searcher, Population) and self._searcher.waits)
        elif self._searcher.foresees:
            self._waiting[trial] = params
        return params


def fits(params: Params, structure: str) -> bool:
    """Return whether a trial would be built as that structure was."""
    return Hyperparameters(params).agree(_reads(structure))


@lru_cache(maxsize=1024)
def _reads(structure: str) -> Reads:
    return from_json(structure)


class Pauses:
    """What the rule of a sweep says of its open trials."""

    def __init__(self, searcher: Searcher, scheduler: Scheduler, trials: Mapping[int, OpenTrial]) -> None:
        """``trials``: those that have not ended, by number."""
        self._rule = next((one for one in (searcher, scheduler) if isinstance(one, Pausing)), None)
        self._deciding = self._rule or scheduler
        self._trials = trials
        self._count = 0

    def open(self, state: TrialState, epochs: int) -> OpenTrial:
        """Return a trial of the search that begins."""
        return OpenTrial(state, epochs, self._deciding.decision_epochs(epochs), pauses=self._rule is not None)

    def why(self, trial: OpenTrial) -> str | None:
        """Return why a trial is not to train on for now; None for one that may."""
        place = trial.state.place
        if self._rule is None or place is None or trial.state.epoch not in trial.decisions:
            return None
        return self._rule.holds(place)

    def end(self, trial: OpenTrial, facts: Facts) -> TrialEnded | None:
        """Return the interruption of a trial that pauses where it is; None for one that trains on."""
        why = self.why(trial)
        return structs.replace(trial.end(Status.INTERRUPTED, PAUSES + why, facts), waits=True) if why else None

    def note(self, trial: OpenTrial, *, paused: bool) -> None:
        """Remember in which order trials paused, which is the one in which they are gone on with."""
        self._count += paused
        trial.paused = self._count if paused else 0

    def ready(self, again: Iterable[int]) -> int | None:
        """Return the first of those to be gone on with that none holds."""
        return next((trial for trial in again if not self.why(self._trials[trial])), None)

    def last(self) -> int | None:
        """Return the trial that is trained on although it is held, once none trains and none is left to start."""
        place = self._rule.last() if self._rule else None
        if place is None:
            return None
        return next((number for number, one in self._trials.items() if one.state.place == place), None)

    def dropped(self, *, rest: bool) -> list[TrialEnded]:
        """Return the ends of those that pause for good; ``rest`` as of `Pausing`."""
        whys = self._rule.dropped(rest=rest) if self._rule else {}
        numbers = {one.state.place: number for number, one in self._trials.items()} if whys else {}
        there = [(self._trials[numbers[place]], why) for place, why in whys.items() if place in numbers]
        return [structs.replace(one.end(Status.PRUNED, why, Facts()), waits=rest) for one, why in there]
