"""The changes that people have made to a sweep, and what they mean for its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.errors import InputError
from sweep.events import Role
from sweep.space.domains import (
    Domain,
    Range,
    Tied,
    contains,
    get_domain_bounds,
    get_quantum,
    list_choices,
)
from sweep.text import counted

if TYPE_CHECKING:
    from sweep.analysis.ranking import RankedConfiguration
    from sweep.analysis.sweep_rows import Sweep, Trial
    from sweep.space.search_space import Space
    from sweep.spec.changes import Difference
    from sweep.store.folder import ResultsFolder


@dataclass(frozen=True, slots=True)
class MadeChange:
    """A change that a person made: who made it, when, and how the sweep file differed afterwards."""

    time: float  # seconds since 1970
    by: str
    differences: tuple[Difference, ...]


def list_changes(folder: ResultsFolder) -> list[MadeChange]:
    """Return the changes of the sweep file that the log of a sweep has, in order; empty if there are none or no log.

    Raises `StoreError` if sweep.json or a change in the log cannot be read, and `InputError` if the sweep file, as it
    was at first or after a change, is not valid in this version.
    """
    from sweep.spec import changes, parse_spec
    from sweep.store import log

    info = folder.read_info()
    spec = parse_spec(info.first_spec_text, str(folder.info))
    found = []
    for event in log.read_changes(folder.log):
        after = changes.apply_settings(spec, event.settings, str(folder.log))
        found.append(MadeChange(event.time, event.by, tuple(changes.list_differences(spec, after))))
        spec = after
    return found


def describe_to_come(trials: int | None, added: int) -> str:
    """Return in words which trials are left to train since an ended sweep was changed; "" if there are none.

    Arguments:
        trials: number of trials that have not begun; None if only time or epochs limit them.
        added: number of configurations among these that a person has added, which are trained first.
    """
    if trials == 0 and not added:
        return ""
    if trials is None:
        text = "more trials, since it was changed"
    else:
        text = f"{counted(trials, 'trial')}, since it was changed"
    if added:
        text += f"; first {counted(added, 'added configuration')}"
    return text


def warn_about_spaces(sweeps: Sequence[Sweep], rows: Sequence[RankedConfiguration]) -> str:
    """Return a warning that configurations were chosen from different spaces; "" if all were from the same.

    ``rows`` are the configurations of all ``sweeps``. There is a warning about each sweep whose space was changed, even
    if nothing was tried since. It says how many configurations of the search were chosen before the last change, and
    how many had no chance of new values if a change has brought any; one that only narrows the space brings none. The
    latter is left out if this version of sweep refuses the sweep file. Raises `StoreError` if the sweep.json of such a
    sweep cannot be read.
    """
    warnings = []
    for sweep in sweeps:
        if not sweep.space_changes:
            continue
        searched = []  # the trials of each configuration of the search
        for row in rows:
            if row.sweep == sweep.name and _is_searched(row):
                searched.append(row.trials)
        if len(sweeps) > 1:
            named = f" of {sweep.name}"
        else:
            named = ""
        times = counted(sweep.space_changes, "time")
        before = _count_chosen_before(searched, sweep.space_changes)
        told = (
            f"The space{named} was changed {times} while it was searched: {before} of its "
            f"{counted(len(searched), 'configuration')} were chosen before"
        )
        # which of the changes was the last that brought new values; 0 if none did
        try:
            widened = _find_last_widening(sweep)
        except InputError:  # of another version; the ranking does not depend on the file
            widened = 0
        without = _count_chosen_before(searched, widened)
        # all that were chosen before the last change lack its values
        if widened == sweep.space_changes:
            told += ", and had no chance of the new values"
        elif widened:
            told += f", and {without} had no chance of the new values"
        warnings.append(f"{told}.")
    return " ".join(warnings)


def _count_chosen_before(searched: Sequence[Sequence[Trial]], space_version: int) -> int:
    """Return how many configurations were chosen when the space had been changed fewer than ``space_version`` times.

    ``searched`` has the trials of each configuration.
    """
    return sum(find_space_version(trials) < space_version for trials in searched)


def _find_last_widening(sweep: Sweep) -> int:
    """Return which change of the space, counted from 1, was the last to bring new values; 0 if none did.

    Raises `InputError` if this version of sweep refuses the sweep file, and `StoreError` if sweep.json cannot be read.
    """
    from sweep.spec import changes, parse_spec

    info = sweep.folder.read_info()
    spec = parse_spec(info.first_spec_text, str(sweep.folder.info))
    version = 0
    widened = 0
    for settings in sweep.history.changes:
        after = changes.apply_settings(spec, settings, str(sweep.folder.log))
        if not changes.SPACE.isdisjoint(settings):  # a key of the space was changed
            version += 1
            if has_new_values(spec.space, after.space):
                widened = version
        spec = after
    return widened


def has_new_values(before: Space, after: Space) -> bool:
    """Return whether a changed space may have configurations that the earlier space did not; True if in doubt.

    A parameter that is added or removed, and conditions or constraints that differ, are a doubt, except constraints
    that are only added. The order of choices and the prior do not matter.
    """
    known = {parameter.name: parameter for parameter in before.parameters}
    if set(known) != set(after.names) or not set(before.constraints) <= set(after.constraints):
        return True
    for parameter in after.parameters:
        earlier = known[parameter.name]
        if parameter.when != earlier.when or not _is_within(parameter.domain, earlier.domain):
            return True
    return False


def _is_within(domain: Domain, outer: Domain) -> bool:
    """Return whether ``outer`` surely has all values of ``domain``; False if in doubt."""
    if domain == outer:
        return True
    choices = list_choices(domain)
    if choices is not None:
        # `contains` is True for all values of a tied domain, whose values depend on other parameters
        return not isinstance(outer, Tied) and all(contains(outer, value) for value in choices)
    if not isinstance(domain, Range) or not isinstance(outer, Range):
        return False
    outer_step = get_quantum(outer)
    # unless both have the same steps, values of `domain` may lie between those of `outer`
    if outer_step is not None and outer_step != get_quantum(domain):
        return False
    low, high = get_domain_bounds(domain)
    lowest, highest = get_domain_bounds(outer)
    return lowest <= low and high <= highest


def _is_searched(row: RankedConfiguration) -> bool:
    """Return whether a configuration has a trial of the search, not only of the baseline or the confirmation."""
    return any(trial.role is Role.SEARCH for trial in row.trials)


def find_space_version(trials: Sequence[Trial]) -> int:
    """Return how often the space had been changed before the configuration of ``trials`` was chosen.

    It is the minimum over the trials; 0 if there are none.
    """
    return min((trial.space_version for trial in trials), default=0)
