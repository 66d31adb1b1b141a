"""Trials beside those of the search: the baseline before it, and after it fresh seeds for who could still be best.

The searcher and the scheduler hear of none of them. All of it is a function of the events, so that a session that goes
on starts what the one before would have started.
"""

from __future__ import annotations

import math

from sweep.analysis import confirmation
from sweep.analysis.confirmation import Race, Rules, Run
from sweep.events import Params, Role, TrialStarted
from sweep.runner.terms import Terms
from sweep.spec import Spec
from sweep.spec.blocks import Confirm
from sweep.store.ledger import Change, Ledger, Reported, Session, Started, TrialState


class Beside:
    """What trials there are beside the search's, and how those of the search are numbered among them."""

    def __init__(self, spec: Spec, terms: Terms, ledger: Ledger) -> None:
        self._spec, self._terms, self._ledger = spec, terms, ledger
        self._baseline = 0  # trials of it that have begun
        self._confirmed = False
        self._highest = -1
        self._race: Race | None = None  # as it stands; None where trials began or ended since

    def observe(self, change: Change) -> None:
        """Count an event in."""
        if isinstance(change, Started):
            trial = change.trial
            self._highest = max(self._highest, trial.number)
            self._baseline += trial.role is Role.BASELINE
            self._confirmed |= trial.role is Role.CONFIRM
        if not isinstance(change, Session | Reported):
            self._race = None

    def has(self, trial: int) -> bool:
        """Whether a trial is none of the search: then nothing ends it before its last epoch."""
        return self._ledger.trials[trial].place is None

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
            self._race = confirmation.run(runs(self._ledger, self._spec), rules(self._spec, self._spec.confirm))
        return self._race


def runs(ledger: Ledger, spec: Spec) -> list[Run]:
    """The trials as far as a race looks at them."""
    objective = spec.objectives[0]

    def run(one: TrialState) -> Run:
        loss = objective.loss(one.last)
        last = math.nan if loss is None else loss
        return Run(one.number, one.params, one.role, one.start.repeat, one.start.fold, one.status, last, one.epoch)

    return [run(one) for one in ledger.trials.values()]


def rules(spec: Spec, confirm: Confirm) -> Rules:
    """What a sweep file says of the race after its search."""
    return Rules(confirm.seeds, confirm.finalists, confirm.share(), spec.repeats, spec.folds)
