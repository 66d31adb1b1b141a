"""Undoes what the present trial of this process changes in modules and classes, when it ends or the next one begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from sweep.state import imports
from sweep.state.homes import Home
from sweep.state.pristine import Pristine, find_changed_names, line_of_stale, traces

_Homes = Callable[[], list[Home]]
_Listener = Callable[[Pristine], imports.Listener]


@dataclass
class _Going:
    """The present trial of this process."""

    found: Pristine
    homes: _Homes
    before_end: Callable[[], None]
    stop_hearing: Callable[[], None]
    modules: frozenset[str]  # names in `sys.modules` when it began
    left: set[str] | None = None  # names that the trial changed, once it is over; later changes are not its own


_going: list[_Going] = []  # at most one
_lines: list[str] = []
resisting: set[str] = set()
"""Names in this process that a trial has changed and that could not be restored."""


class StartingValues:
    """The values of names that the trials of one trainable begin with; recorded again after deliberate changes."""

    def __init__(self) -> None:
        self._pristine = Pristine()
        self._of: object = None

    def begin(
        self,
        homes: _Homes,
        *,
        of: object,
        listener: _Listener,
        before_end: Callable[[], None],
    ) -> None:
        """End the previous trial and record the values of names before this one.

        Arguments:
            homes: returns the namespaces to watch.
            of: the values are recorded again if this object is another one than for the last trial.
            listener: turns the recorded values into a listener for imports.
            before_end: called when the trial ends.
        """
        restore_names()
        self.look(homes, of=of)
        stop_hearing = imports.hear(listener(self._pristine))
        _going.append(_Going(self._pristine, homes, before_end, stop_hearing, frozenset(sys.modules)))

    def look(self, homes: _Homes, *, of: object) -> None:
        """Record the values of names without restoring any."""
        if self._of is not of:
            self._pristine, self._of = Pristine(), of
        self._pristine.take(homes())

    def objects(self) -> Iterator[tuple[str, object]]:
        """Yield all recorded objects, each with the name it is kept under."""
        return self._pristine.objects()


def rest() -> None:
    """Record what the present trial has changed, because it is over.

    The changes stay, as its model may still be inspected, saved, tested or exported.
    """
    for trial in _going:
        if trial.left is None:
            homes = trial.homes()
            trial.left = trial.found.changed(homes)
            trial.found.keep(homes, trial.left)


def restore_names() -> None:
    """Restore all names to their values before the present trial."""
    rest()
    while _going:
        trial = _going.pop()
        trial.stop_hearing()
        trial.before_end()
        _forget_new_modules(trial)
        homes, names = trial.homes(), trial.left or set()
        own = names & find_changed_names(trial.found.traces(), traces(homes))  # not what building a model changed
        _lines.extend(_describe_change(full) for full in sorted(own) if _is_content(_value_of(homes, full)))
        resisting.update(trial.found.put_back(homes, names))


def _forget_new_modules(trial: _Going) -> None:
    """Remove the modules that a trial has put into `sys.modules` without importing them.

    The next trial loads them again, as in a fresh process. Modules that were imported are recorded then, and stay.
    """
    for home in trial.homes():
        is_new = isinstance(home.owner, ModuleType) and home.name not in trial.modules
        if is_new and not trial.found.is_recorded(home) and sys.modules.get(home.name) is home.owner:
            del sys.modules[home.name]


def lines() -> list[str]:
    """Return messages about restored names; each message is returned once."""
    said, _lines[:] = [*dict.fromkeys(_lines)], []
    return said


def stale() -> str:
    """Return a line about what earlier trials have changed permanently; empty if nothing."""
    return line_of_stale(resisting)


def _describe_change(name: str) -> str:
    return f"{name}, which a trial has changed, is as before for the next one: trials share nothing (docs/limits.md)"


def _value_of(homes: list[Home], full: str) -> object:
    """Return the present value of a name; None if it has none."""
    for home in homes:
        if full.startswith(f"{home.name}."):
            return home.data().get(full.removeprefix(f"{home.name}."))
    return None


def _is_content(value: object) -> bool:
    """Return whether a value is one that code collects or counts in."""
    return isinstance(value, list | dict | set | int | float | np.ndarray)
