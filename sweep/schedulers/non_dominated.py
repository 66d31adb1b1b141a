"""Ranks of trials with several objectives, and the rules that stop or promote by them.

The rules `asha` and `asha_promotion` with several objectives are those of Schmucker, Donini, Zafar, Salinas and
Archambeau, "Multi-objective Asynchronous Successive Halving" (2021): at a rung, trials are sorted by non-dominated rank
(Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002), and within a front by an epsilon
net, which takes the trial that is farthest from all taken before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.contract import count_parts
from sweep.events import EpochReported, Event
from sweep.schedulers.early_termination import AshaScheduler
from sweep.schedulers.promotion import PausingScheduler
from sweep.space import early_terminate
from sweep.space.early_terminate import Asha, AshaPromotion
from sweep.space.objectives import INFEASIBLE, Objective

Losses: TypeAlias = tuple[float, ...]
"""The losses of one trial in all objectives; lower is better."""

Points: TypeAlias = NDArray[np.float64]
"""Losses of several trials, as an array of shape (trials, objectives)."""


def find_dominating(points: Points, losses: Losses) -> NDArray[np.bool_]:
    """Return which of the points dominate ``losses``: higher in no objective and lower in at least one.

    The result has a boolean for each point. Equal points do not dominate each other.
    """
    return np.asarray((points <= losses).all(axis=1) & (points < losses).any(axis=1))


def find_dominated(points: Points, losses: Losses) -> NDArray[np.bool_]:
    """Return which of the points ``losses`` dominates: lower in no objective and higher in at least one.

    The result has a boolean for each point.
    """
    return np.asarray((points >= losses).all(axis=1) & (points > losses).any(axis=1))


class NonDominatedOrder:
    """Trials sorted into fronts by non-dominated rank.

    No trial of a front dominates another one of it, and each is dominated by a trial of the front before. A new trial
    moves only those that it dominates to the next front, and these only those that they dominate: Li, Deb, Zhang,
    Suganthan and Xu, "Efficient non-domination level update method for steady-state evolutionary multiobjective
    optimization", IEEE Transactions on Cybernetics 47, 2017.
    """

    def __init__(self) -> None:
        self._losses: dict[int, Losses] = {}
        self._fronts: list[list[int]] = []

    def __len__(self) -> int:
        return len(self._losses)

    def add(self, trial: int, losses: Losses) -> None:
        """Add a trial with its loss in each objective, and move trials to later fronts.

        The trials that it dominates move, and those that they dominate in turn. The trial must not have been added
        before.
        """
        self._losses[trial] = losses
        index = 0  # becomes that of the first front of which no trial dominates the new one
        while (
            index < len(self._fronts)
            and find_dominating(self._get_losses(self._fronts[index]), losses).any()
        ):
            index += 1
        # put the new trial into this front, those that it dominates there into the next one, and so on
        moved = [trial]
        while moved:
            if index == len(self._fronts):
                self._fronts.append(moved)
                return
            front = self._fronts[index]
            is_dominated = np.zeros(len(front), bool)
            for one in moved:
                is_dominated |= find_dominated(self._get_losses(front), self._losses[one])
            staying, pushed = [], []
            for other, is_out in zip(front, is_dominated, strict=True):
                if is_out:
                    pushed.append(other)
                else:
                    staying.append(other)
            self._fronts[index] = staying + moved
            moved = pushed
            index += 1

    def get_front(self, trial: int) -> int:
        """Return the number of the front that contains a trial; the first front, the best one, is 1.

        Raises StopIteration if the trial was not added.
        """
        return next(place for place, front in enumerate(self._fronts, start=1) if trial in front)

    def list_best(self, count: int) -> list[int]:
        """Return the best ``count`` trials, or all if there are fewer, the best front first.

        Within a front, the order is that of `_select_spread`.
        """
        found: list[int] = []
        for front in self._fronts:
            room = count - len(found)
            if room <= 0:
                break
            found += self._select_spread(front, room)
        return found

    def _get_losses(self, trials: Sequence[int]) -> Points:
        """Return the losses of trials as an array of shape (trials, objectives)."""
        return np.array([self._losses[trial] for trial in trials])

    def _select_spread(self, front: Sequence[int], count: int) -> list[int]:
        """Return ``count`` trials of a front that are far from each other, or all if there are fewer.

        The first is the best in the first objective; each of the others is the one that is farthest from those chosen
        before it, by losses scaled to the range from 0 to 1. Of equal ones, the one with the better first objective
        comes first. ``front`` must not be empty, and ``count`` is at least 1.
        """
        trials = sorted(front, key=lambda trial: (self._losses[trial], trial))
        points = self._scale_losses(trials)
        chosen = [0]  # indices of trials
        # of each trial from the nearest of the chosen ones
        distances = np.linalg.norm(points - points[0], axis=1)
        while len(chosen) < min(count, len(trials)):
            # those chosen are not chosen again, even if all others are equal to them
            distances[chosen] = -1.0
            farthest = int(np.argmax(distances))
            chosen.append(farthest)
            distances = np.minimum(distances, np.linalg.norm(points - points[farthest], axis=1))
        return [trials[index] for index in chosen]

    def _scale_losses(self, trials: Sequence[int]) -> Points:
        """Return the losses of trials, scaled to the range from 0 to 1 in each objective.

        The shape is (trials, objectives). An objective in which all are equal is 0. All losses are 0 if any is
        infinite.
        """
        losses = self._get_losses(trials)
        # trials that violate the constraints by an infinite loss are all alike
        if not np.isfinite(losses).all():
            return np.zeros_like(losses)
        low = losses.min(axis=0)
        high = losses.max(axis=0)
        return np.asarray((losses - low) / np.where(high > low, high - low, 1.0))


def describe_losses(rule: str, objective: Objective, losses: Losses, epoch: int) -> str:
    """Return a rule and a trial's values at an epoch as text: ``asha: val_loss 0.61 and size 120 at epoch 3``.

    ``rule`` is the name of the rule. ``losses`` are in the order of ``objective`` and its `others`, lower is better;
    the text has the metrics' values, or says that the constraints are not met.
    """
    if max(losses) >= INFEASIBLE:
        return f"{rule}: constraints not met at epoch {epoch}"
    both = zip((objective, *objective.others), losses, strict=True)
    values = " and ".join(f"{one.name} {one.from_loss(loss):.6g}" for one, loss in both)
    return f"{rule}: {values} at epoch {epoch}"


def describe_rank(order: NonDominatedOrder, trial: int, room: int) -> str:
    """Return the rank of a trial that is not among the best ``room``, as text for the reason why it ends.

    For example: ``in front 4, and not among the best 3 of 9 by non-dominated rank``. That it is not among them is not
    checked. Raises StopIteration if the trial was not added to ``order``.
    """
    return f"in front {order.get_front(trial)}, and not among the best {room} of {len(order)} by non-dominated rank"


class NonDominatedAshaScheduler(AshaScheduler):
    """The rule `asha` with several objectives.

    A trial stops at a rung unless it is among the best 1/eta, rounded up, of the trials that have reached the rung so
    far, itself included, by non-dominated rank.
    """

    def __init__(self, rule: Asha, objective: Objective, epochs: int) -> None:
        super().__init__(rule, objective, epochs)
        self._orders: list[dict[int, NonDominatedOrder]] = []  # one dict for each bracket
        for rungs in early_terminate.list_brackets(rule, epochs):
            self._orders.append({epoch: NonDominatedOrder() for epoch in rungs})

    def _judge(self, report: EpochReported) -> str | None:
        if report.trial in self._stopped:
            return None
        losses = self._objective.constrained_losses(report.metrics)
        # of the trials of this bracket that have reached the rung at this epoch
        order = self._orders[self.bracket(report.trial)].get(report.epoch)
        if losses is None or order is None:  # an objective has no finite value, or there is no rung
            return None
        order.add(report.trial, losses)
        room = math.ceil(len(order) / self._rule.eta)  # how many of them go on
        if report.trial in order.list_best(room):
            return None
        self._stopped.add(report.trial)
        rank = describe_rank(order, report.trial, room)
        return f"{describe_losses(self._rule.type, self._objective, losses, report.epoch)}, {rank}"


class NonDominatedPromotionScheduler(PausingScheduler):
    """The rule `asha_promotion` with several objectives.

    A trial pauses at each rung and continues once it is among the best 1/eta by non-dominated rank. If the rule is
    capped, as by default, no more than 1/eta of the trials that reached a rung ever continue from it. Without the cap
    there may be more, because each new trial changes which trials of a front are among the best.
    """

    def __init__(self, rule: AshaPromotion, objective: Objective, epochs: int) -> None:
        super().__init__(
            rule.type,
            objective,
            early_terminate.compute_decision_epochs(rule, epochs),
            epochs,
            rule.min_completed,
        )
        self._eta = rule.eta
        self._capped = rule.is_capped(several=True)
        self._orders = {rung: NonDominatedOrder() for rung in self._rungs}
        self._promoted = dict.fromkeys(self._rungs, 0)
        self._last_losses: dict[int, Losses] = {}

    def observe(self, event: Event) -> None:
        if isinstance(event, EpochReported):
            losses = self._objective.constrained_losses(event.metrics)
            # an objective has no finite value: nothing is decided, only that the trial has trained on is recorded; the
            # base class looks at the first objective only, and would decide by that
            if losses is None:
                self._record_resumption(event)
                return
            self._last_losses[event.trial] = losses
        super().observe(event)

    def last(self) -> int | None:
        candidates = frozenset(self._list_candidates())  # paused trials that may resume
        if not candidates:
            return None
        # the best at the highest rung
        for rung in reversed(self._rungs):
            order = self._orders[rung]
            for trial in order.list_best(len(order)):  # all trials of the rung, the best first
                if trial in candidates and self._is_eligible(trial, rung):
                    return trial
        return None

    def dropped(self, *, rest: bool) -> Mapping[int, str]:
        if not rest:  # any paused trial may still continue
            return {}
        dropped = {}
        for trial, pause in self._paused.items():
            dropped[trial] = self._explain_end(trial, pause.epoch)
        return dropped

    def _process_epoch(self, trial: int, epoch: int, loss: float) -> None:
        if epoch not in self._orders:  # it is no rung
            return
        self._pause(trial, epoch, loss)
        order = self._orders[epoch]
        order.add(trial, self._last_losses[trial])
        room = count_parts(len(order), self._eta)  # how many may go on from this rung
        for one in order.list_best(room):
            if self._capped and self._promoted[epoch] >= room:  # as many have gone on already
                return
            if self._is_eligible(one, epoch):
                del self._paused[one]
                self._promoted[epoch] += 1

    def _is_eligible(self, trial: int, epoch: int) -> bool:
        """Return whether a trial is paused at the rung of this epoch and meets the constraints."""
        pause = self._paused.get(trial)
        # losses from `INFEASIBLE` on encode violated constraints
        return pause is not None and pause.epoch == epoch and pause.loss < INFEASIBLE

    def _explain_end(self, trial: int, epoch: int) -> str:
        """Return why a trial that is paused at the rung of this epoch will never continue, in one line for the user."""
        order = self._orders[epoch]
        where = describe_losses(self._kind, self._objective, self._last_losses[trial], epoch)
        room = count_parts(len(order), self._eta)  # how many may go on from this rung
        if not room:
            return f"{where}, from where too few came for one to go on"
        return f"{where}, {describe_rank(order, trial, room)}"
