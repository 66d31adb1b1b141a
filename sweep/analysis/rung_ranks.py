"""Measures how well trials rank at the rungs of a stopping rule, compared with their ranks at the last epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sweep.analysis.search_efficiency import compute_correlation, read_metric, read_metric_at_units
from sweep.events import Role, Status
from sweep.progress import HUNDREDTHS, SHARE
from sweep.space import early_terminate
from sweep.space.early_terminate import Misfit
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import SweepInfo

if TYPE_CHECKING:
    from sweep.analysis.sweep_rows import Sweep
    from sweep.store.tables import Tables

MOST_RUNGS = 6  # maximum number that is measured; a rule that decides after every epoch has more
POOR = 0.5
"""A rank correlation of a rung; if it is certainly lower, the rung prunes nearly as many good trials as poor ones."""


@dataclass(frozen=True, slots=True)
class RungRanks:
    """Spearman's rank correlation of a metric at a rung with the metric at the last epoch, with its 95 % interval.

    Only trials that trained to their last epoch are included. Since these are the ones that the rule let continue, the
    ranks of all trials would agree more.
    """

    metric: str
    epoch: int | None  # of the rung; None in a sweep with minutes
    trials: int
    value: float | None  # None for fewer than three trials, or if all have the same score
    low: float | None = None
    high: float | None = None
    share: float | None = None  # of a trial's budget, at which the rung is in a sweep with minutes
    # whether trials end after a number of epochs; False if only minutes limit them
    counts_epochs: bool = True

    @property
    def is_poor(self) -> bool:
        """True if the ranks at the rung certainly say little about the last epoch: the interval lies below `POOR`."""
        return self.high is not None and self.high < POOR


def measure_rungs(sweep: Sweep, read: Tables) -> tuple[RungRanks, ...]:
    """Return how well ranks at each rung agree with those at the last epoch: objective by objective, and rung by rung.

    ``read`` must have the metrics of all epochs. Only trials count that trained to their end and beyond the rung, with
    finite values at both, of whatever role. Of a rule with many rungs, only `MOST_RUNGS` are measured. The result is
    empty if the sweep has no rungs, or no trial that trained to its end.
    """
    rungs = _thin_epochs(read_decision_epochs(sweep.info, _find_max_search_epochs(sweep)))
    # of a trial in the units of its rungs, if the sweep has minutes; otherwise None
    length = _read_timed_length(sweep.info)
    counts_epochs = length is None or isinstance(sweep.info.epochs, int)
    ended = []
    for one in sweep.trials:
        if one.status in (Status.COMPLETED, Status.INFEASIBLE) and one.epochs:
            ended.append(one)
    if not rungs or not ended:
        return ()
    found = []
    for metric, _ in sweep.objectives:
        lasts = np.array([one.metrics.get(metric, math.nan) for one in ended])
        if length is None:
            at_rungs = read_metric(read, metric, rungs)
        else:
            at_rungs = read_metric_at_units(read, metric, rungs, length)
        # by trial number and rung; turned so that each rung has the values of the trials that ended
        of_ended = at_rungs[[one.trial for one in ended]].T
        for rung, values in zip(rungs, of_ended, strict=True):
            known = np.isfinite(values) & np.isfinite(lasts)
            # at a trial's last epoch, its value would be compared with itself; in a sweep with minutes, such values
            # are NaN already
            if length is None:
                known &= np.array([one.epochs > rung for one in ended])
                epoch, share = rung, None
            else:
                epoch, share = None, rung / length
            agreement = compute_correlation(values[known], lasts[known])
            count = int(known.sum())
            if agreement is None:
                value, low, high = None, None, None
            else:
                value, low, high = agreement.value, agreement.low, agreement.high
            found.append(
                RungRanks(
                    metric, epoch, count, value, low, high, share, counts_epochs=counts_epochs
                )
            )
    return tuple(found)


def measure_folder(folder: ResultsFolder) -> tuple[RungRanks, ...]:
    """Read a sweep and return how well ranks at its rungs agree with the last ones, by `measure_rungs`.

    Raises `StoreError` if the sweep cannot be read.
    """
    from sweep.analysis.sweep_rows import make_sweep
    from sweep.store import reading

    objectives = folder.read_info().objectives
    metrics = [f"metric.{name}" for name, _ in objectives]
    read = reading.read_tables(folder, ["trial", "epoch", SHARE, *metrics])
    return measure_rungs(make_sweep(folder, read), read)


def read_decision_epochs(info: SweepInfo, max_epochs: int | None = None) -> tuple[int, ...]:
    """Return the epochs at which a sweep's stopping rule decides, ascending.

    ``max_epochs`` is the largest number of epochs of a trial of the search, None for the number in the sweep file; it
    is not used in a sweep with ``minutes``. If such a sweep has no number of epochs, the result is in hundredths of a
    trial's minutes. It is empty if the sweep has no rule, a user's own rule, or neither ``minutes`` nor a number of
    epochs, or if another release wrote a rule that is not valid here.
    """
    stored = info.spec.get("early_terminate")
    length = _read_timed_length(info)
    if length is None:
        length = max_epochs
        if length is None and isinstance(info.epochs, int):
            length = info.epochs
    if not isinstance(stored, Mapping) or length is None:
        return ()
    keys = {}
    for name, value in stored.items():
        if value is not None:
            keys[name] = value
    rule = early_terminate.RULES.get(str(keys.pop("type", "")))
    try:
        if rule is None:
            return ()
        return early_terminate.compute_decision_epochs(rule(**keys), length)
    except (Misfit, TypeError):  # written by another release
        return ()


def _find_max_search_epochs(sweep: Sweep) -> int | None:
    """Return the largest number of epochs that a trial of the search trains or could train; None if unknown.

    That is the largest of the values that its parameter ``epochs`` may have and of the trials that have begun. The
    baseline and fresh seeds do not count, because no rule decides about them.
    """
    counts: list[object] = []  # also None and texts, which are left out
    declared = sweep.info.parameters.get("epochs")
    if isinstance(declared, Mapping):
        counts += [declared.get("value"), declared.get("max")]
        values = declared.get("values")
        if isinstance(values, list):
            counts += values
    for one in sweep.trials:
        if one.role is Role.SEARCH:
            counts.append(one.params.get("epochs", sweep.info.epochs))
    return max((count for count in counts if isinstance(count, int)), default=None)


def _read_timed_length(info: SweepInfo) -> int | None:
    """Return the length of a trial in the units of its rungs, if the sweep has minutes; otherwise None.

    It is the number of epochs, or 100 if only the minutes end a trial.
    """
    if info.spec.get("minutes") is None:
        return None
    if isinstance(info.epochs, int):
        return info.epochs
    return HUNDREDTHS


def _thin_epochs(epochs: Sequence[int]) -> tuple[int, ...]:
    """Return at most `MOST_RUNGS` of the ascending epochs, with the first and the last; all if they are no more.

    The positions of those that are chosen are evenly spaced on a logarithmic scale.
    """
    if len(epochs) <= MOST_RUNGS:
        return tuple(epochs)
    places = np.geomspace(1, len(epochs), MOST_RUNGS)
    return tuple(dict.fromkeys(epochs[round(place) - 1] for place in places))
