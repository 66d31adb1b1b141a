"""Estimates how many epochs trials will train under a stopping rule, and how long that takes.

How long trials survive is the product-limit estimate (Kaplan, Meier, JASA 53, 1958): of the trials that reached an
epoch, the share that continued, epoch after epoch. Trials that still train count as far as they came, so that trials
which ended early do not bias it.

A stopping rule lets the first trials pass a rung and compares later ones with them. The survival so far therefore says
little about the future: after a twentieth of a sweep, nearly all trials have survived. Hence the rule itself is
rehearsed with simulated trials after the real ones.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from sweep.events import EpochReported, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.schedulers import Scheduler
from sweep.space.early_terminate import EarlyTermination, compute_decision_epochs
from sweep.space.objectives import Objective


@dataclass(frozen=True, slots=True)
class Prospect:
    """Expected epochs and survivors among open and future trials."""

    left: Sequence[float]  # expected remaining epochs of each open trial
    whole: float  # expected number of open trials that will train all their epochs
    waiting_left: float  # expected epochs of a trial that has not begun
    waiting_whole: float  # the share of these that will train all their epochs


@dataclass(frozen=True, slots=True)
class Survival:
    """The share of all trials that continue after an epoch, as steps (epoch, share) with ascending epochs.

    A share holds from the epoch of its step up to that of the next one; before the first step, it is 1.
    """

    steps: tuple[tuple[int, float], ...]

    def after(self, epoch: float) -> float:
        """Return the share of trials that continue after an epoch: of all that began, not of those that reached it.

        Epoch 0 is the start; the share after it is below 1 if trials ended before their first epoch.
        """
        share = 1.0
        for step, value in self.steps:
            if step > epoch:
                break
            share = value
        return share

    def share(self, done: int, of: float) -> float:
        """Return the probability that a trial which continues after ``done`` epochs will train all ``of`` epochs.

        It is 1 if it has trained them, and never 0.
        """
        if of > done:
            return self.after(of - 1) / self.after(done)
        return 1.0

    def epochs(self, done: int, of: float) -> float:
        """Return how many further epochs, up to ``of``, a trial that continues after ``done`` epochs is to train.

        That is the expected number; 0 if it has trained all ``of`` epochs.
        """
        if of <= done:
            return 0.0
        share_at_start = self.after(done)
        # the area below the steps from ``done`` to ``of``: each epoch counts with the share that trains it
        area = 0.0  # up to ``epoch``, from which on ``share`` holds
        share, epoch = share_at_start, done
        for step, share_after in self.steps:
            if step <= done:
                continue
            if step >= of:
                break
            area += share * (step - epoch)
            share, epoch = share_after, step
        area += share * (of - epoch)
        return area / share_at_start

    def prospect(self, going: Sequence[tuple[int, int]], epochs: float) -> Prospect:
        """Return how far open and new trials are expected to train, if they end early as often as those so far.

        Arguments:
            going: epochs done and epochs to train of each open trial, as pairs.
            epochs: epochs to train of each new trial; a mean if new trials differ in length.
        """
        whole = sum(self.share(done, of) for done, of in going)
        return Prospect(
            [self.epochs(*one) for one in going],
            whole,
            self.epochs(0, epochs),
            self.share(0, epochs),
        )


def estimate_survival(reached: Mapping[int, int], lost: Mapping[int, int]) -> Survival:
    """Estimate the share of all trials that continue after each epoch.

    By epoch, ``reached`` has the number of trials that trained it, and ``lost`` the number that ended early after it;
    epoch 0 in ``lost`` is before the first one. Missing epochs count 0. A share is never 0, even if all trials ended
    there. Without losses, all trials continue.
    """
    steps = []
    share = 1.0
    for epoch in sorted(epoch for epoch, count in lost.items() if count > 0):
        gone = lost[epoch]
        if epoch:
            came = reached.get(epoch, 0)
        else:  # those that trained the first epoch and those that ended before it
            came = reached.get(1, 0) + gone
        came = max(came, gone)
        # if all ended, a small share instead of 0: the sample is still small
        if came > gone:
            share *= (came - gone) / came
        else:
            share *= 1 / (came + 1)
        steps.append((epoch, share))
    return Survival(tuple(steps))


def estimate_seconds_left(there: Sequence[float], waiting: int, each_s: float, slots: int) -> float:
    """Return the seconds until workers have finished their present trials and then all waiting ones.

    Arguments:
        there: remaining seconds of each running trial.
        waiting: number of waiting trials. Each worker that becomes free takes the next one.
        each_s: seconds of a waiting trial.
        slots: number of workers, at least 1. There are more if more trials run; those without one are free.
    """
    # of each worker: the seconds until it is free
    ends = sorted(there) + [0.0] * max(slots - len(there), 0)
    # In a round, each worker trains one trial. The first rounds are added at once; in the last ones, the order in which
    # workers become free matters.
    rounds = max(waiting // len(ends) - 2, 0)
    ends = [end + rounds * each_s for end in ends]
    heapq.heapify(ends)
    for _ in range(waiting - rounds * len(ends)):
        heapq.heapreplace(ends, ends[0] + each_s)
    return max(ends, default=0.0)


REPORTS = 2_000  # epochs in all rehearsals of one estimate, which take about 10 ms
REHEARSALS = 50
# total fall of a simulated loss; equals the range of the trials' losses, on which the median rule's means depend
GAIN = 1.0
MOST = 1000  # maximum number of ended trials, and of future trials, in a rehearsal; more are scaled down


def simulate_reports(
    scheduler: Scheduler,
    objective: Objective,
    trial: int,
    loss: float,
    epochs: Sequence[int],
    *,
    epoch_s: float,
    gain: float = 0.0,
    of: int | None = None,
) -> Iterator[int]:
    """Simulate a trial that a scheduler observes, and yield each epoch until the scheduler stops the trial.

    Before each epoch is yielded, the scheduler has observed the earlier ones; the end is observed when the result is
    used up, and nothing before the first epoch is asked for. The trial, with the number ``trial``, has the loss
    ``loss + gain / epoch``, so its distance to other trials is constant. Each epoch takes ``epoch_s`` seconds.
    ``epochs``, not empty, are those that it reports, ascending; at the last one, it is complete, whatever the scheduler
    says. ``of`` is the length of the trial, as the scheduler observes it; None if no trial is longer.
    """
    params: Params = {}
    if of is not None:  # schedulers find a trial's length in this parameter
        params = {"epochs": of}
    scheduler.observe(
        TrialStarted(trial=trial, trial_id=str(trial), params=params, seed=0, repeat=0, time=0.0)
    )
    status, reason = Status.COMPLETED, ""
    for epoch in epochs:
        yield epoch
        metrics = {objective.name: objective.from_loss(loss + gain / epoch)}
        report = EpochReported(
            trial=trial, epoch=epoch, metrics=metrics, time=epoch * epoch_s, time_s=epoch_s
        )
        stopped = scheduler.observe(report)
        if stopped is not None and epoch < epochs[-1]:
            status, reason = Status.PRUNED, stopped
            break
    scheduler.observe(
        TrialEnded(trial=trial, status=status, reason=reason, time=0.0, facts=Facts())
    )


class Foresight:
    """Predicts how far trials will train, by rehearsing the rest of the sweep under its stopping rule.

    It rehearses again whenever there are 5 % more events. Epochs of a trial are pairs (epochs trained, epochs to
    train); those of simulated trials take as long as the real ones on average.
    """

    def __init__(
        self,
        rule: EarlyTermination,
        objective: Objective,
        lengths: Sequence[int],
        max_length: int | None = None,
    ) -> None:
        """Initialize without any trials.

        Arguments:
            rule: the rule that stops trials.
            objective: what the rule compares trials by.
            lengths: epochs of the simulated new trials, which take them in turn; at least one.
            max_length: the largest number of epochs that a trial may train; None: the largest of ``lengths``.
        """
        self._rule = rule
        self._objective = objective
        self._lengths = [max(length, 1) for length in lengths]
        self._max_length = max(self._lengths) if max_length is None else max_length
        self._decisions = compute_decision_epochs(rule, self._max_length)
        self._losses: dict[int, float] = {}  # of trials at the rule's first decision epoch
        # of ended trials: epochs trained and epochs to train
        self._ended: dict[int, tuple[int, int]] = {}
        self._timed = 0  # epochs, and the seconds that they took together
        self._timed_s = 0.0
        self._events = 0  # that concern the rule, so far
        self._rehearsed = 0  # `_events` at the last rehearsal
        self._expected_ends: dict[int, float] = {}  # the epoch that each trial is expected to reach
        self._prospect: Prospect | None = None
        # by length: the epochs that each simulated new trial has trained
        self._trained: dict[int, list[int]] = {}

    def hear(self, trial: int, epoch: int, loss: float | None, epoch_s: float) -> None:
        """Record an epoch of a trial, the loss after it (None if it has no objective), and how long it took.

        The loss only counts at the epochs at which the rule decides.
        """
        self._timed += 1
        self._timed_s += epoch_s
        if loss is not None and epoch in self._decisions:
            self._events += 1
            if epoch == self._decisions[0]:  # simulated losses are in the order of these
                self._losses[trial] = loss

    def end(self, trial: int, epochs: tuple[int, int]) -> None:
        """Record that a trial has ended for good; ``epochs`` is the pair (epochs trained, epochs to train)."""
        self._events += 1
        self._ended[trial] = epochs

    def reopen(self, trial: int) -> None:
        """Record that an ended trial is open again, because it is retried. Raises KeyError if its end is not known."""
        self._events += 1
        del self._ended[trial]

    def prospect(
        self, going: Mapping[int, tuple[int, int]], waiting: int, lost: Counter[int]
    ) -> Prospect:
        """Return how far the open trials ``going`` and ``waiting`` new ones are expected to train.

        ``going`` has, by trial, the pair (epochs trained, epochs to train); the result has them in this order. ``lost``
        counts the failed trials by their last epoch; the same share of future trials is assumed to fail. Until there
        are 5 % more events than at the last rehearsal, its result is used, with ``left`` less the epochs trained since.
        A trial that began since then counts as a new one in it.
        """
        if self._prospect is None or self._events > self._rehearsed * 1.05:
            self._rehearsed = self._events
            self._prospect = self._rehearse(going, waiting, lost)
            self._expected_ends = {}
            for (trial, (done, _)), left_epochs in zip(
                going.items(), self._prospect.left, strict=True
            ):
                self._expected_ends[trial] = done + left_epochs
        left = []
        for trial, (done, length) in going.items():
            end = self._expected_ends.get(trial)
            if end is None:  # it began after the rehearsal
                end = self._predict_end(length)
            left.append(max(end - done, 0.0))
        return replace(self._prospect, left=left)

    def _predict_end(self, length: int) -> float:
        """Return the epoch that a new trial of ``length`` epochs is expected to reach, by the last rehearsal.

        It is the mean over the simulated new trials of the same length or, if there were none, ``length``.
        """
        trained = self._trained.get(length)
        return fmean(trained) if trained else length

    def _rehearse(
        self, going: Mapping[int, tuple[int, int]], waiting: int, lost: Counter[int]
    ) -> Prospect:
        """Simulate the rest of the sweep under its rule several times; return the means of the results.

        The arguments are those of `prospect`: ``going`` has the pair (epochs trained, epochs to train) of each open
        trial, ``waiting`` is the number of new trials, and ``lost`` counts the failed trials by their last epoch, the
        share of which is assumed for new trials as well. Each time, all trials get other values of the objective (their
        losses), drawn at random; those of real trials keep the order of the observed ones.
        """
        # It imports NumPy, which a live view does not need at import
        from sweep.schedulers.early_termination import build_scheduler

        numbers = random.Random(0)
        # A sample of the ended trials is enough: every n-th of them, at most `MOST`.
        sample = dict([*self._ended.items()][:: len(self._ended) // MOST + 1])
        real = sample | {**going}
        # one new trial at least, because the result is about a new trial in any case
        new = min(max(waiting, 1), MOST)
        reports = (len(real) + new) * max(len(self._decisions), 1)
        rehearsals = max(min(REHEARSALS, REPORTS // reports), 1)
        started = len(self._ended) + len(going)  # the new trials are numbered from here
        failed = [*lost.elements()]  # the last epoch of each failed trial
        left = dict.fromkeys(going, 0.0)  # remaining epochs of each open trial, as a mean
        # open and new trials that train all their epochs, in all rehearsals
        whole = new_whole = 0
        self._trained = {}  # an attribute, because `_predict_end` needs it until the next rehearsal
        for _ in range(rehearsals):
            scheduler = build_scheduler(self._rule, self._objective, self._max_length)
            losses = self._draw_losses(real, numbers)
            self._replay(scheduler, real, losses)
            # the rest of the open trials
            for trial, (done, length) in going.items():
                epochs = range(done + 1, length + 1)
                reached = self._train(scheduler, trial, losses[trial], epochs, length)
                left[trial] += max(reached - done, 0) / rehearsals
                whole += reached >= length
            # the new trials
            for trial in range(started, started + new):
                length = self._lengths[trial % len(self._lengths)]
                last = _draw_last_epoch(length, failed, started, numbers)
                epochs = range(1, last + 1)
                reached = self._train(scheduler, trial, numbers.random(), epochs, length)
                self._trained.setdefault(length, []).append(reached)
                new_whole += reached >= length
        simulated = new * rehearsals
        new_epochs = sum(map(sum, self._trained.values()))
        return Prospect(
            [*left.values()],
            whole / rehearsals,
            new_epochs / simulated,
            new_whole / simulated,
        )

    def _replay(
        self,
        scheduler: Scheduler,
        trials: Mapping[int, tuple[int, int]],
        losses: Mapping[int, float],
    ) -> None:
        """Let a rule observe the epochs that real trials have trained so far.

        ``trials`` has the pair (epochs trained, epochs to train) by trial. The trials train in the order of their
        ``losses``, the worst first, so that the rule stops none of them.
        """
        for trial in sorted(trials, key=lambda trial: -losses[trial]):
            done, length = trials[trial]
            self._train(scheduler, trial, losses[trial], range(1, done + 1), length)

    def _train(
        self, scheduler: Scheduler, trial: int, loss: float, epochs: range, length: int
    ) -> int:
        """Train a simulated trial under a rule; return the last epoch in ``epochs`` that it reports, 0 if it is empty.

        The rule, ``scheduler``, may stop it earlier. The trial only reports those of ``epochs`` at which the rule
        decides, and the last of them, after which it ends. ``length`` is the trial's own, which may be beyond.
        """
        if not epochs:
            return 0
        reports = [*(epoch for epoch in self._decisions if epoch in epochs[:-1]), epochs[-1]]
        epoch_s = self._timed_s / max(self._timed, 1)
        simulated = simulate_reports(
            scheduler, self._objective, trial, loss, reports, epoch_s=epoch_s, gain=GAIN, of=length
        )
        return max(simulated, default=0)

    def _draw_losses(
        self, trials: Mapping[int, tuple[int, int]], numbers: random.Random
    ) -> dict[int, float]:
        """Return a random loss from 0 to 1 for each trial.

        Those of trials whose loss at the rule's first decision epoch is known have the same order as these losses.
        """
        drawn = {trial: numbers.random() for trial in trials}
        known = sorted(
            (trial for trial in trials if trial in self._losses), key=self._losses.__getitem__
        )
        # the same draws, exchanged among the trials whose losses are known so that they have the order of these
        return drawn | dict(zip(known, sorted(drawn[trial] for trial in known), strict=True))


def _draw_last_epoch(
    length: int, failed: Sequence[int], started: int, numbers: random.Random
) -> int:
    """Return the last epoch that a simulated trial of ``length`` epochs trains if its rule does not stop it.

    ``failed`` has the last epoch of each failed trial, and ``started`` is the number of all real trials. The simulated
    trial fails with the same probability as these, after as many epochs as one of them.
    """
    # with the probability len(failed) / started; there may be no real trials yet
    fails = numbers.random() * started < len(failed)
    if not fails:
        return length
    return min(numbers.choice(failed), length)
