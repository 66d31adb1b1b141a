"""Asynchronous successive halving that stops: Li et al., MLSys 2020, section 3.

It decides as Ray Tune's ``AsyncHyperBandScheduler`` does, which sorts a whole rung for each trial that reaches it; what
that one gets wrong is left out: NaN passes every rung, a rung that was missed is made up for later, with a later value,
the last epoch counts as a stop, brackets are drawn from NumPy's global state.
"""

from __future__ import annotations

import math

import numpy as np

from sweep.events import EpochReported, Event
from sweep.schedulers.ranks import Ranks
from sweep.schedulers.reasons import reason
from sweep.space import termination
from sweep.space.objectives import Objective
from sweep.space.termination import Asha


class AshaScheduler:
    """Stops a trial at a rung whose score is below the quantile 1 - 1/eta of those that came there before it."""

    def __init__(self, rule: Asha, objective: Objective, epochs: int) -> None:
        self._rule = rule
        self._objective = objective
        self._rungs = [{epoch: _Rung(rule.eta) for epoch in rungs} for rungs in termination.brackets(rule, epochs)]
        self._shares = _shares(rule, epochs)
        self._brackets: dict[int, int] = {}
        self._stopped: set[int] = set()

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return termination.decision_epochs(self._rule, epochs)

    def observe(self, event: Event) -> str | None:
        if not isinstance(event, EpochReported) or event.trial in self._stopped:
            return None
        loss = self._objective.loss(event.metrics)
        rung = self._rungs[self.bracket(event.trial)].get(event.epoch)
        if loss is None or rung is None:
            return None
        cutoff = rung.cutoff()
        rung.scores.add(-loss)
        if cutoff is None or -loss >= cutoff:
            return None
        self._stopped.add(event.trial)
        return reason("asha", self._objective, loss, event.epoch, -cutoff)

    def bracket(self, trial: int) -> int:
        """Which bracket a trial belongs to: drawn by its number alone, one with more rungs more often."""
        if len(self._rungs) == 1:
            return 0
        if trial not in self._brackets:
            draws = np.random.RandomState(trial % 2**32)
            self._brackets[trial] = int(draws.choice(len(self._rungs), p=self._shares))
        return self._brackets[trial]


class _Rung:
    """The scores at one rung, larger ones better, and their quantile as NumPy's percentile interpolates it."""

    def __init__(self, eta: float) -> None:
        self._quantile = (1 - 1 / eta) * 100 / 100
        self.scores = Ranks(lambda count: math.floor((count - 1) * self._quantile) + 1)

    def cutoff(self) -> float | None:
        low, high = self.scores.lower, self.scores.upper
        if low is None or high is None:
            return low
        index = (len(self.scores) - 1) * self._quantile
        part = index - math.floor(index)
        return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def _shares(rule: Asha, epochs: int) -> list[float]:
    """The probability of each bracket; a rung at the last epoch counts here, though nothing is decided at it."""
    last = max(min(rule.max_iter or epochs, epochs), rule.min_iter) * (1 + 1e-9)  # lest log(243) / log(3) = 4.9999...
    rungs = math.log(last / rule.min_iter) / math.log(rule.eta)
    weights = [math.exp(max(int(rungs - bracket + 1), 0)) for bracket in range(rule.brackets)]
    return [weight / sum(weights) for weight in weights]
