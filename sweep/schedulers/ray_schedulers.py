"""ASHA and the median rule as Ray Tune implements them, without the rest of Ray Tune.

The only module here that imports Ray; none of it is started. Ray's schedulers are made explicitly,
for its string factories ignore misspelt options, and see stand-ins for trials. What they get wrong
stays here: NaN passes every rung, a rung that was missed is made up for later, with a later value, the
last epoch counts as a stop, brackets are drawn from NumPy's global state, and an epoch that is reported
twice counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

from sweep.events import EpochReported, Event
from sweep.schedulers.reasons import reason
from sweep.space import termination
from sweep.space.objectives import Objective
from sweep.space.termination import Asha, Median


@dataclass(frozen=True, slots=True)
class _Trial:
    """All that these schedulers look at in a trial."""

    trial_id: str


class RayScheduler:
    """Asks one of Ray's schedulers about each epoch that its rule looks at."""

    def __init__(self, rule: Asha | Median, objective: Objective, epochs: int) -> None:
        self._rule = rule
        self._objective = objective
        # the median rule averages over the epochs before its grace as well
        looks_at = range(1, epochs) if isinstance(rule, Median) else termination.decision_epochs(rule, epochs)
        self._looks_at = frozenset(looks_at)
        self._ray: Any = _build(rule, "min" if objective.goal == "minimize" else "max", epochs)
        self._last: dict[int, int] = {}
        self._stopped: set[int] = set()

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return termination.decision_epochs(self._rule, epochs)

    def observe(self, event: Event) -> str | None:
        if not isinstance(event, EpochReported) or event.trial in self._stopped:
            return None
        if event.epoch not in self._looks_at or event.epoch <= self._last.get(event.trial, 0):
            return None
        value = self._objective.value(event.metrics)
        if value is None:
            return None
        trial = _Trial(str(event.trial))
        if event.trial not in self._last:
            with _numpy_seed(event.trial):
                self._ray.on_trial_add(None, trial)
        self._last[event.trial] = event.epoch
        if self._ray.on_trial_result(None, trial, {"epoch": event.epoch, "value": value}) != TrialScheduler.STOP:
            return None
        self._stopped.add(event.trial)
        return self._reason(trial, event.epoch, value)

    def _reason(self, trial: _Trial, epoch: int, value: float) -> str:
        match self._rule:
            case Asha():
                bracket = self._ray._trial_info[trial.trial_id]
                rung = next(recorded for milestone, recorded in bracket._rungs if milestone <= epoch)
                others = {name: score for name, score in rung.items() if name != trial.trial_id}
                cutoff = self._ray._metric_op * bracket.cutoff(others)
                return reason("asha", self._objective, value, epoch, cutoff)
            case Median():
                peers = [peer for peer in self._ray._trials_beyond_time(epoch) if peer != trial]
                means = [self._ray._running_mean(peer, epoch) for peer in peers]
                best = self._ray._best_result(trial)
                return reason("median", self._objective, best, epoch, float(np.median(means)))


def _build(rule: Asha | Median, mode: str, epochs: int) -> Any:
    match rule:
        case Asha(min_iter, max_iter, eta, brackets):
            last = max(min(max_iter or epochs, epochs), min_iter)
            return AsyncHyperBandScheduler(
                time_attr="epoch",
                metric="value",
                mode=mode,
                max_t=last * (1 + 1e-9),  # lest log(243) / log(3) = 4.9999... lose the last rung
                grace_period=min_iter,
                reduction_factor=eta,
                brackets=brackets,
                stop_last_trials=False,
            )
        case Median(grace, min_trials):
            return MedianStoppingRule(
                time_attr="epoch",
                metric="value",
                mode=mode,
                grace_period=grace,
                min_samples_required=min_trials,
                min_time_slice=math.inf,  # never yield to waiting trials
                hard_stop=True,
            )


@contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    state = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(state)
