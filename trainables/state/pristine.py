"""What an author keeps, as it was before `data` ran: put back before it runs again, so that each run begins alike.

It is kept on the trainable, in the author's modules or in their classes. What `data` has left there is known by name.
So is what `model` and its kin leave in modules, which is put back before a model is made again, and what all other
methods, hooks and callbacks leave, which is put back when their trial ends.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from sweep.state import homes, imports, settings, trials, values
from sweep.state.homes import Home
from sweep.state.pristine import SHOWN, NotPutBack, Pristine, Traces, changed, moving, traces
from trainables.state import modules

__all__ = ["NotPutBack"]
DATA_AGAIN = "data() runs again for other trials and for the test"
MADE_AGAIN = "model() and its kin run again for other trials and for exports"


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
        return traces(self._homes(author), names) if names else {}

    @contextmanager
    def watched(self, author: object) -> Iterator[Callable[[], set[str]]]:
        """Run `data` inside, where all is as it was before the first time; gives the names that it has left so far.

        Generators of random numbers leave no trace: they go on as if nothing had been drawn.
        """
        with unmade():
            homes = self._homes(author)
            for pristine, some in self._by_kind(homes):
                pristine.take(some)
                trials.resisting.update(pristine.put_back(some, self.left(author)))
            before = traces(homes)

            def heard(new: list[Home]) -> None:
                _process.take(new)
                before.update(traces(new))

            def left() -> set[str]:
                present = self._homes(author)
                names = moving.without(present, changed(before, traces(present)))
                for pristine, some in self._by_kind(present):
                    names -= pristine.unmoved(some, names)
                mine = {name for name in names if name.startswith("self.")}
                self._left |= mine
                _left.setdefault(type(author), set()).update(names - mine)
                for pristine, some in self._by_kind(present):
                    pristine.keep(some, self.left(author))
                    pristine.check(some, names, by="data()", when=DATA_AGAIN)
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
        self.settings: settings.Values = {}  # of this process, that they have set

    def take(self, pristine: Pristine, homes: Sequence[Home], names: Container[str]) -> None:
        """Remember the present values of these names."""
        for home in homes:
            for name, value in home.data().items():
                if f"{home.name}.{name}" in names:
                    self._left.append((home, name, pristine.as_it_is(home, name, value)))

    def have(self) -> None:
        """Let the modules hold it in place of what other methods have left, for the program that was made so."""
        put_back_made()
        settings.write(self.settings)
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
        trials.resisting.update(pristine.put_back(homes, names))


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
    pristine, made, were = Pristine(), Made(), settings.read()
    pristine.take(modules.of(author))
    with _imported(author, pristine.take):
        try:
            yield made
        finally:
            homes = modules.of(author)
            names = pristine.changed(homes)
            names -= pristine.unmoved(homes, names)
            _remember(pristine, homes, names)
            made.take(pristine, homes, names)
            made.settings = settings.changed(were, settings.read())
    pristine.check(homes, names, by="model() or one of its kin", when=MADE_AGAIN)


def _remember(pristine: Pristine, homes: list[Home], names: set[str]) -> None:
    if names:
        pristine.keep(homes, names)
        _made.append((pristine, homes, names))


@contextmanager
def _imported(author: object, heard: Callable[[list[Home]], None]) -> Iterator[None]:
    """Hear of the author's modules that are imported in the block, as their own code leaves them."""
    with imports.heard(_teller(author, heard)):
        yield


def _teller(author: object, heard: Callable[[list[Home]], None]) -> imports.Listener:
    def tell(module: types.ModuleType) -> None:
        if modules.is_author_module(module.__name__, module.__file__, modules.tops(author)):
            heard(homes.of_module(module))

    return tell


