"""From the rule of a sweep file to its scheduler."""

from __future__ import annotations

from sweep.schedulers.asha import AshaScheduler
from sweep.schedulers.contract import Factory, Scheduler
from sweep.schedulers.hyperband import HyperbandScheduler
from sweep.schedulers.median import MedianScheduler
from sweep.schedulers.none import NoScheduler
from sweep.space.objectives import Objective
from sweep.space.termination import Asha, EarlyTermination, Hyperband, Median, NoTermination, Own


def build(rule: EarlyTermination, objective: Objective, epochs: int, own: Factory | None = None) -> Scheduler:
    """The scheduler of a rule, for trials of ``epochs`` epochs judged by the first objective.

    ``own`` is what the rule of a user's own names.
    """
    match rule:
        case Own(target):
            if own is None:
                raise ValueError(f"{target} is not loaded")
            return own(objective, epochs)
        case NoTermination():
            return NoScheduler()
        case Hyperband():
            return HyperbandScheduler(rule, objective, epochs)
        case Asha():
            return AshaScheduler(rule, objective, epochs)
        case Median():
            return MedianScheduler(rule, objective, epochs)
