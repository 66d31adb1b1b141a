"""The early termination that W&B sweeps call hyperband; Ray's scheduler of that name is another rule.

Source: W&B's documentation of ``early_terminate``, and wandb/sweeps, hyperband_stopping.py. Two things
differ, so that a log replays to the same decisions: a bracket looks at the epoch of its number, and
decides once, when the trial reports it (W&B looks again whenever it polls).
"""

from __future__ import annotations

from sweep.events import EpochReported, Event
from sweep.schedulers.ranks import Ranks
from sweep.schedulers.reasons import reason
from sweep.space import termination
from sweep.space.objectives import Objective
from sweep.space.termination import Hyperband


class HyperbandScheduler:
    """Stops a trial that is not among the best 1/eta of all that reached a bracket so far.

    With n values at a bracket, the cutoff is the one of rank n // eta, counted from 0; ties go on.
    """

    def __init__(self, rule: Hyperband, objective: Objective, epochs: int) -> None:
        self._rule = rule
        self._objective = objective
        self._reached = {
            epoch: Ranks(lambda count: int(count / rule.eta)) for epoch in termination.decision_epochs(rule, epochs)
        }
        self._best: dict[int, float] = {}

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return termination.decision_epochs(self._rule, epochs)

    def observe(self, event: Event) -> str | None:
        if not isinstance(event, EpochReported):
            return None
        loss = self._objective.loss(event.metrics)
        if loss is None:
            return None
        best = self._best[event.trial] = min(loss, self._best.get(event.trial, loss))
        reached = self._reached.get(event.epoch)
        if reached is None:
            return None
        reached.add(loss)
        judged = loss if self._rule.strict else best
        cutoff = reached.upper
        if cutoff is None or judged <= cutoff:
            return None
        return reason("hyperband", self._objective, judged, event.epoch, cutoff)
