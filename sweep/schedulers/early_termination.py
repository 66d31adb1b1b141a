"""The schedulers of `early_terminate`: ASHA, W&B's hyperband, the median stopping rule, and none.

The epochs at which each rule acts are in `sweep.space.early_terminate`, the rules that pause trials in `promotion`,
and those for several objectives in `non_dominated`.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from sweep.events import EpochReported, Event
from sweep.schedulers import Factory, Scheduler, describe_reason
from sweep.schedulers.lengths import RungScheduler
from sweep.space import early_terminate
from sweep.space.early_terminate import (
    Asha,
    EarlyTermination,
    Hyperband,
    Median,
    Own,
    Rule,
)
from sweep.space.objectives import Objective


class RankHeaps:
    """Numbers divided at a rank, such as the median, into the lower and the higher ones.

    ``below`` returns how many of n numbers lie below the rank; it must not decrease with n. Adding a number takes
    logarithmic time, and reading the two numbers next to the rank constant time.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._low: list[float] = []  # negated, so that the largest is on top
        self._high: list[float] = []

    def __len__(self) -> int:
        return len(self._low) + len(self._high)

    def add(self, number: float) -> None:
        """Add a number, and move numbers over the rank so that as many lie below it as ``below`` says."""
        # `_low` has the numbers below the rank, negated, so that the heap's first is the largest of them
        if self._low and number < -self._low[0]:
            heappush(self._low, -number)
        else:
            heappush(self._high, number)
        count_below = self._below(len(self))
        while len(self._low) > count_below:
            heappush(self._high, -heappop(self._low))
        while len(self._low) < count_below:
            heappush(self._low, -heappop(self._high))

    @property
    def largest_below(self) -> float | None:
        """The largest of the numbers below the rank; None if there are none."""
        return -self._low[0] if self._low else None

    @property
    def smallest_above(self) -> float | None:
        """The smallest of the numbers that are not below the rank; None if there are none."""
        return self._high[0] if self._high else None


class NoScheduler:
    """A scheduler that stops no trial."""

    def __init__(self, *ignored: object) -> None:
        """Ignore the rule, the objective and the epochs, which every scheduler is given."""

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return ()

    def observe(self, event: Event) -> str | None:
        return None


R = TypeVar("R", Asha, Hyperband, Median)


class _Stopping(RungScheduler, Generic[R]):
    """Base class of the schedulers that stop trials for good."""

    def __init__(self, rule: R, objective: Objective, epochs: int) -> None:
        super().__init__(epochs)
        self._rule: R = rule
        self._objective = objective

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return early_terminate.compute_decision_epochs(self._rule, epochs)

    def observe(self, event: Event) -> str | None:
        """Return why a trial stops, if it does after the epoch that this event reports; None if it goes on.

        None for all other events, of which only starts and ends are recorded. At the last epoch of a trial that is
        shorter than the longest ones, nothing is decided or recorded.
        """
        self.lengths.observe(event)
        if isinstance(event, EpochReported) and not self.lengths.ends_short_trial(event):
            return self._judge(event)
        return None

    def _judge(self, report: EpochReported) -> str | None:
        """Record an epoch, and return why its trial stops after it, or None."""
        raise NotImplementedError  # each subclass implements it


class AshaScheduler(_Stopping[Asha]):
    """Asynchronous successive halving that stops: Li et al., MLSys 2020, section 3.

    A trial stops at a rung if its score is below the quantile 1 - 1/eta of the trials that reached the rung before it.
    Decisions are those of Ray Tune's ``AsyncHyperBandScheduler`` except for its errors: in Ray, NaN passes every rung,
    a missed rung is decided later, with a later value, the last epoch counts as a stop, and brackets are drawn from
    NumPy's global state. Unlike Ray's, it does not sort a whole rung for each trial that reaches the rung.
    """

    def __init__(self, rule: Asha, objective: Objective, epochs: int) -> None:
        super().__init__(rule, objective, epochs)
        self._rungs: list[dict[int, _Rung]] = []  # one dict for each bracket
        for rungs in early_terminate.list_brackets(rule, epochs):
            self._rungs.append({epoch: _Rung(rule.eta) for epoch in rungs})
        self._shares = _compute_bracket_shares(rule, epochs)
        self._stopped: set[int] = set()

    def _judge(self, report: EpochReported) -> str | None:
        """Return why a trial stops, if it does at the rung to which this report belongs; None if it goes on.

        It stops if its loss is above the quantile 1/eta of the losses of the trials that reached the rung before it;
        the first one goes on. Only a report with a finite loss at a rung of the trial's bracket is judged and recorded.
        Later reports of a trial that was stopped are ignored.
        """
        if report.trial in self._stopped:
            return None
        loss = self._objective.constrained_loss(report.metrics)
        rungs = self._rungs[self.bracket(report.trial)]
        rung = rungs.get(report.epoch)
        if loss is None or rung is None:  # no finite loss, or no rung at this epoch
            return None
        score = -loss  # larger is better
        # before the trial's own score is added: it is compared with those before it
        cutoff = rung.cutoff()
        rung.scores.add(score)
        if cutoff is None or score >= cutoff:
            return None
        self._stopped.add(report.trial)
        return describe_reason(self._rule.type, self._objective, loss, report.epoch, -cutoff)

    def bracket(self, trial: int) -> int:
        """Return the index of a trial's bracket, from 0: drawn at random with the trial's number as the seed.

        The draw is weighted by the probabilities of `_compute_bracket_shares`. Repeated calls return the same. With one
        bracket, return 0.
        """
        if len(self._rungs) == 1:
            return 0
        return _draw_bracket(trial, self._shares)


