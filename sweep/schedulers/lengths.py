"""The lengths of the trials of a search, for the rules that compare trials at rungs."""

from __future__ import annotations

from sweep.events import EpochReported, Event, Status, TrialEnded, TrialStarted, trial_epochs


class TrialLengths:
    """Records which trials are shorter than the longest ones of the search, as with a parameter ``epochs``.

    The last epoch of a shorter trial is no rung for it, even if it is one for longer trials: nothing is decided there,
    and because its training is complete, its loss cannot be compared with those of trials that are still trained.

    A trial whose start was not observed counts as one of the longest.
    """

    def __init__(self, max_epochs: int) -> None:
        self._max_epochs = max_epochs
        self.default_epochs = max_epochs
        """Epochs of a trial without a parameter ``epochs``."""
        self._epochs: dict[int, int] = {}  # of each shorter trial that has not ended

    def observe(self, event: Event) -> None:
        """Record the length of a trial that starts, and forget that of one that has ended and was not interrupted.

        Only trials that are shorter than the longest ones are recorded. All other events are ignored.
        """
        match event:
            case TrialStarted(trial=trial, params=params):
                epochs = trial_epochs(params, self.default_epochs)
                if epochs < self._max_epochs:
                    self._epochs[trial] = epochs
            case TrialEnded(trial=trial, status=status) if status is not Status.INTERRUPTED:
                self._epochs.pop(trial, None)
            case _:
                pass

    def ends_short_trial(self, report: EpochReported) -> bool:
        """Return whether a report is that of the last epoch of a trial that is shorter than the longest ones.

        False for a trial whose start was not observed, or whose end was.
        """
        return self._epochs.get(report.trial) == report.epoch

    def trains_beyond(self, trial: int, epoch: int) -> bool:
        """Return whether a trial that has not ended is longer than ``epoch`` epochs.

        ``epoch`` must be less than the length of the longest trials. True for a trial whose start was not observed.
        """
        return self._epochs.get(trial, self._max_epochs) > epoch


class RungScheduler:
    """Base class of the schedulers that compare trials at rungs; ``epochs`` is the length of the longest trials."""

    def __init__(self, epochs: int) -> None:
        self.lengths = TrialLengths(epochs)
