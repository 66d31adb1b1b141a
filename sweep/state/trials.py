"""What the present trial of this process changes under names, given back when it ends or when the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sweep.state import imports
from sweep.state.homes import Home
from sweep.state.pristine import Pristine, changed, line_of_stale, traces

_Homes = Callable[[], list[Home]]
_Listener = Callable[[Pristine], imports.Listener]


@dataclass
class _Going:
    """The trial of this process."""

    found: Pristine
    homes: _Homes
    before_end: Callable[[], None]
    stop_hearing: Callable[[], None]
    left: set[str] | None = None  # by the trial, where it is over: all else that changes is somebody else's


_going: list[_Going] = []  # one at most
_lines: list[str] = []
resisting: set[str] = set()
"""The names in this process that some trial has changed, and that could not be given back what they had."""


class Found:
    """What the trials of one trainable find under names; taken again where that has changed on purpose."""

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
        """Remember what a trial finds; ``of``: while this is the same, so is what trials find.

        ``listener`` makes of what is remembered a listener to imports, and ``before_end`` is called as the trial ends.
        """
        end()
        self.look(homes, of=of)
        _going.append(_Going(self._pristine, homes, before_end, imports.hear(listener(self._pristine))))

    def look(self, homes: _Homes, *, of: object) -> None:
        """Remember what is found, and give nothing back."""
        if self._of is not of:
            self._pristine, self._of = Pristine(), of
        self._pristine.take(homes())

    def objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects that trials find, each with the name that it is kept under."""
        return self._pristine.objects()


def rest() -> None:
    """Note what the present trial has left, which is over: it may yet be looked at, saved, tested or exported."""
    for trial in _going:
        if trial.left is None:
            homes = trial.homes()
            trial.left = trial.found.changed(homes)
            trial.found.keep(homes, trial.left)


def end() -> None:
    """Let all names have what the present trial has found."""
    rest()
    while _going:
        trial = _going.pop()
        trial.stop_hearing()
        trial.before_end()
        homes, names = trial.homes(), trial.left or set()
        own = names & changed(trial.found.traces(), traces(homes))  # what is none of a model's making
        _lines.extend(_line(full) for full in sorted(own) if _is_content(_value_of(homes, full)))
        resisting.update(trial.found.put_back(homes, names))


def lines() -> list[str]:
    """Return what is to be said of what was given back; each once."""
    said, _lines[:] = [*dict.fromkeys(_lines)], []
    return said


def stale() -> str:
    """Return what earlier trials have changed in this process for good; empty where that is nothing."""
    return line_of_stale(resisting)


def _line(name: str) -> str:
    return f"{name}, which a trial has changed, is as before for the next one: trials share nothing (docs/limits.md)"


def _value_of(homes: list[Home], full: str) -> object:
    """Return the present value of a name; None where it has none."""
    for home in homes:
        if full.startswith(f"{home.name}."):
            return home.data().get(full.removeprefix(f"{home.name}."))
    return None


def _is_content(value: object) -> bool:
    """Return whether a value is one that somebody collects in, or counts with."""
    return isinstance(value, list | dict | set | int | float | np.ndarray)
