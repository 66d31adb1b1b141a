"""What an author keeps, as it was before `data` ran: put back before it runs again, so that each run begins alike.

It is kept on the trainable, in the author's modules or in their classes. What `data` has left there is known by name.
So is what `model` and its kin leave in modules, which is put back before a model is made again.
"""

from __future__ import annotations

import copy
import types
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterator, MutableMapping, MutableSet, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trainables.state import attributes, modules
from trainables.state.attributes import Same, Traces
from trainables.state.modules import Home

DATA_AGAIN = "data() runs again for other trials and for the test"
MADE_AGAIN = "model() and its kin run again for other trials and for exports"
COPIED_BYTES = 16 * 2**20  # of one value; a larger one may be replaced, not changed


class NotPutBack(Exception):
    """An author's method has changed something in place that cannot be put back."""


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

    def put_back(self, homes: Sequence[Home], names: set[str]) -> None:
        """Give these names the values that they had; those that were not there are forgotten.

        What somebody else has put there since is the value that it has from now on.
        """
        for home in homes:
            values, present = self._values.get(home.name, {}), home.data()
            for name in {*present, *values}:
                full = f"{home.name}.{name}"
                if full not in names:
                    continue
                if (Same(present[name]) if name in present else None) != self._after.get(full):
                    if name in present:
                        values[name] = _Value(present[name])
                    else:
                        values.pop(name, None)
                elif name in values:
                    home.set(name, values[name].as_it_was())
                else:
                    home.remove(name)

    def keep(self, homes: Sequence[Home], names: set[str]) -> None:
        """Remember what these names hold now that the author's method has run."""
        for home in homes:
            present = home.data()
            for name in {*present, *self._values.get(home.name, {})}:
                if (full := f"{home.name}.{name}") in names:
                    self._after[full] = Same(present[name]) if name in present else None

    def as_it_is(self, home: Home, name: str, value: Any) -> Callable[[], Any]:
        """What gives this value of a name with the content that it has now, also after it was put back."""
        known = self._values.get(home.name, {}).get(name)
        return known.as_it_is() if known is not None and known.given is value else lambda: value

    def unmoved(self, homes: Sequence[Home], names: set[str]) -> set[str]:
        """Those of these names that are generators of random numbers, now as far as they were before."""
        found = set()
        for home, name, value in self._same(homes, names):
            if value.is_generator:
                value.as_it_was()
                found.add(f"{home.name}.{name}")
        return found

    def check(self, homes: Sequence[Home], names: set[str], *, by: str = "data()", when: str = DATA_AGAIN) -> None:
        """Raise `NotPutBack` for what was changed in place and is not known as it was."""
        for home, name, value in self._same(homes, names):
            if value.too_large:
                raise NotPutBack(
                    f"{by} has changed {home.name}.{name} in place ({value.nbytes / 2**20:,.0f} MiB), expected that "
                    f"it leaves it as it is: {when}, and would begin with the changed values; compute on a copy, and "
                    "return that"
                )

    def _same(self, homes: Sequence[Home], names: set[str]) -> Iterator[tuple[Home, str, _Value]]:
        """The names that are of the same object as before."""
        for home in homes:
            values = self._values.get(home.name, {})
            for name, present in home.data().items():
                if f"{home.name}.{name}" in names and name in values and values[name].given is present:
                    yield home, name, values[name]


class _Value:
    def __init__(self, given: Any) -> None:
        self.given = given
        digester = attributes.Digester()
        self.digest = digester.digest(given)
        self.nbytes, state = digester.nbytes, attributes.generator_state(given)
        self.is_generator = state is not None
        self.too_large = not self.is_generator and self.nbytes > COPIED_BYTES
        self._copy, self._is_copied, self._code = state, self.is_generator, digester.code
        if not self.is_generator and digester.whole and not self.too_large:
            self._copy, self._is_copied = _copied(given, self._code)

    def as_it_was(self) -> Any:
        """The same object with the content that it had; as it is, where no copy could be made."""
        given = self.given
        if not self._is_copied:
            return given
        if self.is_generator:
            attributes.put_generator(given, self._copy)
            return given
        return _filled(given, copy.deepcopy(self._copy, {**self._code}))

    def as_it_is(self) -> Callable[[], Any]:
        """What gives the same object with the content that it has now, by reference; for one that can be put back."""
        given = self.given
        if not self._is_copied or self.is_generator:
            return lambda: given
        content = copy.copy(given)
        return lambda: _filled(given, copy.copy(content))


def _filled(given: Any, content: Any) -> Any:
    """An object with the content of another; that itself, where nothing can be put in."""
    match given:
        case tuple():
            return content
        case deque():
            given.clear()
            given.extend(content)
        case MutableMapping():
            given.clear()
            given.update(content)
        case MutableSet():
            given.clear()
            given |= content
        case list():
            given[:] = content
        case np.ndarray() if given.flags.writeable:
            given[...] = content
        case _ if hasattr(given, "__dict__"):
            vars(given).clear()
            vars(given).update(vars(content))
    return given


