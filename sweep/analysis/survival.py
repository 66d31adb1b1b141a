"""How many epochs trials will train, and how long that takes: estimates from what was seen.

How far trials come is the product-limit estimate (Kaplan, Meier, JASA 53, 1958): of those that reached an epoch, the
share that went on, epoch after epoch. Trials that still train count as far as they came, so that the short lives of
those that ended first do not mislead it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is to come, on the average."""

    left: Sequence[float]  # epochs that each trial which goes on will still train
    whole: float  # how many of these will train all their epochs
    waiting_left: float  # epochs of a trial that has not begun
    waiting_whole: float  # the share of these that will train all their epochs


@dataclass(frozen=True, slots=True)
class Survival:
    """The share of all trials that goes on after an epoch, as steps: ``steps`` are (epoch, share), ascending."""

    steps: tuple[tuple[int, float], ...]

    def after(self, epoch: int) -> float:
        """Return the share that goes on after an epoch; epoch 0 is the start."""
        share = 1.0
        for step, value in self.steps:
            if step > epoch:
                break
            share = value
        return share

    def share(self, done: int, of: int) -> float:
        """Of the trials that have gone on after ``done`` epochs, the share that trains all ``of``."""
        return self.after(of - 1) / self.after(done) if of > done else 1.0

    def epochs(self, done: int, of: int) -> float:
        """Return how many more epochs a trial trains that has gone on after ``done``, of ``of`` at most; the mean."""
        if of <= done:
            return 0.0
        start = self.after(done)
        trained, share, at = 0.0, start, done
        for step, value in self.steps:
            if step <= done:
                continue
            if step >= of:
                break
            trained += share * (step - at)
            share, at = value, step
        return (trained + share * (of - at)) / start

    def prospect(self, going: Sequence[tuple[int, int]], epochs: int) -> Prospect:
        """Return what is to come of trials that have trained so many epochs of so many, and of others of ``epochs``."""
        whole = sum(self.share(done, of) for done, of in going)
        return Prospect([self.epochs(*one) for one in going], whole, self.epochs(0, epochs), self.share(0, epochs))


def survival(reached: Mapping[int, int], lost: Mapping[int, int]) -> Survival:
    """From how many trials reached each epoch, and how many ended after it before their time."""
    steps = []
    share = 1.0
    for epoch in sorted(epoch for epoch, count in lost.items() if count > 0):
        gone = lost.get(epoch, 0)
        came = max(reached.get(epoch, 0) if epoch else reached.get(1, 0) + gone, gone)
        share *= (came - gone) / came if came > gone else 1 / (came + 1)  # not none: there are few yet
        steps.append((epoch, share))
    return Survival(tuple(steps))


def seconds_left(there: Sequence[float], waiting: int, each_s: float, slots: int) -> float:
    """Return how long workers take for the rest of the trials that they have, and then for those that wait.

    ``there`` are the seconds left of the first, ``each_s`` those of one that waits. Each free worker takes the next.
    """
    ends = sorted(there) + [0.0] * max(slots - len(there), 0)
    rounds = max(waiting // len(ends) - 2, 0)  # whole rounds at once: the order evens out in the last ones
    ends = [end + rounds * each_s for end in ends]
    heapq.heapify(ends)
    for _ in range(waiting - rounds * len(ends)):
        heapq.heapreplace(ends, ends[0] + each_s)
    return max(ends, default=0.0)
