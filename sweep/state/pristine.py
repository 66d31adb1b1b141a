"""The values under names, each as it was when its home was first seen, to be given back."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from sweep.state import values
from sweep.state.homes import Home
from sweep.state.values import Same, Snapshot

Traces: TypeAlias = "dict[str, object]"
"""Digests by name, equal where the values are."""


SHOWN = 3  # names in a line


def line_of_stale(names: Iterable[str]) -> str:
    """Return a line about what trials of this process have changed for good; empty where that is nothing."""
    shown = ", ".join(sorted(names)[:SHOWN])
    return f"{shown}, changed by an earlier trial, cannot be put back" if shown else ""


class NotPutBack(Exception):
    """An author's method has changed something in place that cannot be put back."""


def traces(homes: Sequence[Home], names: Container[str] | None = None) -> Traces:
    """Return the digests of all data in these homes; of these names alone."""
    found = {}
    for home in homes:
        for name, value in home.data().items():
            full = f"{home.name}.{name}"
            if names is None or full in names:
                found[full] = values.digest(value)
    return found


def changed(before: Traces, after: Traces) -> set[str]:
    """Return the names whose values differ, or that are there only before or only afterwards."""
    missing = object()
    return {name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)}


class Moving:
    """The names whose values change by themselves, as a thread of the author's changes them: nobody's to put back."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def without(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Return those of the names that are not moving; look twice to tell."""
        if names:
            self.names |= changed(traces(homes, names), traces(homes, names))
        return names - self.names

    def described(self) -> str:
        """Return a line about them; empty where none is known."""
        shown = ", ".join(sorted(self.names)[:SHOWN])
        return f"{shown} changes by itself, as by a thread" if shown else ""


moving = Moving()
"""Those of this process."""


class Pristine:
    """The values in some homes, each as it was when its home was first seen."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, _Value]] = {}  # by home and name
        self._after: dict[str, Same | None] = {}  # what a method has left under a name; None: nothing
        self._owners: dict[str, Callable[[], object]] = {}

    def take(self, homes: Sequence[Home], names: Container[str] | None = None) -> None:
        """Look at the homes that were not seen before; at these names alone."""
        for home in homes:
            if home.name not in self._owners or self._owners[home.name]() is not home.owner:
                self._owners[home.name] = _held(home.owner)
                self._values[home.name] = {
                    name: _Value(value)
                    for name, value in home.data().items()
                    if names is None or f"{home.name}.{name}" in names
                }

    def traces(self) -> Traces:
        """Return the digests of all values as they were."""
        return {f"{home}.{name}": one.digest for home, values in self._values.items() for name, one in values.items()}

    def objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects that there were, each with the name that it was found under."""
        for home, named in self._values.items():
            for name, value in named.items():
                yield from ((f"{home}.{name}", one) for one in value.content.objects())

    def changed(self, homes: Sequence[Home]) -> set[str]:
        """Return the names whose values are others now, but for those that move by themselves."""
        return moving.without(homes, changed(self.traces(), traces(homes)))

    def put_back(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Give these names the values that they had, forget those that were not there; return those that resist.

        What somebody else has put there since `keep` is the value that it has from now on.
        """
        resisting = set()
        for home in homes:
            known, present = self._values.get(home.name, {}), home.data()
            for name in {*present, *known}:
                full = f"{home.name}.{name}"
                if full not in names:
                    continue
                if (Same(present[name]) if name in present else None) != self._after.get(full):
                    if name in present:
                        known[name] = _Value(present[name])
                    else:
                        known.pop(name, None)
                elif name in known:
                    if not self._restore(home, name, known):
                        resisting.add(full)
                else:
                    home.remove(name)
        return resisting - moving.names

    def keep(self, homes: Sequence[Home], names: set[str]) -> None:
        """Remember what these names hold now that the author's method has run."""
        for home in homes:
            present = home.data()
            for name in {*present, *self._values.get(home.name, {})}:
                if (full := f"{home.name}.{name}") in names:
                    self._after[full] = Same(present[name]) if name in present else None

    def as_it_is(self, home: Home, name: str, value: Any) -> Callable[[], Any]:
        """Return what gives this value of a name with the content that it has now, also after it was put back."""
        known = self._values.get(home.name, {}).get(name)
        if known is None or known.given is not value or known.is_generator:
            return lambda: value
        before = {id(one) for one in known.content.objects()}
        content = Snapshot(value, variables=before)  # new ones are put back with the program that was made

        def give() -> Any:
            content.restore()
            return value

        return give

    def unmoved(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Return those of these names that are generators of random numbers, now as far as they were before."""
        found = set()
        for home, name, value in self._same(homes, names):
            if value.is_generator:
                value.as_it_was()
                found.add(f"{home.name}.{name}")
        return found

    def check(self, homes: Sequence[Home], names: set[str], *, by: str, when: str) -> None:
        """Raise `NotPutBack` for what was changed in place and is too large to be known as it was."""
        for home, name, value in self._same(homes, names):
            if value.too_large:
                raise NotPutBack(
                    f"{by} has changed {home.name}.{name} in place ({value.nbytes / 2**20:,.0f} MiB), expected that "
                    f"it leaves it as it is: {when}, and would begin with the changed values; compute on a copy, and "
                    "return that"
                )

    def _restore(self, home: Home, name: str, known: dict[str, _Value]) -> bool:
        """Give one name its value; return whether it is as it was."""
        value = known[name]
        home.set(name, value.as_it_was())
        present = home.data().get(name)
        if values.digest(present) == value.digest:
            return True
        if not value.has_cache:
            return False
        known[name] = _Value(present)  # an empty cache is as good as one that holds what was computed before
        return True

    def _same(self, homes: Sequence[Home], names: set[str]) -> Iterator[tuple[Home, str, _Value]]:
        """Yield the names that are of the same object as before."""
        for home in homes:
            known = self._values.get(home.name, {})
            for name, present in home.data().items():
                if f"{home.name}.{name}" in names and name in known and known[name].given is present:
                    yield home, name, known[name]


class _Value:
    """A value, with its content at one time."""

    def __init__(self, given: Any) -> None:
        self.given = given
        digester = values.Digester()
        self.digest = digester.digest(given)
        self.nbytes, self.is_generator = digester.nbytes, values.generator_state(given) is not None
        self.content = Snapshot(given)
        self.too_large, self.has_cache = self.content.too_large, self.content.has_cache
        self._again = None if values.is_open(given) else _again(given)

    def as_it_was(self) -> Any:
        """Return the same object with the content that it had, or a copy of an iterator that has gone on."""
        self.content.restore()
        return self.given if self._again is None else self._again()


def _again(given: Any) -> Callable[[], Any] | None:
    """Return what makes an iterator as it is now, where it cannot be set back; None for all that is none."""
    if not hasattr(given, "__next__") or not hasattr(given, "__iter__"):
        return None
    try:
        kept = copy.copy(given)
        copy.copy(kept)
    except TypeError:  # a generator, or a file
        return None
    return lambda: copy.copy(kept)


def _held(owner: Any) -> Callable[[], object]:
    try:
        return weakref.ref(owner)
    except TypeError:  # the globals of a notebook
        return lambda: owner
