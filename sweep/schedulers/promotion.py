"""Schedulers that pause trials at rungs and resume the best later: ASHA with promotion, PASHA and freeze-thaw.

Decisions are made when an event is observed, not when a worker becomes free, so that a sweep that was killed decides
the same. As a report frees one worker and mostly resumes at most one trial, this hardly changes the algorithms. Several
trials resume when PASHA raises its highest rung, and when a capped rung has had room to spare.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from sweep.contract import count_parts
from sweep.events import EpochReported, Event, Status, TrialEnded
from sweep.progress import get_share
from sweep.schedulers import describe_reason, describe_standing
from sweep.schedulers.lengths import RungScheduler
from sweep.space import early_terminate
from sweep.space.early_terminate import AshaPromotion, FreezeThaw, Pasha
from sweep.space.objectives import INFEASIBLE, Objective

OPTIMISM = 0.5  # standard deviations that are added to a predicted gain
COMPARED = 100  # maximum number of trials of a rung, best first, whose curves are compared with that of a new one


@dataclass(frozen=True, slots=True)
class _Pause:
    """The epoch at which a trial is paused, its loss at that epoch, and the reason."""

    epoch: int
    loss: float
    why: str = field(default="", compare=False)


class PausingScheduler(RungScheduler):
    """Base class of the schedulers that pause trials.

    When no trial is left to start, the best paused trial of the highest rung resumes until ``min_completed`` trials
    have completed; then the other paused trials are pruned. If trials differ in length, only those that train beyond
    the last rung resume in this way and count as completed, as long as one of them is paused.
    """

    def __init__(
        self,
        kind: str,
        objective: Objective,
        rungs: Sequence[int],
        epochs: int,
        min_completed: int = 1,
    ) -> None:
        super().__init__(epochs)
        self._kind, self._objective = kind, objective
        self._min_completed = min_completed
        self._rungs = tuple(rungs)
        self._paused: dict[int, _Pause] = {}  # paused trials
        # of trials with minutes that have not ended, the used share of the budget at their last reports
        self._used_shares: dict[int, float] = {}
        # losses of trials that have not ended, at their last epochs
        self._last_loss: dict[int, float] = {}
        self._best: float | None = None  # the lowest loss of those that completed
        self._completed = 0
        self._completed_beyond = 0  # of these, the trials that trained beyond the last rung

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return tuple(rung for rung in self._rungs if rung < epochs)

    def observe(self, event: Event) -> None:
        match event:
            case EpochReported(trial=trial, epoch=epoch):
                self._record_resumption(event)
                loss = self._objective.constrained_loss(event.metrics)
                if loss is not None:
                    self._last_loss[trial] = loss
                    if not self.lengths.ends_short_trial(event):
                        self._process_epoch(trial, epoch, loss)
            case TrialEnded(trial=trial, status=status) if status is not Status.INTERRUPTED:
                self._paused.pop(trial, None)
                self._used_shares.pop(trial, None)
                loss = self._last_loss.pop(trial, None)
                if status is Status.COMPLETED and loss is not None:
                    self._count_completed(trial, loss)
                self._process_end(trial)
            case _:
                pass
        self.lengths.observe(event)  # last, because it forgets the length of a trial that ends

    def _count_completed(self, trial: int, loss: float) -> None:
        """Count a trial that has completed, and keep its last loss if it is the lowest so far."""
        self._completed += 1
        if self._trains_beyond_rungs(trial):
            self._completed_beyond += 1
        if self._best is None:
            self._best = loss
        else:
            self._best = min(loss, self._best)

    def holds(self, trial: int) -> str | None:
        pause = self._paused.get(trial)
        return None if pause is None else pause.why

    def last(self) -> int | None:
        # the best at the highest rung; of equal ones, the one with the lowest number
        def order(trial: int) -> tuple[int, float, int]:
            pause = self._paused[trial]
            return -pause.epoch, pause.loss, trial

        return min(self._list_candidates(), key=order, default=None)

    def dropped(self, *, rest: bool) -> Mapping[int, str]:
        if not rest:  # any paused trial may still continue
            return {}
        dropped = {}
        for trial, pause in self._paused.items():
            dropped[trial] = self._describe_pause(pause)
        return dropped

    def _list_candidates(self) -> list[int]:
        """Return the paused trials of which one resumes when no other trial is left; [] once enough have completed.

        They meet the constraints. If any of them train beyond the last rung, only these are returned, until enough such
        trials have completed. If none do, all are returned, until enough trials of any length have completed.
        """
        if self._completed_beyond >= self._min_completed:
            return []
        # losses from `INFEASIBLE` on encode violated constraints
        feasible = [trial for trial, pause in self._paused.items() if pause.loss < INFEASIBLE]
        beyond = [trial for trial in feasible if self._trains_beyond_rungs(trial)]
        if beyond:
            return beyond
        if self._completed >= self._min_completed:
            return []
        return feasible

    def _trains_beyond_rungs(self, trial: int) -> bool:
        """Return whether a trial is long enough to train beyond the last rung; True if there are no rungs."""
        return not self._rungs or self.lengths.trains_beyond(trial, self._rungs[-1])

    def _record_resumption(self, event: EpochReported) -> None:
        """Record that the trial of an event does not pause any more, as it has trained on.

        With minutes, one report may be several events, one for each unit (`sweep.progress.UnitReports`), all with the
        same share of the budget. Those after the rung do not say that the trial was resumed.
        """
        share = get_share(event.measures)  # of the budget; None if minutes are not limited
        if share is not None:
            # of the same report as the event before
            if self._used_shares.get(event.trial) == share:
                return
            self._used_shares[event.trial] = share
        self._paused.pop(event.trial, None)

    def _process_epoch(self, trial: int, epoch: int, loss: float) -> None:
        """Decide after an epoch with a finite loss whether the trial pauses and which paused trials may resume.

        ``loss`` is above `INFEASIBLE` if the trial violates the constraints.
        """
        raise NotImplementedError  # each subclass implements it

    def _process_end(self, trial: int) -> None:
        """Decide after the end of a trial which paused trials may resume; by default, none."""

    def _pause(self, trial: int, epoch: int, loss: float) -> None:
        self._paused[trial] = _Pause(
            epoch, loss, describe_standing(self._kind, self._objective, loss, epoch)
        )

    def _describe_pause(self, pause: _Pause) -> str:
        """Return why a paused trial, with this pause, will never continue, in one line for the user."""
        raise NotImplementedError  # each subclass implements it


class PromotionScheduler(PausingScheduler):
    """Asynchronous successive halving that promotes: Li et al., MLSys 2020, algorithm 2.

    A trial pauses at each rung and continues once it is among the best 1/eta of all trials that reached the rung, which
    may be at once. Trials that have ended still count at the rungs that they reached. If the rule is capped, a trial
    continues only while fewer than 1/eta of the trials at the rung have continued from it.
    """

    def __init__(self, rule: AshaPromotion | Pasha, objective: Objective, epochs: int) -> None:
        self._capped, min_completed = False, 1
        if isinstance(rule, AshaPromotion):
            self._capped = rule.is_capped(several=False)
            min_completed = rule.min_completed
        super().__init__(
            rule.type,
            objective,
            early_terminate.compute_decision_epochs(rule, epochs),
            epochs,
            min_completed,
        )
        self._eta = rule.eta
        # by rung, (loss, trial) of all that reached it, best first
        self._ranking: dict[int, list[tuple[float, int]]] = {rung: [] for rung in self._rungs}
        # number of trials that have continued from each rung
        self._promoted = dict.fromkeys(self._rungs, 0)

    def _process_epoch(self, trial: int, epoch: int, loss: float) -> None:
        if epoch not in self._ranking:  # it is no rung
            return
        self._pause(trial, epoch, loss)
        insort(self._ranking[epoch], (loss, trial))
        if not self._allows_promotion(epoch):
            return
        if self._capped:  # trials among the best may have ended, which leaves room for others
            ranks: Iterable[int] = range(self._count_promotable(epoch))
        else:  # the new trial, or the last of the best 1/eta, for which it has made room; others were promoted before
            ranks = {
                bisect_left(self._ranking[epoch], (loss, trial)),
                self._count_promotable(epoch) - 1,
            }
        for rank in ranks:
            self._promote(epoch, rank)

    def _allows_promotion(self, epoch: int) -> bool:
        """Return whether the rule lets trials continue beyond the rung at this epoch; always True in this class."""
        return True

    def _count_promotable(self, epoch: int) -> int:
        """Return how many trials may continue from the rung at this epoch.

        That is 1/eta of those that reached it, rounded down. Those that have continued already are included.
        """
        return count_parts(len(self._ranking[epoch]), self._eta)

    def _promote(self, epoch: int, rank: int) -> None:
        """Let the trial with this rank (from 0) at a rung resume, if it is paused there and may continue.

        Do nothing if the rank is not among the best 1/eta, if the rule is capped and as many have continued already, or
        if the trial does not meet the constraints.
        """
        room = self._count_promotable(epoch)
        if not 0 <= rank < room:
            return
        if self._capped and self._promoted[epoch] >= room:
            return
        _, trial = self._ranking[epoch][rank]
        pause = self._paused.get(trial)
        # without a pause at this rung, the trial has continued already or has ended
        if pause is not None and pause.epoch == epoch and pause.loss < INFEASIBLE:
            del self._paused[trial]
            self._promoted[epoch] += 1

    def _describe_pause(self, pause: _Pause) -> str:
        room = self._count_promotable(pause.epoch)
        if not room:
            where = describe_standing(self._kind, self._objective, pause.loss, pause.epoch)
            return f"{where}, from where too few came for one to go on"
        cutoff, _ = self._ranking[pause.epoch][room - 1]
        return describe_reason(self._kind, self._objective, pause.loss, pause.epoch, cutoff)


class PashaScheduler(PromotionScheduler):
    """Progressive ASHA: Bohdal et al., ICLR 2023, algorithm 1 and sections 4.1 to 4.3.

    No trial continues from the highest rung, which is the second one at first. When a trial reaches it, the rung is
    raised by one if its trials rank differently than they did at the rung before, except for noise. A trial may take
    the rank of another one if their losses at the rung before differed by at most epsilon. Epsilon is given by the
    rule, or is the 90th percentile of the differences of curves that have crossed twice (section 4.3).
    """

    def __init__(self, rule: Pasha, objective: Objective, epochs: int) -> None:
        super().__init__(rule, objective, epochs)
        self._given_epsilon = rule.epsilon
        # index of the rung from which no trial continues; the number of rungs if all may
        self._highest = 1
        self._curves: dict[int, list[float]] = {}  # losses epoch by epoch, by trial
        self._noises: list[float] = []  # differences of curves that have crossed twice

    def _process_epoch(self, trial: int, epoch: int, loss: float) -> None:
        self._curves.setdefault(trial, []).append(loss)
        is_at_highest = self._highest < len(self._rungs) and epoch == self._rungs[self._highest]
        if is_at_highest:
            # before the trial is added to those of the rung, with which it is compared
            self._compare(trial)
        super()._process_epoch(trial, epoch, loss)
        if is_at_highest and not self._is_stable():
            self._highest += 1
            # those that waited because the rung was the highest one
            for rank in range(self._count_promotable(epoch)):
                self._promote(epoch, rank)

    def _allows_promotion(self, epoch: int) -> bool:
        return self._highest >= len(self._rungs) or epoch < self._rungs[self._highest]

    def _is_stable(self) -> bool:
        """Return whether the trials at the highest rung have the same ranks as at the rung before, except for noise.

        Trials that have no loss at the rung before are left out. Two ranks count as the same if the losses that trials
        of these ranks had at the rung before differ by at most `epsilon`.
        """
        losses_before = {}
        for loss, trial in self._ranking[self._rungs[self._highest - 1]]:
            losses_before[trial] = loss
        now = []  # trials by their present ranks
        for _, trial in self._ranking[self._rungs[self._highest]]:
            if trial in losses_before:
                now.append(trial)
        by_rank_before = sorted(losses_before[trial] for trial in now)
        epsilon = self.epsilon
        # each trial's loss before, and the loss that then had the rank that the trial has now
        return all(
            abs(losses_before[trial] - loss) <= epsilon
            for trial, loss in zip(now, by_rank_before, strict=True)
        )

    @property
    def epsilon(self) -> float:
        """The difference of losses up to which a trial may take the rank of another one; 0 as long as it is unknown.

        It is that of the rule, if it has one. Otherwise it is the 90th percentile of the noise measured so far.
        """
        if self._given_epsilon is not None:
            return self._given_epsilon
        if not self._noises:
            return 0.0
        return float(np.percentile(self._noises, 90))

    def _compare(self, trial: int) -> None:
        """Record the noise (`_measure_noise`) between a trial's curve and those of the best trials at the highest rung.

        The `COMPARED` best of them are compared, or all if there are fewer. The trial must not be among them yet.
        """
        mine = np.array(self._curves[trial])
        for _, other in self._ranking[self._rungs[self._highest]][:COMPARED]:
            self._noises += _measure_noise(mine, np.array(self._curves[other]))


def _measure_noise(first: NDArray[np.float64], second: NDArray[np.float64]) -> Iterator[float]:
    """Yield the absolute difference of two learning curves at their last common epoch if they cross at least twice.

    ``first`` and ``second`` are the losses of two trials, epoch by epoch. Epochs at which they are equal do not count
    as crossings, but the last difference may be 0. Yields nothing for other curves, and never more than one number.
    """
    count = min(len(first), len(second))
    differences = first[:count] - second[:count]
    signs = np.sign(differences[differences != 0])
    crossings = np.count_nonzero(signs[1:] != signs[:-1])
    if crossings >= 2:
        yield abs(float(differences[-1]))


class FreezeThawScheduler(PausingScheduler):
    """Resumes the trial that is predicted to end best; simplified from Swersky, Snoek and Adams (2014).

    From each rung to the next, a trial is predicted to gain the mean of the trials that went there, plus half a
    standard deviation, since nothing is learned about trials that stay paused. From a rung that no trial has left, it
    is predicted to gain half of what is gained on the way to that rung, as with curves that fall by a power of the
    epoch. While new trials start, resumed ones get a share of the epochs. Once no trial is left to start, the best one
    resumes until none is predicted, without the added deviation, to end better than a completed trial.
    """

    def __init__(self, rule: FreezeThaw, objective: Objective, epochs: int) -> None:
        super().__init__(
            rule.type, objective, early_terminate.compute_decision_epochs(rule, epochs), epochs
        )
        self._share = rule.share
        # by rung, the next one, or the last epoch; not strict, because without rungs there is still the last epoch
        self._next_rung = dict(zip(self._rungs, (*self._rungs[1:], epochs), strict=False))
        # by rung, a heap of (loss, trial) of trials that paused there; some may have gone on since
        self._came_to: dict[int, list[tuple[float, int]]] = {rung: [] for rung in self._rungs}
        self._gains = {rung: _Gains() for rung in self._rungs}  # from each rung to the next
        # the last rung of trials that have not ended, and their losses there
        self._last_rung: dict[int, _Pause] = {}
        self._new_epochs = 0  # that new trials have trained, up to the first rung
        self._resumed_epochs = 0  # that were given to resumed trials

    def last(self) -> int | None:
        trial = self._choose_best(OPTIMISM)
        if self._best is None or trial is None:  # none has completed, or none may resume
            return trial
        pause = self._paused[trial]
        # only if it is predicted, without optimism, to end better than the best that completed
        if pause.loss - self._predict_gains(0.0)[pause.epoch] < self._best:
            return trial
        return None

    def _process_epoch(self, trial: int, epoch: int, loss: float) -> None:
        before = self._last_rung.get(trial)
        # what it has gained since the rung before; the value of a violated constraint is no loss to compute with
        if (
            before is not None
            and epoch == self._next_rung[before.epoch]
            and max(loss, before.loss) < INFEASIBLE
        ):
            self._gains[before.epoch].add(before.loss - loss)
        if epoch not in self._came_to:  # it is no rung
            return
        if before is None:  # only a new trial has come to no rung before
            self._new_epochs += epoch
        self._last_rung[trial] = _Pause(epoch, loss)
        self._pause(trial, epoch, loss)
        heappush(self._came_to[epoch], (loss, trial))
        self._thaw()

    def _process_end(self, trial: int) -> None:
        self._last_rung.pop(trial, None)
        self._thaw()

    def _thaw(self) -> None:
        """Let the paused trial with the best prediction resume if the epochs to its next rung fit into the share.

        The share is the rule's ``share`` of the epochs that new trials have trained up to the first rung, less those
        that were used for earlier resumed trials. At most one trial resumes, and none if no paused one meets the
        constraints.
        """
        trial = self._choose_best(OPTIMISM)
        if trial is None:
            return
        epoch = self._paused[trial].epoch
        needed = self._next_rung[epoch] - epoch
        if self._resumed_epochs + needed <= self._share * self._new_epochs:
            self._resumed_epochs += needed
            del self._paused[trial]

    def _describe_pause(self, pause: _Pause) -> str:
        where = describe_standing(self._kind, self._objective, pause.loss, pause.epoch)
        # none completed, or constraints are not met
        if self._best is None or pause.loss >= INFEASIBLE:
            return f"{where}, and none was left to go on with"
        predicted = self._objective.from_loss(pause.loss - self._predict_gains(0.0)[pause.epoch])
        best = self._objective.from_loss(self._best)
        return f"{where}, predicted to end at {predicted:.6g}; another has {best:.6g}"

    def _choose_best(self, optimism: float) -> int | None:
        """Return the paused trial with the lowest predicted final loss; None if none meets the constraints.

        ``optimism`` is the number of standard deviations that are added to predicted gains. Trials that have gone on or
        ended are dropped from the heaps here. Of equal predictions, the trial with the lowest number is returned.
        """
        predictions: list[tuple[float, int]] = []  # of the best paused trial of each rung
        gains = self._predict_gains(optimism)
        for rung, heap in self._came_to.items():
            while heap:
                loss, trial = heap[0]
                # it is paused there; the reason of a pause is not compared
                if self._paused.get(trial) == _Pause(rung, loss):
                    if loss < INFEASIBLE:
                        predictions.append((loss - gains[rung], trial))
                    break
                heappop(heap)  # it was resumed or has ended
        if not predictions:
            return None
        _, best = min(predictions)
        return best

    def _predict_gains(self, optimism: float) -> dict[int, float]:
        """Return by rung how much the loss of a trial is predicted to fall from there to the end of its training.

        ``optimism`` is the number of standard deviations that are added to the mean gain between two rungs. From a rung
        that no trial has left, half of the gain on the way to that rung is predicted, and 0 from the first rung.
        """
        steps: list[float] = []  # gains from each rung to the next
        gain = 0.0
        for rung in self._rungs:
            # where nothing is known of a rung, half of what was gained on the way to it
            gain = self._gains[rung].predict(optimism, unknown=gain / 2)
            steps.append(gain)
        gains = {}
        for index, rung in enumerate(self._rungs):
            gains[rung] = sum(steps[index:])
        return gains


@dataclass(slots=True)
class _Gains:
    """Mean and variance of the gains of trials between two rungs, updated one by one: Welford (1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of the squared distances from the mean

    def add(self, gain: float) -> None:
        self.count += 1
        from_old_mean = gain - self.mean
        self.mean += from_old_mean / self.count
        self.squares += from_old_mean * (gain - self.mean)

    def predict(self, optimism: float, unknown: float) -> float:
        """Return the mean gain, at least 0, plus ``optimism`` standard deviations.

        Return ``unknown`` if no gain was added. With a single gain, its absolute value is used as the standard
        deviation. A negative mean counts as 0.
        """
        if not self.count:
            return unknown
        if self.count > 1:
            deviation = math.sqrt(self.squares / self.count)
        else:
            deviation = abs(self.mean)
        return max(self.mean, 0.0) + optimism * deviation
