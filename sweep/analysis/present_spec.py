"""The sweep file as it is at a point of the log, and what belongs to it: the changes and additions of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from sweep.events import (
    ConfigurationsEnqueued,
    Params,
    Role,
    SteeringEvent,
    SweepChanged,
    TrialStarted,
    Value,
)
from sweep.space import Space
from sweep.space.domains import key
from sweep.space.initial_points import complete_starts_on_grid
from sweep.space.search_space import grid_values
from sweep.spec import Spec, changes
from sweep.spec.changes import SPACE
from sweep.store.ledger import Change, Ledger, Started, Steered


class PresentSpec:
    """The spec of a sweep with the changes so far, and how often its space was changed.

    It also knows who added each configuration, and from which version of the space each was chosen.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.space_version = 0
        self.is_steered = False
        """Whether the space was changed or configurations were added."""
        self._versions: dict[str, int] = {}  # of the space, by configuration
        self._added: dict[str, str] = {}  # who has added a configuration, if it was not dropped
        self._known: dict[str, Params] = {}  # configurations that have begun or were added
        self._beyond: set[str] = set()  # those that the search would not have found
        self.repeats_changed = False
        """Whether the number of repeats was changed."""
        self._trials: Counter[str] = Counter()  # of the search that have begun, by configuration
        self._baseline = 0  # trials of it that have begun
        self._begun = 0  # configurations that had begun when the number of repeats was changed last
        self._trials_of_begun = 0  # those that they are to have
        self._trials_of_baseline = 0  # those that had begun then

    def observe(self, change: Change) -> None:
        """Update the spec and the counts by the next change of the log.

        Only started trials of the search or the baseline, added configurations and changes of the sweep file count; all
        other changes are ignored. Raises `InputError` if a changed sweep file is not valid; then nothing is updated.
        """
        match change:
            case Started(trial) if trial.role is Role.SEARCH:
                self._versions.setdefault(key(trial.params), trial.start.space_version)
                self._add(trial.params)
                self._trials[key(trial.params)] += 1
            case Started(trial) if trial.role is Role.BASELINE:
                self._baseline += 1
            case Steered(ConfigurationsEnqueued() as event):
                for params in event.configurations:
                    self._added[key(params)] = event.by
                    self._add(params)
                self._begin_steering()
            case Steered(SweepChanged() as event):
                self._change(event)
            case _:
                pass

    def mark(self, started: TrialStarted) -> TrialStarted:
        """Return a copy of the event with the version of the space, and who added the configuration.

        The version is that at the start of the configuration's first trial, or the present one if none has started. The
        name is None if nobody has added the configuration. For a trial of the baseline, and while nobody has changed
        the space or added configurations, the event itself is returned.
        """
        if not self.is_steered or started.role is Role.BASELINE:
            return started
        configuration = key(started.params)
        version = self._versions.get(configuration, self.space_version)
        added_by = self._added.get(configuration)
        return structs.replace(started, space_version=version, enqueued_by=added_by)

    def is_added(self, params: Params) -> bool:
        """Return whether a person has added a configuration, and no later change has dropped it."""
        return key(params) in self._added

    def is_known(self, params: Params) -> bool:
        """Return whether a configuration has begun in the search or was added by a person, and was not dropped."""
        return key(params) in self._known

    @property
    def trials(self) -> int | None:
        """The number of configurations to try; None if only time or epochs limit it.

        Once a person has changed a finite space or has added configurations to one, the number is the size of the
        present space, and those that have begun or were added although the search would not try them by itself. Limits
        such as `run_cap` apply to the sum.
        """
        if not self.is_steered or self.spec.size is None:
            return self.spec.trials
        found = self.spec.size + len(self._beyond)
        # the added ones count for limits such as `run_cap`, too
        return min([found, *self.spec.caps.values()])

    @property
    def all_trials(self) -> int | None:
        """The number of trials of the search and the baseline; None if only time or epochs limit it."""
        if self.trials is None:
            return None
        # Configurations that had begun at the last change of `repeats` are counted apart (`_begun`), because they may
        # have more trials each; without a change, these counts are 0.
        new = max(self.trials - self._begun, 0) * self.spec.trials_each
        return (
            self._trials_of_begun + new + max(self._trials_of_baseline, self.spec.baseline_trials)
        )

    def _change(self, event: SweepChanged) -> None:
        """Apply changed keys of the sweep file, and forget the added configurations that the event names as dropped.

        If a key of the space is among the keys, this begins a new version of the space. Raises `InputError`, without
        any change, if the sweep file is not valid then.
        """
        self.spec = changes.apply_settings(self.spec, event.settings)
        for params in event.dropped:
            self._added.pop(key(params), None)
            self._known.pop(key(params), None)
            self._beyond.discard(key(params))
        if "repeats" in event.settings:
            self._change_repeats()
        # By the changed keys rather than the values: if the log is replayed on a later spec, the values do not change.
        if not SPACE.isdisjoint(event.settings):
            self.space_version += 1
            # so that the next line looks at all configurations again, in the new space
            self.is_steered = False
            self._begin_steering()

    def _change_repeats(self) -> None:
        """Recompute how many trials the configurations that have begun will have, after a change of ``repeats``.

        Each has the new number of trials, or the number that have begun if these are more.
        """
        self.repeats_changed = True
        self._begun = len(self._trials)
        self._trials_of_begun = sum(
            max(count, self.spec.trials_each) for count in self._trials.values()
        )
        self._trials_of_baseline = self._baseline

    def _begin_steering(self) -> None:
        """Set `is_steered`, and from now on record which configurations the search does not try by itself.

        Those that have begun or were added are looked at now. Does nothing if `is_steered` is set. Before a person
        changes the space or adds configurations, there are no such configurations.
        """
        if self.is_steered:
            return
        self.is_steered = True
        self._beyond.clear()
        for params in self._known.values():
            self._look_beyond(params)

    def _add(self, params: Params) -> None:
        """Add a configuration to the known ones, if it is new.

        Once `is_steered`, also record it if the search would not try it by itself.
        """
        configuration = key(params)
        if configuration in self._known:
            return
        self._known[configuration] = params
        if self.is_steered:
            self._look_beyond(params)

    def _look_beyond(self, params: Params) -> None:
        """Remember a configuration if the search would not try it by itself; do nothing in an infinite space."""
        if self.spec.size is not None and not _is_enumerated(params, self.spec):
            self._beyond.add(key(params))


