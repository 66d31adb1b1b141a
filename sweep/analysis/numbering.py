"""Numbers the trials of a sweep, also if the number of trials of a configuration changes along the log.

Searchers and schedulers know a trial of the search by its *place*, people by its *number*. A configuration has
``trials_each`` trials: all folds of all repeats, counted from 0 *within* the configuration, repeat by repeat.

The rule:

- As long as ``repeats`` stays as it was when the sweep began, the place is ``configuration * trials_each + within``.
- A change of ``repeats`` begins a new part of the numbering. Its first place follows the highest place of a trial that
  has started. The part has first the trials that configurations which have begun lack, ordered by configuration, then
  the configurations that have not begun, in their order and with the new number of trials each.
- A place without a trial in an earlier part is never used. So no place stands for two trials, and what a place stands
  for follows from the events before the change alone.
- The number of a trial is its place, moved on by the trials of the baseline: these come before the search or, after a
  change, before the trials of the new part. Trials of the confirmation have the numbers after all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sweep.events import Role, SweepChanged
from sweep.spec import Spec
from sweep.store.ledger import Change, Steered, TrialState


class Slot(NamedTuple):
    """A configuration and one of its trials: a place in the search stands for one slot."""

    configuration: int  # number of the configuration in the search, from 0
    within: int  # number of the trial within the configuration, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The numbers of trials from a point of the log on, by the rule in the module's docstring."""

    trials_each: int  # of a configuration that begins from now on
    has_baseline: bool = False
    first: int = 0  # place of this part; those before it are of earlier parts
    lacking: tuple[Slot, ...] = ()  # at the first places of this part
    # trials of each configuration that began in earlier parts
    begun: Mapping[int, int] = field(default_factory=dict)
    skipped: tuple[int, ...] = ()  # configurations that had not begun, although a later one had
    beyond: int = 0  # the first configuration after all that had begun
    shift: int = 0  # the number of a trial of the search in this part, minus its place
    # the number of a trial of the baseline, minus its number within the baseline
    baseline_shift: int = 0
    earlier: Numbering | None = None  # the numbering before this part

    @classmethod
    def of(cls, spec: Spec) -> Numbering:
        """Return the numbering with which a sweep begins."""
        return cls(
            trials_each=spec.trials_each,
            has_baseline=spec.baseline is not None,
            shift=spec.baseline_trials,
        )

    @property
    def is_plain(self) -> bool:
        """Whether each configuration has one trial, so that a place is the number of a configuration."""
        return self.trials_each == 1 and self.earlier is None

    def find(self, place: int) -> Slot:
        """Return the configuration and the trial within it that a place stands for.

        A place is the index of a trial in the search, from 0. It may be of this part of the numbering or an earlier
        one, and need not have begun.
        """
        # the part of the numbering that has the place
        part = self
        while place < part.first and part.earlier is not None:
            part = part.earlier
        # first come the trials that configurations of earlier parts lack
        index = place - part.first
        if index < len(part.lacking):
            return part.lacking[index]
        # then the configurations that begin in this part, here counted from 0: those that were skipped before are first
        new, within = divmod(index - len(part.lacking), part.trials_each)
        if new < len(part.skipped):
            return Slot(part.skipped[new], within)
        return Slot(part.beyond + new - len(part.skipped), within)

    def find_first_place(self, configuration: int) -> int:
        """Return the place (the index in the search) of the first trial of a configuration that begins in this part.

        A part begins where `repeats` was changed. Raises ValueError if the configuration began in an earlier part.
        """
        # its number among the configurations that begin in this part, as in `find`
        if configuration < self.beyond:
            new = self.skipped.index(configuration)
        else:
            new = configuration - self.beyond + len(self.skipped)
        return self._first_new + new * self.trials_each

    def find_end(self, configurations: int) -> int:
        """Return the place after the search's last trial, if it has ``configurations`` configurations, begun or not.

        A place is the index of a trial in the search, from 0; the number of the trial is greater if there is a
        baseline. Each configuration that has not begun before this part takes `trials_each` places. If at least
        ``configurations`` have begun before, the result is the first place of this part that is for new configurations.
        """
        return self._first_new + max(configurations - len(self.begun), 0) * self.trials_each

    def is_lacking(self, place: int) -> bool:
        """Return whether a place (an index of a trial in the search) is before this part's first new configuration.

        A part begins where `repeats` was changed. Its first places are for the trials that configurations of earlier
        parts lack. True also for all places of earlier parts.
        """
        return place < self._first_new

    def count(self, configuration: int) -> int:
        """Return how many trials the configuration with this number is to have in all."""
        return self.begun.get(configuration, self.trials_each)

    def number_search(self, place: int) -> int:
        """Return the number of the trial at ``place``, its index in the search, which must be of this part."""
        return place + self.shift

    def number_baseline(self, within: int) -> int:
        """Return the number of a trial of the baseline; ``within`` counts the baseline's trials from 0."""
        return within + self.baseline_shift

    def change(self, trials: Iterable[TrialState], trials_each: int) -> Numbering:
        """Return the numbering from now on, with ``trials_each`` trials for each configuration; this one is unchanged.

        ``trials`` are all trials that have started, of any role. The trials that their configurations now lack get the
        first places of the new part; new configurations follow. A configuration that has more trials keeps them. Those
        that the baseline lacks get the numbers before the new part.
        """
        last_place = -1
        last_number = -1
        baseline_trials = 0  # that have started
        started: dict[int, set[int]] = {}  # by configuration: its trials, numbered within it
        for trial in trials:
            last_number = max(last_number, trial.number)
            baseline_trials += trial.role is Role.BASELINE
            if trial.place is not None:  # it is a trial of the search
                last_place = max(last_place, trial.place)
                slot = self.find(trial.place)
                started.setdefault(slot.configuration, set()).add(slot.within)
        lacking: list[Slot] = []
        begun: dict[int, int] = {}  # by configuration: the number of trials that it is to have
        for configuration in sorted(started):
            missing = [
                within for within in range(trials_each) if within not in started[configuration]
            ]
            lacking += [Slot(configuration, within) for within in missing]
            begun[configuration] = len(started[configuration]) + len(missing)
        beyond = max(started, default=-1) + 1
        skipped = [configuration for configuration in range(beyond) if configuration not in started]
        lacking_baseline = max(trials_each - baseline_trials, 0) if self.has_baseline else 0
        # The next numbers are for the trials that the baseline lacks, and then for the search, whose next place follows
        # the last one. A shift is a number minus a place.
        return Numbering(
            trials_each=trials_each,
            has_baseline=self.has_baseline,
            first=last_place + 1,
            lacking=tuple(lacking),
            begun=begun,
            skipped=tuple(skipped),
            beyond=beyond,
            shift=last_number + lacking_baseline - last_place,
            baseline_shift=last_number + 1 - baseline_trials,
            earlier=self,
        )

    @property
    def _first_new(self) -> int:
        """The first place of this part that stands for a configuration which began in no earlier part."""
        return self.first + len(self.lacking)


def follow_numbering(
    numbering: Numbering, change: Change, trials: Iterable[TrialState], folds: int | None
) -> Numbering:
    """Return the numbering after a change in the log: another one if ``repeats`` has changed, else the same.

    ``trials`` are all trials that have started before the change, of any role; ``folds`` is the number of folds, None
    without any.
    """
    if (
        isinstance(change, Steered)
        and isinstance(change.event, SweepChanged)
        and "repeats" in change.event.settings
    ):
        return numbering.change(trials, change.event.settings["repeats"] * (folds or 1))
    return numbering
