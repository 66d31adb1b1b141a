"""Which trials pause, of a sweep whose scheduler lets them, or whose method is a population; none of any other.

A trial that pauses is interrupted in the log, saved, and gone on with by any worker once its rule no longer holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from sweep.events import PAUSES, Facts, Status, TrialEnded
from sweep.runner.trials import OpenTrial
from sweep.schedulers import Pausing, Scheduler
from sweep.searchers import Searcher
from sweep.store.ledger import TrialState


class Pauses:
    """What the rule of a sweep says of its open trials."""

    def __init__(self, searcher: Searcher, scheduler: Scheduler, trials: Mapping[int, OpenTrial]) -> None:
        """``trials``: those that have not ended, by number."""
        self._rule = next((one for one in (searcher, scheduler) if isinstance(one, Pausing)), None)
        self._deciding = self._rule or scheduler
        self._trials = trials
        self._count = 0

    def open(self, state: TrialState, epochs: int) -> OpenTrial:
        """Return a trial of the search that begins."""
        return OpenTrial(state, epochs, self._deciding.decision_epochs(epochs), pauses=self._rule is not None)

    def why(self, trial: OpenTrial) -> str | None:
        """Return why a trial is not to train on for now; None for one that may."""
        place = trial.state.place
        if self._rule is None or place is None or trial.state.epoch not in trial.decisions:
            return None
        return self._rule.holds(place)

    def end(self, trial: OpenTrial, facts: Facts) -> TrialEnded | None:
        """Return the interruption of a trial that pauses where it is; None for one that trains on."""
        why = self.why(trial)
        return structs.replace(trial.end(Status.INTERRUPTED, PAUSES + why, facts), waits=True) if why else None

    def note(self, trial: OpenTrial, *, paused: bool) -> None:
        """Remember in which order trials paused, which is the one in which they are gone on with."""
        self._count += paused
        trial.paused = self._count if paused else 0

    def ready(self, again: Iterable[int]) -> int | None:
        """Return the first of those to be gone on with that none holds."""
        return next((trial for trial in again if not self.why(self._trials[trial])), None)

    def last(self) -> int | None:
        """Return the trial that is trained on although it is held, once none trains and none is left to start."""
        place = self._rule.last() if self._rule else None
        if place is None:
            return None
        return next((number for number, one in self._trials.items() if one.state.place == place), None)

    def dropped(self, *, rest: bool) -> list[TrialEnded]:
        """Return the ends of those that pause for good; ``rest`` as of `Pausing`."""
        whys = self._rule.dropped(rest=rest) if self._rule else {}
        numbers = {one.state.place: number for number, one in self._trials.items()} if whys else {}
        there = [(self._trials[numbers[place]], why) for place, why in whys.items() if place in numbers]
        return [structs.replace(one.end(Status.PRUNED, why, Facts()), waits=rest) for one, why in there]
