"""The lineage of a trial: in a population, a copy goes on from an epoch of its parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sweep.analysis.sweep_rows import Trial
from sweep.events import Value


@dataclass(frozen=True, slots=True)
class LineageStep:
    """A range of epochs, and the trial that trained them: a copied trial has the first epochs of its ancestors."""

    trial: int
    first: int  # epoch
    last: int
    params: Mapping[str, Value]


def lineage_of(trials: Iterable[Trial], number: int) -> tuple[LineageStep, ...]:
    """Return which trials trained the epochs of trial ``number``, in order: its oldest ancestor first, itself last.

    ``trials`` are all trials of the sweep. Trials that trained none of the epochs are left out, so the result is empty
    if there are no epochs. An ancestor is missing from ``trials`` if its start was lost with a damaged line of the log;
    it and its own ancestors are left out, too. Raises KeyError if ``number`` is not there.
    """
    known = {trial.trial: trial for trial in trials}
    found: list[LineageStep] = []  # the latest step first
    trial = known[number]
    last = trial.epochs  # the last epoch that comes from this trial
    while True:
        if trial.parent is None or trial.parent_epoch is None:
            inherited = 0
        else:
            inherited = trial.parent_epoch
        if last > inherited:  # otherwise it was replaced before it trained
            found.append(LineageStep(trial.trial, inherited + 1, last, trial.params))
        if trial.parent is None or trial.parent not in known:
            return tuple(reversed(found))
        trial, last = known[trial.parent], inherited
