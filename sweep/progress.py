"""How far a trial is: the share of its epochs or of its minutes that it has used, and the units in which rungs count.

A trial of a sweep file with ``minutes`` ends once it has trained that long, or has trained its epochs, whichever comes
first. What counts are the seconds of its epochs, with their validation (`EpochReported.time_s`). The worker adds the
share of the budget that is used to each report, as the measure `SHARE`, so that everything that is decided by it
follows from the log alone.

The positions of rungs are in units: epochs or, for trials that have only minutes, hundredths of their minutes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from sweep.events import WHOLE, EpochReported, Event, Status, TrialEnded

UNBOUNDED_EPOCHS = 10**9
"""Value of `Assignment.epochs` for a trial that only its minutes end."""

HUNDREDTHS = 100
"""Number of units in a trial that only its minutes end."""

SHARE = "budget_share"
"""Measure of an epoch of a trial with minutes: the share of its budget that the trial has used, from 0 to 1."""

_ROUNDING = 1e-9  # units by which floating-point errors may make a share too small
_AT_EPOCH = re.compile(r"\bat epoch (\d+)")


def count_length(epochs: int) -> int:
    """Return the length of a trial in units: its ``epochs``, or 100 if these are `UNBOUNDED_EPOCHS` or more."""
    if epochs >= UNBOUNDED_EPOCHS:
        return HUNDREDTHS
    return epochs


def compute_share(epoch: int, epochs: int, trained_s: float, minutes: float | None) -> float:
    """Return the used share of a trial's budget: of its epochs or its minutes, whichever is larger, at most 1.

    ``epoch`` of ``epochs`` epochs are trained, and ``trained_s`` seconds of ``minutes``, which is None if they are not
    limited. Raises ZeroDivisionError if ``epochs`` or ``minutes`` is 0.
    """
    if minutes is None:
        by_time = 0.0
    else:
        by_time = trained_s / (60 * minutes)
    return min(max(epoch / epochs, by_time), 1.0)


def count_units(epoch: int, share: float | None, length: int) -> int:
    """Return the number of units that a trial has trained.

    Without ``share`` these are its epochs (``epoch``), otherwise the whole units in this share of ``length``, at most
    ``length``. A share that is too small only by an error of floating-point numbers counts in full.
    """
    if share is None:
        return epoch
    return min(math.floor(share * length + _ROUNDING), length)  # 0.29 * 100 is 28.999999999999996


def passes_any(units: Iterable[int], before: int, after: int) -> bool:
    """Return whether one of ``units`` lies after ``before`` and at or before ``after``."""
    return any(before < unit <= after for unit in units)


class UnitReports:
    """Converts the reports of trials with minutes from epochs to units, for searchers and schedulers.

    There is one report for each unit that a trial has reached, with the metrics of the epoch in which it was reached,
    and one with the last metrics at its end. So every rule compares trials that have used the same share of their
    budget.
    """

    def __init__(self, length: int, epochs: int | None = None) -> None:
        """Initialize the converter for trials whose budget is divided into ``length`` units.

        The share of the budget that a report contains says which unit its trial has reached. If a report does not
        contain it, the share is that of its epoch in ``epochs``, the number of epochs of a whole trial. If ``epochs``
        is None, each epoch of such a trial counts as a unit.
        """
        self._length = length
        self._epochs = epochs
        # the unit that each trial has reached, by trials that have not ended
        self._units: dict[int, int] = {}
        # the last report of each of these trials, if it reached no further unit and so was not passed on
        self._held_back: dict[int, EpochReported] = {}

    def reword(self, reason: str) -> str:
        """Return a scheduler's reason with "at epoch N", where N is a unit, replaced by the share of the budget.

        Examples are ``at 30 % of its budget`` and, for trials with epochs as well, ``at 3/10 of its budget``.
        """
        if self._length == HUNDREDTHS:
            return _AT_EPOCH.sub(r"at \1 % of its budget", reason)
        return _AT_EPOCH.sub(rf"at \1/{self._length} of its budget", reason)

    def translate(self, event: Event) -> Iterator[Event]:
        """Yield the events, counted in units, that searchers and schedulers observe in place of ``event``.

        A report yields one event for each unit that the trial has reached with it, perhaps none; the end of a trial may
        yield its last report before it; other events are yielded unchanged. Pass all events, in order, and use up each
        result.
        """
        match event:
            case EpochReported():
                yield from self._translate_report(event)
            case TrialEnded():
                yield from self._translate_end(event)
            case _:
                yield event

    def _translate_report(self, event: EpochReported) -> Iterator[Event]:
        """Yield a copy of the report for each unit that the trial has reached with it, with the unit as its epoch.

        A report that reaches no further unit yields nothing, and is kept for the end of the trial.
        """
        reached_before = self._units.get(event.trial, 0)
        reached = count_units(event.epoch, self._find_share(event), self._length)
        self._held_back[event.trial] = event  # stays there if no further unit is reached
        for unit in range(reached_before + 1, reached + 1):
            self._held_back.pop(event.trial, None)
            self._units[event.trial] = unit
            yield structs.replace(event, epoch=unit)

    def _find_share(self, event: EpochReported) -> float | None:
        """Return the share of its budget that a trial has used, by its report or its epochs; None if unknown."""
        share = get_share(event.measures)
        if share is None and self._epochs is not None:
            return event.epoch / self._epochs
        return share

    def _translate_end(self, event: TrialEnded) -> Iterator[Event]:
        """Yield the end of a trial, and before it perhaps the trial's last report, as that of the next unit.

        The report is yielded if the trial was trained to its end (`WHOLE`), and the report has reached no new unit, and
        not all units are reached. An interrupted trial is remembered as one that may continue.
        """
        if event.status is not Status.INTERRUPTED:
            held_back = self._held_back.pop(event.trial, None)
            next_unit = self._units.pop(event.trial, 0) + 1
            # no unit is left if the trial has reached the last one before
            has_unit_left = next_unit <= self._length
            if held_back is not None and has_unit_left and event.status in WHOLE:
                yield structs.replace(held_back, epoch=next_unit)
        yield event


def get_share(measures: Mapping[str, float]) -> float | None:
    """Return the share of the budget that a report's ``measures`` contain; None if the trial has no minutes."""
    return measures.get(SHARE)
