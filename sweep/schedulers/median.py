"""The median stopping rule: Golovin et al., KDD 2017, section 3.2.2.

It decides as Ray Tune's ``MedianStoppingRule`` does, which averages all epochs of all trials for each report.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweep.events import EpochReported, Event
from sweep.schedulers.ranks import Ranks
from sweep.schedulers.reasons import reason
from sweep.space import termination
from sweep.space.objectives import Objective
from sweep.space.termination import Median


@dataclass(slots=True)
class _Run:
    """A trial so far."""

    best: float
    last: int = 0
    count: int = 0  # epochs in its mean
    mean: float = 0.0


class MedianScheduler:
    """Stops a trial whose best loss is above the median of the others' running means at the same epoch.

    A mean begins with the first epoch that is judged.
    """

    def __init__(self, rule: Median, objective: Objective, epochs: int) -> None:
        self._rule = rule
        self._objective = objective
        judged = termination.decision_epochs(rule, epochs)
        self._means = {epoch: Ranks(lambda count: count // 2) for epoch in judged}
        self._runs: dict[int, _Run] = {}
        self._stopped: set[int] = set()

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return termination.decision_epochs(self._rule, epochs)

    def observe(self, event: Event) -> str | None:
        if not isinstance(event, EpochReported) or event.trial in self._stopped:
            return None
        loss = self._objective.loss(event.metrics)
        if loss is None:
            return None
        run = self._runs.setdefault(event.trial, _Run(loss))
        run.best = min(run.best, loss)
        others = self._means.get(event.epoch)
        if others is None:
            return None
        median = _median(others) if len(others) >= self._rule.min_trials else None
        self._advance(run, event.epoch, loss)
        if median is None or run.best <= median:
            return None
        self._stopped.add(event.trial)
        return reason("median", self._objective, run.best, event.epoch, median)

    def _advance(self, run: _Run, epoch: int, loss: float) -> None:
        if run.count:  # it came past epochs without an objective with the mean that it had
            for missed in range(run.last + 1, epoch):
                self._means[missed].add(run.mean)
        run.last, run.count = epoch, run.count + 1
        run.mean += (loss - run.mean) / run.count  # exact where all are equal, as a sum is not
        self._means[epoch].add(run.mean)


def _median(means: Ranks) -> float | None:
    if means.lower is None or means.upper is None or len(means) % 2:
        return means.upper
    return (means.lower + means.upper) / 2
