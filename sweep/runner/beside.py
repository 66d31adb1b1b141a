"""Trials beside those of the search: the baseline before it, and after it fresh seeds for who could still be best.

The searcher and the scheduler hear of none of them. All of it is a function of the events, so that a session that goes
on starts what the one before would have started.
"""

from __future__ import annotations

import math
from dataclasses import replace

from msgspec import structs

from sweep.analysis import race
from sweep.analysis.race import Race, Rules, Run
from sweep.events import (
    EpochReported,
    Event,
    Params,
    Role,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.runner.terms import Terms
from sweep.spec import Spec
from sweep.spec.blocks import Confirm


class Runs:
    """The trials of a log, as far as a race looks at them."""

    def __init__(self, spec: Spec) -> None:
        self._objective = spec.objectives[0]
        self.trials: dict[int, Run] = {}

    def observe(self, event: Event) -> None:
        """Take an event in; an epoch counts once."""
        match event:
            case TrialStarted(trial=trial) if trial not in self.trials:
                self.trials[trial] = Run(
                    trial, event.params, event.role, event.repeat, event.fold, Status.RUNNING, math.nan, 0
                )
            case EpochReported(trial=trial) if trial in self.trials and event.epoch > self.trials[trial].epochs:
                value = self._objective.value(event.metrics)
                loss = math.nan if value is None else self._objective.sign * value
                self.trials[trial] = replace(self.trials[trial], loss=loss, epochs=event.epoch)
            case TrialEnded(trial=trial) if trial in self.trials:
                self.trials[trial] = replace(self.trials[trial], status=event.status)
            case _:
                pass


class Beside:
    """What trials there are beside the search's, and how those of the search are numbered among them."""

    def __init__(self, spec: Spec, terms: Terms) -> None:
        self._spec, self._terms = spec, terms
        self._runs = Runs(spec)
        self._places: dict[int, int] = {}  # of search trials, where that is not their number
        self._others: set[int] = set()
        self._baseline = 0  # trials of it that have begun
        self._confirmed = False
        self._highest = -1
        self._race: Race | None = None  # as it stands; None where trials began or ended since

    def observe(self, event: Event) -> Event | None:
        """The event as the search hears it; None for one that is not its own."""
        self._runs.observe(event)
        if isinstance(event, SessionStarted | SessionEnded):
            return event
        number = event.trial
        if isinstance(event, TrialStarted):
            self._highest = max(self._highest, number)
            self._baseline += event.role is Role.BASELINE and number not in self._others
            self._confirmed |= event.role is Role.CONFIRM
            if event.role is not Role.SEARCH:
                self._others.add(number)
            elif event.index is not None:
                self._places[number] = event.index
        if isinstance(event, TrialStarted | TrialEnded):
            self._race = None
        if number in self._others:
            return None
        place = self._places.get(number)
        return event if place is None else structs.replace(event, trial=place)

    def has(self, trial: int) -> bool:
        """Whether a trial is none of the search: then nothing ends it before its last epoch."""
        return trial in self._others

    def searched(self, place: int, params: Params) -> TrialStarted:
        """The trial of a place in the search, which begins now."""
        number = self._highest + 1 if self._confirmed else place + self._spec.baseline_trials
        return self._terms.start(place, params, number)

    def baseline(self) -> TrialStarted | None:
        """The next trial of the baseline; None when all have begun."""
        if self._spec.baseline is None or self._baseline >= self._spec.baseline_trials:
            return None
        number = self._highest + 1 if self._confirmed else self._baseline
        return self._terms.start(self._baseline, self._spec.baseline, number, Role.BASELINE)

    def confirmation(self) -> TrialStarted | None:
        """The next trial of the race; None when it is over, or waits for those that run."""
        wanted = self.race().wanted
        if not wanted:
            return None
        params, repeat, fold = wanted[0]
        place = repeat * (self._spec.folds or 1) + (fold or 0)
        return self._terms.start(place, params, self._highest + 1, Role.CONFIRM)

    def race(self) -> Race:
        """How the race stands; none where the sweep file says nothing of one."""
        if self._spec.confirm is None:
            return Race()
        if self._race is None:
            self._race = race.run(self._runs.trials.values(), rules(self._spec, self._spec.confirm))
        return self._race


def rules(spec: Spec, confirm: Confirm) -> Rules:
    """What a sweep file says of the race after its search."""
    return Rules(confirm.seeds, confirm.finalists, confirm.share(), spec.repeats, spec.folds)
