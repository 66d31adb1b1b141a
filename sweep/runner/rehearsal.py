"""Rehearses a sweep with made-up trials: its own method suggests them, its own rule stops them or lets them pause.

The rule compares a trial with the trials before, so how far trials come depends on how much the method improves. A
method that learns is therefore asked for real configurations. Their learning curves are made up: early epochs and the
last one have their best configurations in different places, so that curves cross, and ranks agree with those of the
last epoch as much as is usual (`agreement`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.events import (
    PAUSES,
    EpochReported,
    Facts,
    Params,
    Status,
    TrialEnded,
    TrialStarted,
    Value,
)
from sweep.schedulers import Pausing, Scheduler
from sweep.searchers import Searcher
from sweep.space import Parameter, Space
from sweep.space.domains import Range, key
from sweep.space.draws import to_unit
from sweep.space.objectives import Objective

EARLY_DISAGREEMENT = 0.016
"""How much early ranks differ from the last: LCBench's curves of 52 epochs have rank correlations of .1 after 1 epoch,
.75 after 3, .87 after 6 and .95 after 18."""

TURN = 1.0
"""How fast the early order of trials changes: after 3 epochs, other trials lead than after the first one."""

FALL = 4.0
"""How far curves fall in all, in standard deviations of the last epoch."""

IMPORTANCE = 0.6
"""The weight of a parameter, as a share of that of the next more important one."""


def agreement(epoch: int, epochs: int) -> float:
    """Return the rank correlation that is assumed between the losses after ``epoch`` epochs and the final ones.

    ``epoch`` counts from 1, and ``epochs`` is the number after which training ends. The result, from 0 to 1, follows
    from a fixed formula (see `EARLY_DISAGREEMENT`), which looks at no losses. It is 1 after the last epoch.
    """
    return 1.0 - min(EARLY_DISAGREEMENT * (epochs / epoch - 1.0), 1.0)


@dataclass(frozen=True, slots=True)
class MadeUpTrial:
    """How good a made-up trial is at first, soon after, and at the end, in standard deviations; lower is better."""

    first: float
    soon: float
    end: float

    def loss(self, epoch: int, epochs: int) -> float:
        """Return the made-up loss after ``epoch`` of ``epochs`` epochs, in standard deviations; lower is better.

        ``epoch`` counts from 1. The loss falls with the epochs. After the last one it is ``end``; earlier ones mix
        ``end`` with ``first`` and ``soon``, and have less of ``end`` the earlier they are.
        """
        agrees = agreement(epoch, epochs)
        # from `first` at epoch 1, turning towards `soon`; so another trial leads after a few epochs
        angle = TURN * math.log(epoch)
        early = math.cos(angle) * self.first + math.sin(angle) * self.soon
        differs = math.sqrt(1.0 - agrees**2)  # so that losses have the variance 1 at every epoch
        falls_later = FALL * (1.0 - agrees)  # the same for all trials
        return agrees * self.end + differs * early + falls_later


class Landscape:
    """A made-up objective: how good each configuration is at first, soon after, and at the end of its training.

    Each of the three is a bowl over the parameters with its own bottom.
    """

    def __init__(self, space: Space, name: str) -> None:
        self._parameters = [one for one in space.parameters if one.drawn]
        self._name = name
        self._weights_of = {part: self._weights(part) for part in ("first", "soon", "end")}

    def trial(self, params: Params) -> MadeUpTrial:
        """Return how good a configuration is at first, soon after and at the end; the same whenever it is asked.

        Constant and tied parameters have no effect, nor do those that ``params`` lacks.
        """
        return MadeUpTrial(
            *(
                self._compute_height(part, weights, params)
                for part, weights in self._weights_of.items()
            )
        )

    def _weights(self, part: str) -> Mapping[str, float]:
        """Return the weights of the parameters, by name, in a part of the training: ``first``, ``soon`` or ``end``.

        The order of importance is random, but always the same for a part of this landscape. Each weight is `IMPORTANCE`
        times that of the next more important parameter, and the squares of the weights add up to 1.
        """
        shuffled = random.Random(f"{self._name} {part}").sample(
            self._parameters, len(self._parameters)
        )
        weights = {}
        for place, one in enumerate(shuffled):
            weights[one.name] = IMPORTANCE**place
        norm = math.sqrt(sum(weight**2 for weight in weights.values()))
        return {name: weight / norm for name, weight in weights.items()}

    def _compute_height(self, part: str, weights: Mapping[str, float], params: Params) -> float:
        """Return how bad a configuration is in a part of the training: the weighted sum of its values' effects.

        ``part`` is ``first``, ``soon`` or ``end``; ``weights`` are those of this part, by the parameter's name. The sum
        is over the drawn parameters that ``params`` has.
        """
        present = []
        for one in self._parameters:
            if one.name in params:
                present.append(one)
        return sum(
            weights[one.name] * self._compute_effect(part, one, params[one.name]) for one in present
        )

    def _compute_effect(self, part: str, parameter: Parameter, value: Value) -> float:
        """Return what a value adds to the loss in a part of the training, before it is weighted.

        The effect of a number grows with the square of its distance, on the scale of the domain, from a random best
        value; over the numbers that the domain draws, its mean is 0 and its variance 1. A choice has a random effect of
        its own, drawn from the standard normal distribution. Repeated calls return the same.
        """
        domain = parameter.domain
        name = f"{self._name} {part} {parameter.name}"
        if not isinstance(domain, Range):
            return random.Random(f"{name} {key(value)}").gauss(0.0, 1.0)
        # the best value, as a number from 0 to 1 such as `to_unit` returns
        best = random.Random(name).uniform(0.1, 0.9)
        # mean and variance of (u - best)**2 for a number u that is uniform between 0 and 1
        mean = 1 / 12 + (0.5 - best) ** 2
        variance = 1 / 180 + (0.5 - best) ** 2 / 3
        return ((to_unit(domain, value) - best) ** 2 - mean) / math.sqrt(variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalSetting:
    """How many trials are rehearsed, how long they train, and which epochs they report."""

    objective: Objective  # without constraints over metrics, which made-up trials do not report
    epochs: int  # of each trial
    reported: Sequence[int]  # the epochs that each trial reports; the last one is ``epochs``
    trials: int
    workers: int
    epoch_s: float = 1.0  # seconds of each epoch


class Rehearsal:
    """Trains the made-up trials of one sweep, several at once; all epochs take the same time."""

    def __init__(
        self,
        setting: RehearsalSetting,
        scheduler: Scheduler,
        landscapes: Sequence[Landscape] | random.Random,
    ) -> None:
        """Initialize with a new scheduler, which the rehearsal changes.

        ``landscapes`` has one for each objective, in their order, or is a random generator if there is no searcher.
        """
        self._setting = setting
        self._scheduler = scheduler
        self._landscapes = landscapes
        self._pausing = scheduler if isinstance(scheduler, Pausing) else None
        self._objectives = (setting.objective, *setting.objective.others)
        self._trials: list[Sequence[MadeUpTrial]] = []  # by trial, then by objective
        self._reports_of_trial: list[int] = []  # number of reports so far, by trial
        self._paused: list[int] = []
        # a heap of (time of the next report in epochs, number of this schedule, trial)
        self._running: list[tuple[int, int, int]] = []
        self._scheduled = 0  # number of reports scheduled so far
        self._now_epochs = 0  # epochs that a worker could have trained since the beginning
        self._searcher: Searcher | None = None
        self._reports_at_epoch: Counter[int] = Counter()

    @property
    def begun(self) -> int:
        """Number of trials that have begun; fewer than `RehearsalSetting.trials` if the searcher has no more."""
        return len(self._trials)

    @property
    def _present_s(self) -> float:
        """Simulated seconds since the beginning of the sweep."""
        return self._now_epochs * self._setting.epoch_s

    def run(self, searcher: Searcher | None) -> Counter[int]:
        """Simulate all trials and return by epoch how many reported it; call it only once.

        ``searcher`` suggests the configurations and observes the trials, which changes it. It is None if the landscapes
        are a random generator. Trials that are still paused when nothing else is left are not continued.
        """
        self._searcher = searcher
        while True:
            while len(self._running) < self._setting.workers:
                trial = self._next_trial()
                if trial is None:
                    break
                self._schedule_report(trial)
            if not self._running:
                return self._reports_at_epoch
            # the report that comes next in simulated time
            self._now_epochs, _, trial = heapq.heappop(self._running)
            if self._report(trial):
                self._schedule_report(trial)

    def _next_trial(self) -> int | None:
        """Return the next trial for a free worker; None if there is none now.

        It is the first paused trial that the scheduler lets resume, or else a new trial, which is started here. If
        there is neither and nothing is running, it is the paused trial that `Pausing.last` returns. A paused trial that
        is returned no longer counts as paused.
        """
        if self._pausing is not None:
            for trial in self._paused:
                if self._pausing.holds(trial) is None:
                    self._paused.remove(trial)
                    return trial
        number = len(self._trials)
        if number < self._setting.trials and self._start(number):
            return number
        if self._pausing is None or self._running:
            return None
        last = self._pausing.last()
        if last is not None:
            self._paused.remove(last)
        return last

    def _start(self, number: int) -> bool:
        """Start trial ``number``, the next one, and return True; False if the searcher has no configuration for it.

        The searcher and the scheduler observe the start. Without a searcher, the only parameter is ``epochs``, the
        maximum length.
        """
        # without a searcher, the results of made-up trials do not depend on parameters
        params: Params = {"epochs": self._setting.epochs}
        if self._searcher is not None:
            suggested = self._searcher.suggest(number)
            if suggested is None:
                return False
            params = suggested
        self._trials.append(
            [self._make_up_trial(place, params) for place in range(len(self._objectives))]
        )
        self._reports_of_trial.append(0)
        started = TrialStarted(
            trial=number,
            trial_id=str(number),
            params=params,
            seed=0,
            repeat=0,
            time=self._present_s,
        )
        self._let_observe(started)
        return True

    def _make_up_trial(self, place: int, params: Params) -> MadeUpTrial:
        """Return how good a trial is in the objective with index ``place`` (0 is the first of the sweep).

        Without landscapes, it is drawn from their random generator, from the standard normal distribution.
        """
        if isinstance(self._landscapes, random.Random):
            return MadeUpTrial(*(self._landscapes.gauss(0.0, 1.0) for _ in range(3)))
        return self._landscapes[place].trial(params)

    def _schedule_report(self, trial: int) -> None:
        """Schedule the next report of a trial for the time when it has trained the epochs up to that report.

        The trial then counts as running. It must have a report left. Reports at the same time come in the order in
        which they were scheduled.
        """
        reported = self._setting.reported
        done = self._reports_of_trial[trial]
        trained = reported[done - 1] if done else 0
        due = self._now_epochs + reported[done] - trained
        self._scheduled += 1  # orders reports that are due at the same time
        heapq.heappush(self._running, (due, self._scheduled, trial))

    def _report(self, trial: int) -> bool:
        """Count a trial's next report and let searcher and scheduler observe it; return whether the trial continues.

        If it does not, the trial is ended here: completed at its last epoch, else pruned or paused by the scheduler.
        """
        epochs = self._setting.epochs
        epoch = self._setting.reported[self._reports_of_trial[trial]]
        self._reports_of_trial[trial] += 1
        self._reports_at_epoch[epoch] += 1
        metrics = {}
        for objective, made_up in zip(self._objectives, self._trials[trial], strict=True):
            metrics[objective.name] = objective.from_loss(made_up.loss(epoch, epochs))
        report = EpochReported(
            trial=trial,
            epoch=epoch,
            metrics=metrics,
            time=self._present_s,
            time_s=self._setting.epoch_s,
        )
        why_pruned = self._let_observe(report)
        # a trial that has trained all epochs is neither pruned nor paused, so this is asked first
        if epoch == epochs:
            self._end(trial, Status.COMPLETED)
            return False
        if why_pruned is not None:
            self._end(trial, Status.PRUNED)
            return False
        if self._pausing is not None and self._pausing.holds(trial) is not None:
            self._paused.append(trial)
            self._end(trial, Status.INTERRUPTED)
            return False
        return True

    def _end(self, trial: int, status: Status) -> None:
        """Let searcher and scheduler observe that a trial has ended or, with the status interrupted, pauses."""
        waits = status is Status.INTERRUPTED
        reason = PAUSES if waits else ""
        ended = TrialEnded(
            trial=trial,
            status=status,
            reason=reason,
            time=self._present_s,
            waits=waits,
            facts=Facts(),
        )
        self._let_observe(ended)

    def _let_observe(self, event: TrialStarted | EpochReported | TrialEnded) -> str | None:
        """Let searcher, if any, and scheduler observe an event; return why the scheduler prunes the trial, or None."""
        if self._searcher is not None:
            self._searcher.observe(event)
        return self._scheduler.observe(event)