class Trials:
    """What trials leave in the author's modules, and within what the trainable holds; given back after each.

    ``own``: the attributes of the trainable that are not the author's.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._found = trials.Found()

    def begin(self, author: object, data: object, *, trains: bool) -> None:
        """Remember what a trial on these data finds, once they are loaded and before another method runs.

        One that does not train is looked at in anybody's process, and nothing is given back after it.
        """
        names = frozenset(vars(author)) - self._own

        def places() -> list[Home]:
            return [Home("self", author, only=names), *modules.of(author)]

        def listener(found: Pristine) -> imports.Listener:
            return _teller(author, found.take)

        if trains:
            self._found.begin(places, of=data, listener=listener, before_end=put_back_made)
        else:
            self._found.look(places, of=data)

    def objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects that a trial finds, each with the name that it is kept under."""
        return self._found.objects()


def end_trial() -> None:
    """Let the author's modules be as the trial of this process has found them."""
    trials.end()
    put_back_made()


class Left:
    """What hooks and callbacks have changed in the author's modules and in this process since their trial began.

    A checkpoint holds the values that are plain; the names of all others are said where a trial goes on without them.
    """

    def __init__(self, author: object) -> None:
        self._author = author
        self._traces = self._present()
        self._settings = imports.follow(settings.Kept())

    def enter_phase(self) -> None:
        """Let what `model` has left for another phase be none of it."""
        of_model = {name for _, _, names in _made for name in names}
        self._traces |= {name: one for name, one in self._present().items() if name in of_model}

    def state(self) -> dict[str, Any]:
        """Return it for a checkpoint, as JSON."""
        names = moving.without(modules.of(self._author), changed(self._traces, self._present()))
        present = {full: value for full, value in self._values().items() if full in names}
        kept = {full: value for full, value in present.items() if _is_plain(value)}
        drawn = {full: _state_of(value) for full, value in present.items() if _state_of(value)}
        found = self._settings.own()
        plain = {name: value for name, value in found.items() if type(value) in _SINGLE}  # no passwords of os.environ
        lost = sorted({*names, *found} - {*kept, *drawn, *plain})
        return {"values": kept, "generators": drawn, "settings": plain, "lost": lost}

    def restore(self, state: Mapping[str, Any]) -> str:
        """Go on from what `state` gave; return a line about what it has not."""
        for home in modules.of(self._author):
            for full, value in state["values"].items():
                owner, _, name = full.rpartition(".")
                if owner == home.name:
                    _give(home, name, value)
            for name, generator in home.data().items():
                if f"{home.name}.{name}" in state["generators"]:
                    values.put_generator(generator, state["generators"][f"{home.name}.{name}"])
        settings.write(state["settings"])
        lost = ", ".join(state["lost"][:SHOWN])
        return (
            f"{lost}, changed by hooks or callbacks, is no plain value, and a resumed trial is without it"
            if lost
            else ""
        )

    def _present(self) -> Traces:
        return {
            f"{home.name}.{name}": _WithoutCallbacks().digest(value)
            for home in modules.of(self._author)
            for name, value in home.data().items()
        }

    def _values(self) -> dict[str, object]:
        return {f"{home.name}.{name}": one for home in modules.of(self._author) for name, one in home.data().items()}


class _WithoutCallbacks(values.Digester):
    """Digests a value apart from callbacks, whose state is kept by itself, and from what functions have cached."""

    def _of_parts(self, value: Any) -> object:
        if isinstance(value, keras.callbacks.Callback) or hasattr(value, "cache_info"):
            return values.Same(value)
        return super()._of_parts(value)


def _give(home: Home, name: str, value: Any) -> None:
    """Let a name have a plain value, in the same list or dictionary where it has one."""
    present = home.data().get(name)
    if isinstance(present, list) and isinstance(value, list):
        present[:] = value
    elif isinstance(present, dict) and isinstance(value, dict):
        present.clear()
        present.update(value)
    else:
        home.set(name, value)


_SINGLE = (bool, int, float, str)


def _is_plain(value: object) -> bool:
    """Return whether JSON gives the same value again."""
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(name) is str and _is_plain(part) for name, part in value.items())
    return value is None or type(value) in _SINGLE


def _state_of(value: object) -> Any:
    """Return how far a generator of NumPy's is; None for all else."""
    return values.generator_state(value) if isinstance(value, np.random.Generator) else None