class Surroundings:
    """An author's object and modules, as `data` finds and leaves them; ``own``: attributes that are not his."""

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._object = Pristine()
        self._left: set[str] = set()

    def left(self, author: object) -> set[str]:
        """The names of all that `data` has ever left, on this object or in modules."""
        return self._left | _left.get(type(author), set())

    @property
    def attributes(self) -> frozenset[str]:
        """Those of them that are attributes."""
        return frozenset(name.removeprefix("self.") for name in self._left)

    def traces(self, author: object) -> Traces:
        """What `data` has left, as it is now."""
        names = self.left(author)
        return attributes.of(self._homes(author), names) if names else {}

    @contextmanager
    def watched(self, author: object) -> Iterator[Callable[[], set[str]]]:
        """Run `data` inside, where all is as it was before the first time; gives the names that it has left so far.

        Generators of random numbers leave no trace: they go on as if nothing had been drawn.
        """
        with unmade():
            homes = self._homes(author)
            for pristine, some in self._by_kind(homes):
                pristine.take(some)
                pristine.put_back(some, self.left(author))
            before = attributes.of(homes)

            def heard(new: list[Home]) -> None:
                _process.take(new)
                before.update(attributes.of(new))

            def left() -> set[str]:
                present = self._homes(author)
                names = attributes.changed(before, attributes.of(present))
                for pristine, some in self._by_kind(present):
                    names -= pristine.unmoved(some, names)
                mine = {name for name in names if name.startswith("self.")}
                self._left |= mine
                _left.setdefault(type(author), set()).update(names - mine)
                for pristine, some in self._by_kind(present):
                    pristine.keep(some, self.left(author))
                    pristine.check(some, names)
                return self.left(author)

            with _imported(author, heard):
                try:
                    yield left
                finally:
                    left()

    def _homes(self, author: object) -> list[Home]:
        return [Home("self", author, self._own), *modules.of(author)]

    def _by_kind(self, homes: list[Home]) -> list[tuple[Pristine, list[Home]]]:
        return [(self._object, homes[:1]), (_process, homes[1:])]


_process = Pristine()  # the modules of this process
_left: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()  # names in modules, by trainable


class Made:
    """What the methods that make a model have left in the author's modules."""

    def __init__(self) -> None:
        self._left: list[tuple[Home, str, Callable[[], Any]]] = []

    def take(self, pristine: Pristine, homes: Sequence[Home], names: Container[str]) -> None:
        """Remember the present values of these names."""
        for home in homes:
            for name, value in home.data().items():
                if f"{home.name}.{name}" in names:
                    self._left.append((home, name, pristine.as_it_is(home, name, value)))

    def have(self) -> None:
        """Let the modules hold it in place of what other methods have left, for the program that was made so."""
        put_back_made()
        homes = [*{home.name: home for home, *_ in self._left}.values()]
        names = {f"{home.name}.{name}" for home, name, _ in self._left}
        pristine = Pristine()
        pristine.take(homes, names)
        for home, name, value in self._left:
            home.set(name, value())
        _remember(pristine, homes, names)


_made: list[tuple[Pristine, list[Home], set[str]]] = []  # one at most: how to put back what was made last


def put_back_made() -> None:
    """Give the author's modules what they held before a model was made: so do all models begin alike."""
    while _made:
        pristine, homes, names = _made.pop()
        pristine.put_back(homes, names)


@contextmanager
def unmade() -> Iterator[None]:
    """Have the modules as before the present model was made inside the block, and afterwards as they are now."""
    held = Made()
    for one in _made:
        held.take(*one)
    put_back_made()
    try:
        yield
    finally:
        held.have()


@contextmanager
def making(author: object) -> Iterator[Made]:
    """Run `model` and its kin inside, where the modules are as if they had not run before; gives what they leave.

    It stays until a model is made again, or another trial begins: the hooks of this one may look at it.
    """
    put_back_made()
    pristine, made = Pristine(), Made()
    pristine.take(modules.of(author))
    with _imported(author, pristine.take):
        try:
            yield made
        finally:
            homes = modules.of(author)
            names = attributes.changed(pristine.traces(), attributes.of(homes))
            names -= pristine.unmoved(homes, names)
            _remember(pristine, homes, names)
            made.take(pristine, homes, names)
    pristine.check(homes, names, by="model() or one of its kin", when=MADE_AGAIN)


def _remember(pristine: Pristine, homes: list[Home], names: set[str]) -> None:
    if names:
        pristine.keep(homes, names)
        _made.append((pristine, homes, names))


@contextmanager
def _imported(author: object, heard: Callable[[list[Home]], None]) -> Iterator[None]:
    """Hear of the author's modules that are imported in the block, as their own code leaves them."""

    def tell(module: types.ModuleType) -> None:
        if modules.is_author_module(module.__name__, module.__file__, modules.tops(author)):
            home = Home(module.__name__, module)
            heard([home, *home.classes()])

    with modules.imported(tell):
        yield


def _held(owner: Any) -> Callable[[], object]:
    try:
        return weakref.ref(owner)
    except TypeError:  # the globals of a notebook
        return lambda: owner


def _copied(value: Any, code: dict[int, object]) -> tuple[Any, bool]:
    try:
        return copy.deepcopy(value, {**code}), True
    except Exception:  # whatever an object's own code raises
        return None, False
