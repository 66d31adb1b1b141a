"""Who trained which epochs of a trial: in a population, a copy has its parent's up to where it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweep.analysis.trials import Trial, varying
from sweep.events import Value


@dataclass(frozen=True, slots=True)
class Step:
    """Epochs of a trial that one trial has trained, itself or one that it is descended from."""

    trial: int
    first: int  # epoch
    last: int
    params: Mapping[str, Value]


def of(trials: Iterable[Trial], number: int) -> tuple[Step, ...]:
    """Return the steps of a trial in the order of their epochs; one, where it is no copy."""
    known = {trial.trial: trial for trial in trials}
    found: list[Step] = []
    trial, last = known[number], known[number].epochs
    while True:
        first = 0 if trial.parent is None or trial.parent_epoch is None else trial.parent_epoch
        if last > first:  # else it was replaced before it had trained
            found.append(Step(trial.trial, first + 1, last, trial.params))
        if trial.parent is None:
            return tuple(reversed(found))
        trial, last = known[trial.parent], first


def changed(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the parameters that are not the same in all steps."""
    return varying([step.params for step in steps])
