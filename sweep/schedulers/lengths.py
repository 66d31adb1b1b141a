"""Keeps which trials of a search are shorter than its longest ones, for the rules that compare trials at rungs."""

from __future__ import annotations

from sweep.events import EpochReported, Event, Status, TrialEnded, TrialStarted, trial_epochs


class TrialLengths:
    """The lengths of trials that are shorter than the longest ones of the search, as with a parameter ``epochs``.

    A trial's own last epoch is no rung for it, even if it is one for longer trials: nothing is decided there, and as
    its training is complete, its value is not comparable with those of trials that are still under way.

    Before `observe` has met the start of a trial, the trial counts as one of the longest.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self.default = longest
        """Epochs of a trial without a parameter ``epochs``."""
        self._short: dict[int, int] = {}  # of trials that have not ended

    def observe(self, event: Event) -> None:
        """Note the length of a trial that starts, and forget that of one that has ended for good."""
        match event:
            case TrialStarted(trial=trial, params=params):
                length = trial_epochs(params, self.default)
                if length < self._longest:
                    self._short[trial] = length
            case TrialEnded(trial=trial, status=status) if status is not Status.INTERRUPTED:
                self._short.pop(trial, None)
            case _:
                pass

    def ends_short_trial(self, report: EpochReported) -> bool:
        """Return whether a report is that of the last epoch of a trial that is shorter than the longest ones."""
        return self._short.get(report.trial) == report.epoch

    def trains_beyond(self, trial: int, epoch: int) -> bool:
        """Return whether a trial that has not ended has epochs after ``epoch``, which is before the longest's last."""
        return self._short.get(trial, self._longest) > epoch


class RungScheduler:
    """Base class of the schedulers that compare trials at rungs; ``epochs`` is the length of the longest trials."""

    def __init__(self, epochs: int) -> None:
        self.lengths = TrialLengths(epochs)