@dataclass(frozen=True, slots=True)
class Position:
    """The state of a sweep by which a person's request is checked: its trials, its spec and what may change."""

    name: str  # of the sweep
    address: str  # argument of commands that names it
    ledger: Ledger
    present: PresentSpec
    searcher_changes: bool = True  # whether the searcher can go on in another space
    # the sweep as it was when its process began; None if no process runs it
    began: Spec | None = None

    def observe(self, event: SteeringEvent) -> None:
        """Update the ledger and the spec with what a person has done to the sweep, as the log has it.

        Raises `OutOfOrder`, without any change, if the event cannot follow the events before it, as when it was
        observed already. Raises `InputError` if it changes the sweep file to one that is not valid.
        """
        self.present.observe(self.ledger.observe(event))


def _is_enumerated(params: Params, spec: Spec) -> bool:
    """Return whether the search tries a configuration of a finite space by itself.

    A grid search tries the points of its grid and its starting points, any other search all configurations in the
    space. None tries a configuration outside of the space.
    """
    if not spec.space.has(params):
        return False
    if not spec.search_method.enumerates:
        return True
    if _is_on_grid(params, spec.space):
        return True
    return any(
        key(one) == key(params) for one in complete_starts_on_grid(spec.space, spec.start_with)
    )


def _is_on_grid(params: Params, space: Space) -> bool:
    """Return whether each drawn value of a configuration is one that the grid has for its parameter.

    Drawn are the values of parameters that are neither constant nor computed from others.
    """
    return all(key(value) in values for value, values in _pair_with_grid(params, space))


def _pair_with_grid(params: Params, space: Space) -> Iterator[tuple[Value, set[str]]]:
    """Yield each drawn value of a configuration with the values that the grid has for its parameter, as `key` texts.

    Parameters that the configuration lacks are left out.
    """
    for parameter in space.parameters:
        if parameter.drawn and parameter.name in params:
            yield params[parameter.name], {key(value) for value in grid_values(parameter)}