class _Rung:
    """The scores that trials had at one rung (larger is better), and their quantile 1 - 1/eta, the cutoff.

    The quantile is interpolated linearly, like NumPy's percentile; it is None before the first score.
    """

    def __init__(self, eta: float) -> None:
        # times 100 / 100, because Ray passes a percentage to NumPy, and both must round alike
        self._quantile = (1 - 1 / eta) * 100 / 100
        # below the quantile lie the scores up to the one at or before its position in sorted order
        self.scores = RankHeaps(lambda count: math.floor((count - 1) * self._quantile) + 1)

    def cutoff(self) -> float | None:
        """Return the quantile 1 - 1/eta of the scores so far, interpolated linearly; None if there are none."""
        # the quantile lies between the scores on both sides of its position
        low = self.scores.largest_below
        high = self.scores.smallest_above
        if low is None or high is None:  # a single score counts as below, and is the cutoff
            return low
        index = (len(self.scores) - 1) * self._quantile  # in sorted order, from 0
        part = index - math.floor(index)
        # interpolated from the nearer one, as in NumPy, so that both round alike
        if part < 0.5:
            return low + (high - low) * part
        return high - (high - low) * (1 - part)


# half a millisecond each, and rehearsals ask repeatedly for the same trials
@lru_cache(maxsize=4096)
def _draw_bracket(trial: int, shares: tuple[float, ...]) -> int:
    """Draw the index of a bracket with the probabilities ``shares``; the trial's number is the seed."""
    return int(np.random.RandomState(trial % 2**32).choice(len(shares), p=shares))


def _compute_bracket_shares(rule: Asha, epochs: int) -> tuple[float, ...]:
    """Return the probability of each bracket, which is proportional to the exponential of its number of rungs.

    A rung at the last epoch is included, although nothing is decided there. The last epoch is ``rule.max_iter`` or, if
    that is not set or larger, ``epochs``. Each bracket has one rung less than the one before.
    """
    last = max(min(rule.max_iter or epochs, epochs), rule.min_iter)
    last_above = last * (1 + 1e-9)  # a little more, as log(243) / log(3) is 4.9999...
    factors_of_eta = math.log(last_above / rule.min_iter) / math.log(rule.eta)
    weights = []
    for bracket in range(rule.brackets):
        rungs_of_bracket = max(int(factors_of_eta - bracket + 1), 0)
        weights.append(math.exp(rungs_of_bracket))
    total = sum(weights)
    return tuple(weight / total for weight in weights)


class HyperbandScheduler(_Stopping[Hyperband]):
    """The early termination that W&B sweeps call hyperband; Ray's scheduler of that name is a different rule.

    A trial stops if it is not among the best 1/eta of all trials that have reached a bracket. With n values at a
    bracket, the cutoff is the value of rank n // eta, counted from 0; ties continue.

    Source: W&B's documentation of ``early_terminate``, and wandb/sweeps, hyperband_stopping.py. Two things differ, so
    that replaying a log gives the same decisions: a bracket considers the epoch of its number, and it decides once,
    when the trial reports that epoch (W&B decides again whenever it polls).
    """

    def __init__(self, rule: Hyperband, objective: Objective, epochs: int) -> None:
        super().__init__(rule, objective, epochs)

        def count_best(count: int) -> int:
            """Return how many of ``count`` losses are below the cutoff."""
            return int(count / rule.eta)

        brackets = early_terminate.compute_decision_epochs(rule, epochs)
        # by the epoch of a bracket: the losses that trials had there, divided at the rank of the cutoff
        self._reached = {epoch: RankHeaps(count_best) for epoch in brackets}
        self._best: dict[int, float] = {}  # by trial: its lowest loss so far

    def _judge(self, report: EpochReported) -> str | None:
        """Return why a trial stops at the bracket that it has reached by this report; None if it continues.

        It stops if its best loss so far, or its present one if the rule is strict, is above the cutoff. With n losses
        reported at this epoch so far, its own included, the cutoff is the one of rank n // eta, counted from 0. Reports
        without a finite loss are ignored.
        """
        loss = self._objective.constrained_loss(report.metrics)
        if loss is None:
            return None
        # recorded at each epoch, though only brackets decide
        best = min(loss, self._best.get(report.trial, loss))
        self._best[report.trial] = best
        losses_at_bracket = self._reached.get(report.epoch)
        if losses_at_bracket is None:  # there is no bracket at this epoch
            return None
        losses_at_bracket.add(loss)
        # the loss of rank n // eta: as many losses rank below it; there always is one, because eta is above 1
        cutoff = losses_at_bracket.smallest_above
        judged = loss if self._rule.strict else best
        if cutoff is None or judged <= cutoff:
            return None
        return describe_reason(self._rule.type, self._objective, judged, report.epoch, cutoff)


