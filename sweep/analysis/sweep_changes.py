"""The changes that people have made to a sweep, and what they mean for its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.events import Role
from sweep.text import counted

if TYPE_CHECKING:
    from sweep.analysis.ranking import RankedConfiguration
    from sweep.analysis.sweep_rows import Sweep, Trial
    from sweep.spec.changes import Difference
    from sweep.store.folder import ResultsFolder


@dataclass(frozen=True, slots=True)
class MadeChange:
    """A change that a person made: who made it, when, and how the sweep file differed afterwards."""

    time: float  # seconds since 1970
    by: str
    differences: tuple[Difference, ...]


def list_changes(folder: ResultsFolder) -> list[MadeChange]:
    """Return the changes of the sweep file in a log, in order. Raises `StoreError`."""
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
        trials: trials that have not begun; None if only time or epochs limit them.
        added: configurations among these that a person has added.
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

    A sweep that was changed but has tried nothing since counts as changed, too.
    """
    warnings = []
    for sweep in sweeps:
        if not sweep.space_changes:
            continue
        searched = []
        for row in rows:
            if row.sweep == sweep.name and _is_searched(row):
                searched.append(row.trials)
        before = sum(find_space_version(trials) < sweep.space_changes for trials in searched)
        if len(sweeps) > 1:
            named = f" of {sweep.name}"
        else:
            named = ""
        times = counted(sweep.space_changes, "time")
        warnings.append(
            f"The space{named} was changed {times} while it was searched: {before} of its "
            f"{counted(len(searched), 'configuration')} were chosen before, and had no chance of the new values."
        )
    return " ".join(warnings)


def _is_searched(row: RankedConfiguration) -> bool:
    """Return whether a configuration is one of the search."""
    return any(trial.role is Role.SEARCH for trial in row.trials)


def find_space_version(trials: Sequence[Trial]) -> int:
    """Return how often the space had been changed before the configuration of these trials was chosen."""
    return min((trial.space_version for trial in trials), default=0)
