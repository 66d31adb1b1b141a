"""The values of names when their namespaces were first seen, for restoring them."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from sweep.state import values
from sweep.state.homes import Home
from sweep.state.values import Same, Snapshot

Traces: TypeAlias = "dict[str, object]"
"""Digests by name, equal if the values are equal."""


SHOWN = 3  # names in a line


def line_of_stale(names: Iterable[str]) -> str:
    """Return a line about names that trials have changed permanently; empty if there are none."""
    shown = ", ".join(sorted(names)[:SHOWN])
    return f"{shown}, changed by an earlier trial, cannot be put back" if shown else ""


class NotPutBack(Exception):
    """An author's method has changed something in place that cannot be restored."""


def traces(homes: Sequence[Home], names: Container[str] | None = None) -> Traces:
    """Return the digests of all data in these namespaces, or only of these names."""
    found = {}
    for home in homes:
        for name, value in home.data().items():
            full = f"{home.name}.{name}"
            if names is None or full in names:
                found[full] = values.digest(value)
    return found


def find_changed_names(before: Traces, after: Traces) -> set[str]:
    """Return the names whose values differ, or that exist only before or only after."""
    missing = object()
    return {name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)}


class Moving:
    """Names whose values change on their own, as by a thread of the author's; these are not restored."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def without(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Return the names that do not change on their own, after comparing their values twice."""
        if names:
            self.names |= find_changed_names(traces(homes, names), traces(homes, names))
        return names - self.names

    def described(self) -> str:
        """Return a line about such names; empty if none is known."""
        shown = ", ".join(sorted(self.names)[:SHOWN])
        return f"{shown} changes by itself, as by a thread" if shown else ""


moving = Moving()
"""Such names in this process."""


class Pristine:
    """A snapshot of the values in namespaces, each taken when the namespace was first seen, for restoring them."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, _Value]] = {}  # by namespace and name
        self._after: dict[str, Same | None] = {}  # value of a name after a method ran; None: no value
        self._owners: dict[str, Callable[[], object]] = {}

    def take(self, homes: Sequence[Home], names: Container[str] | None = None) -> None:
        """Record the values in namespaces that were not seen before, or only these names."""
        for home in homes:
            if not self.is_recorded(home):
                self._owners[home.name] = _held(home.owner)
                self._values[home.name] = {
                    name: _Value(value)
                    for name, value in home.data().items()
                    if names is None or f"{home.name}.{name}" in names
                }

    def is_recorded(self, home: Home) -> bool:
        """Return whether the values in this namespace were recorded."""
        return home.name in self._owners and self._owners[home.name]() is home.owner

    def traces(self) -> Traces:
        """Return the digests of all recorded values."""
        return {f"{home}.{name}": one.digest for home, values in self._values.items() for name, one in values.items()}

    def objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects in the recorded values, each with the name it was found under."""
        for home, named in self._values.items():
            for name, value in named.items():
                yield from ((f"{home}.{name}", one) for one in value.content.objects())

    def changed(self, homes: Sequence[Home]) -> set[str]:
        """Return the names whose values have changed, except those that change on their own."""
        return moving.without(homes, find_changed_names(self.traces(), traces(homes)))

    def put_back(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Restore these names to their recorded values and delete new ones; return those that cannot be restored.

        If other code has changed a name since `keep`, its present value is recorded instead. A namespace of which
        nothing is recorded stays as it is.
        """
        resisting = set()
        for home in homes:
            if not self.is_recorded(home):
                continue
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
        """Record the values of these names after an author's method has run."""
        for home in homes:
            present = home.data()
            for name in {*present, *self._values.get(home.name, {})}:
                if (full := f"{home.name}.{name}") in names:
                    self._after[full] = Same(present[name]) if name in present else None

    def as_it_is(self, home: Home, name: str, value: Any) -> Callable[[], Any]:
        """Return a function that returns this value with its present content, even after the name is restored."""
        known = self._values.get(home.name, {}).get(name)
        if known is None or known.given is not value or known.is_generator:
            return lambda: value
        before = {id(one) for one in known.content.objects()}
        content = Snapshot(value, variables=before)  # new variables are restored with the program created by the method

        def give() -> Any:
            content.restore()
            return value

        return give

    def unmoved(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Rewind every random generator among ``names`` to its recorded state; return the names rewound."""
        found = set()
        for home, name, value in self._same(homes, names):
            if value.is_generator:
                value.as_it_was()
                found.add(f"{home.name}.{name}")
        return found

    def check(self, homes: Sequence[Home], names: set[str], *, by: str, when: str) -> None:
        """Raise `NotPutBack` if a value among ``names`` was changed in place and is too large to be restored."""
        for home, name, value in self._same(homes, names):
            if value.too_large:
                raise NotPutBack(
                    f"{by} has changed {home.name}.{name} in place ({value.nbytes / 2**20:,.0f} MiB), expected that "
                    f"it leaves it as it is: {when}, and would begin with the changed values; compute on a copy, and "
                    "return that"
                )

    def _restore(self, home: Home, name: str, known: dict[str, _Value]) -> bool:
        """Restore one name; return whether its value equals the recorded one."""
        value = known[name]
        home.set(name, value.as_it_was())
        present = home.data().get(name)
        if values.digest(present) == value.digest:
            return True
        if not value.has_cache:
            return False
        known[name] = _Value(present)  # an empty cache is as good as one with earlier results
        return True

    def _same(self, homes: Sequence[Home], names: set[str]) -> Iterator[tuple[Home, str, _Value]]:
        """Yield the names among ``names`` that still have the same object."""
        for home in homes:
            known = self._values.get(home.name, {})
            for name, present in home.data().items():
                if f"{home.name}.{name}" in names and name in known and known[name].given is present:
                    yield home, name, known[name]


class _Value:
    """A value and its content at one time."""

    def __init__(self, given: Any) -> None:
        self.given = given
        digester = values.Digester()
        self.digest = digester.digest(given)
        self.nbytes, self.is_generator = digester.nbytes, values.generator_state(given) is not None
        self.content = Snapshot(given)
        self.too_large, self.has_cache = self.content.too_large, self.content.has_cache
        self._again = None if values.is_open(given) else _again(given)

    def as_it_was(self) -> Any:
        """Return the same object with its earlier content, or a copy of an iterator that has advanced."""
        self.content.restore()
        return self.given if self._again is None else self._again()


def _again(given: Any) -> Callable[[], Any] | None:
    """Return a function that copies an iterator in its present state; None for other values and if not copyable."""
    if not hasattr(given, "__next__") or not hasattr(given, "__iter__"):
        return None
    try:
        kept = copy.copy(given)
        copy.copy(kept)
    except TypeError:  # a generator or a file
        return None
    return lambda: copy.copy(kept)


def _held(owner: Any) -> Callable[[], object]:
    try:
        return weakref.ref(owner)
    except TypeError:  # the globals of a notebook
        return lambda: owner