@dataclass(slots=True)
class _TrialState:
    """The losses of a trial so far, as the median rule needs them."""

    best: float
    last: int = 0
    count: int = 0  # epochs in its mean
    mean: float = 0.0


class MedianScheduler(_Stopping[Median]):
    """The median stopping rule: Golovin et al., KDD 2017, section 3.2.2.

    A trial stops if its best loss is above the median of the others' running means at the same epoch. A mean begins at
    the first decision epoch. Decisions are those of Ray Tune's ``MedianStoppingRule``, which averages all epochs of all
    trials for each report.
    """

    def __init__(self, rule: Median, objective: Objective, epochs: int) -> None:
        super().__init__(rule, objective, epochs)
        judged = early_terminate.compute_decision_epochs(rule, epochs)
        # The running means of all trials at each decision epoch. From the first one on, each epoch but the last is one.
        self._means = {epoch: RankHeaps(_count_below_median) for epoch in judged}
        self._runs: dict[int, _TrialState] = {}
        self._stopped: set[int] = set()

    def _judge(self, report: EpochReported) -> str | None:
        """Return why a trial stops after the epoch that it has reported; None if it continues.

        It stops if its best loss so far is above the median of the running means of the other trials at this epoch. A
        running mean is that of a trial's losses from the first decision epoch to this one. Nothing is decided before
        the first decision epoch, at the last epoch, or if fewer than `Median.min_trials` others have come to this
        epoch. Reports without a finite loss, and of a trial that was stopped, are ignored.
        """
        if report.trial in self._stopped:
            return None
        loss = self._objective.constrained_loss(report.metrics)
        if loss is None:
            return None
        run = self._runs.setdefault(report.trial, _TrialState(loss))
        run.best = min(run.best, loss)
        # The trial's own mean is not among them yet.
        means_of_others = self._means.get(report.epoch)
        if means_of_others is None:
            return None  # nothing is decided at this epoch, and its loss does not enter the trial's mean
        if len(means_of_others) >= self._rule.min_trials:
            median = _compute_median(means_of_others)
        else:
            median = None
        self._update_mean(run, report.epoch, loss)  # after the median, which must not include it
        if median is None or run.best <= median:
            return None
        self._stopped.add(report.trial)
        return describe_reason(self._rule.type, self._objective, run.best, report.epoch, median)

    def _update_mean(self, run: _TrialState, epoch: int, loss: float) -> None:
        """Include the loss of a decision epoch in the mean of the trial ``run``, and add its mean there to `_means`.

        If the trial had no finite loss at decision epochs since its last one, its mean until then is added at these.
        """
        if run.count:  # it has been at a decision epoch, `run.last`, before
            # the rule decides at every epoch from the first one on, so there are means for all of these
            for missed in range(run.last + 1, epoch):
                self._means[missed].add(run.mean)
        run.last = epoch
        run.count += 1
        run.mean += (loss - run.mean) / run.count  # exact if all are equal, unlike a sum
        self._means[epoch].add(run.mean)


def _count_below_median(count: int) -> int:
    """Return how many of ``count`` numbers lie below their median, without the middle one, for `RankHeaps`."""
    return count // 2


def _compute_median(means: RankHeaps) -> float | None:
    """Return the median of the numbers in ``means``, which are divided at it; None if there are none.

    ``means`` must have been made with `_count_below_median`.
    """
    # of an odd count, the middle number is the smallest that is not below
    if means.largest_below is None or means.smallest_above is None or len(means) % 2:
        return means.smallest_above
    return (means.largest_below + means.smallest_above) / 2


def build_scheduler(
    rule: EarlyTermination,
    objective: Objective,
    epochs: int,
    own: Factory | None = None,
    default_epochs: int | None = None,
) -> Scheduler:
    """Return the scheduler of a rule, for trials of at most ``epochs`` epochs that are compared by an objective.

    The scheduler is a `Scheduler`, or also a `Pausing` one if the rule pauses trials. ``own`` is the callable that a
    user's own rule (`Own`) names; it is called with the objective and the epochs. ``default_epochs`` are the epochs of
    a trial without a parameter ``epochs``; None if they are ``epochs``. A user's own scheduler does not get them.
    Raises ValueError if a user's own rule comes without ``own``, or if ``objective`` has `others` and the rule compares
    trials by one objective only.
    """
    if isinstance(rule, Own):
        if own is None:
            raise ValueError(f"{rule.target} is not loaded")
        return own(objective, epochs)
    if objective.others:
        target = rule.scheduler_of_several  # "" if there is none
    else:
        target = rule.scheduler
    if not target:
        raise ValueError(f"{rule.type} compares trials by one objective")
    make_scheduler: Callable[[Rule, Objective, int], Scheduler] = pkgutil.resolve_name(target)
    scheduler = make_scheduler(rule, objective, epochs)
    if default_epochs is not None and isinstance(scheduler, RungScheduler):
        scheduler.lengths.default_epochs = default_epochs
    return scheduler
