"""Snapshots of what an author keeps outside the data, restored before `data` runs again so that all runs begin alike.

An author keeps values on the trainable, in modules or in their classes. What `data` leaves there is recorded by name.
What `model` and the related methods leave in modules is restored before a model is made again, and what all other
methods, hooks and callbacks leave is restored when their trial ends.
"""

from __future__ import annotations

import os
import types
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from sweep.state import homes, imports, settings, trials, values
from sweep.state.homes import Home
from sweep.state.pristine import SHOWN, NotPutBack, Pristine, Traces, find_changed_names, moving, traces
from trainables.state import modules

__all__ = ["NotPutBack"]
DATA_AGAIN = "data() runs again for other trials and for the test"
MADE_AGAIN = "model() and its kin run again for other trials and for exports"


class AuthorSurroundings:
    """An author's object and modules, as `data` finds and leaves them.

    ``own`` has the attributes that do not belong to the author.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._object = Pristine()
        self._left: set[str] = set()

    def left(self, author: object) -> set[str]:
        """Return the names of everything that `data` has ever left, on this object or in modules."""
        return self._left | _left.get(type(author), set())

    @property
    def attributes(self) -> frozenset[str]:
        """Return the attributes that `data` has ever left on this object."""
        return frozenset(name.removeprefix("self.") for name in self._left)

    def traces(self, author: object) -> Traces:
        """Return digests of what `data` has left, as it is now."""
        names = self.left(author)
        return traces(self._homes(author), names) if names else {}

    @contextmanager
    def watched(self, author: object) -> Iterator[Callable[[], set[str]]]:
        """Run `data` inside the block, with everything as it was before its first run.

        Yields a function that returns the names that `data` has left so far. Random generators are rewound, so they are
        not among these.
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
                names = moving.without(present, find_changed_names(before, traces(present)))
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
        return [Home("self", author, self._own), *modules.find_homes(author)]

    def _by_kind(self, homes: list[Home]) -> list[tuple[Pristine, list[Home]]]:
        return [(self._object, homes[:1]), (_process, homes[1:])]


_process = Pristine()  # of the modules of this process
_left: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()  # names in modules, by trainable


class MadeValues:
    """Values that the methods that make a model have left in the author's modules and in the process's settings."""

    def __init__(self) -> None:
        self._left: list[tuple[Home, str, Callable[[], Any]]] = []
        self.settings: settings.Values = {}  # settings of this process that they have changed
        self.folder: Path | None = None  # the working folder, if they have changed it

    def take(self, pristine: Pristine, homes: Sequence[Home], names: Container[str]) -> None:
        """Remember the present values of these names."""
        for home in homes:
            for name, value in home.data().items():
                if f"{home.name}.{name}" in names:
                    self._left.append((home, name, pristine.as_it_is(home, name, value)))

    def have(self) -> None:
        """Restore these values in the modules and the settings, in place of those that other programs need."""
        put_back_made()
        settings.apply_settings(self.settings)
        if self.folder is not None and self.folder.is_dir():
            os.chdir(self.folder)
        homes = [*{home.name: home for home, *_ in self._left}.values()]
        names = {f"{home.name}.{name}" for home, name, _ in self._left}
        pristine = Pristine()
        pristine.take(homes, names)
        for home, name, value in self._left:
            home.set(name, value())
        _remember(pristine, homes, names)


_made: list[tuple[Pristine, list[Home], set[str]]] = []  # at most one: how to undo the last model's changes


def put_back_made() -> None:
    """Restore what the author's modules held before a model was made, so that all models begin alike."""
    while _made:
        pristine, homes, names = _made.pop()
        trials.resisting.update(pristine.put_back(homes, names))


@contextmanager
def unmade() -> Iterator[None]:
    """Undo what making the present model has left in modules inside the block, and redo it afterwards."""
    held = MadeValues()
    for one in _made:
        held.take(*one)
    put_back_made()
    try:
        yield
    finally:
        held.have()


@contextmanager
def making(author: object) -> Iterator[MadeValues]:
    """Run `model` and the related methods inside the block, with modules as if they had not run before.

    Yields what they leave. It stays there until a model is made again or another trial begins, because hooks of this
    trial may read it.
    """
    put_back_made()
    pristine, made, were, folder_before = Pristine(), MadeValues(), settings.read_settings(), _find_working_folder()
    pristine.take(modules.find_homes(author))
    with _imported(author, pristine.take):
        try:
            yield made
        finally:
            homes = modules.find_homes(author)
            names = pristine.changed(homes)
            names -= pristine.unmoved(homes, names)
            _remember(pristine, homes, names)
            made.take(pristine, homes, names)
            made.settings = settings.find_changed_settings(were, settings.read_settings())
            folder = _find_working_folder()
            made.folder = None if folder == folder_before else folder
    pristine.check(homes, names, by="model() or one of its kin", when=MADE_AGAIN)


def _find_working_folder() -> Path | None:
    """Return the working folder; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _remember(pristine: Pristine, homes: list[Home], names: set[str]) -> None:
    if names:
        pristine.keep(homes, names)
        _made.append((pristine, homes, names))


@contextmanager
def _imported(author: object, heard: Callable[[list[Home]], None]) -> Iterator[None]:
    """Pass the author's modules that are imported inside the block to ``heard``, right after their import."""
    with imports.listen_to_imports(_teller(author, heard)):
        yield


def _teller(author: object, heard: Callable[[list[Home]], None]) -> imports.Listener:
    def tell(module: types.ModuleType) -> None:
        if modules.is_author_module(module.__name__, module.__file__, modules.tops(author)):
            heard(homes.of_module(module))

    return tell


class Trials:
    """Snapshot of the author's modules and of what the trainable holds, restored after each trial.

    ``own`` has the attributes of the trainable that do not belong to the author.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._found = trials.StartingValues()

    def begin(self, author: object, data: object, *, trains: bool) -> None:
        """Take a snapshot for a trial on these data, after they are loaded and before any other method runs.

        A trial that does not train may be inspected in a user's own process, so nothing is restored after it.
        """
        names = frozenset(vars(author)) - self._own

        def places() -> list[Home]:
            return [Home("self", author, only=names), *modules.find_homes(author)]

        def listener(found: Pristine) -> imports.Listener:
            return _teller(author, found.take)

        if trains:
            self._found.begin(places, of=data, listener=listener, before_end=put_back_made)
        else:
            self._found.look(places, of=data)

    def objects(self) -> Iterator[tuple[str, object]]:
        """Yield all objects of the trial's snapshot, each with its name."""
        return self._found.objects()


def end_trial() -> None:
    """Restore the author's modules to the state that the trial of this process found."""
    trials.restore_names()
    put_back_made()


class Left:
    """Changes by hooks and callbacks to the author's modules and to this process since their trial began.

    A checkpoint holds the plain values. All others are named in a message when a trial continues without them.
    """

    def __init__(self, author: object) -> None:
        self._author = author
        self._traces = self._present()
        self._settings = imports.follow(settings.SavedSettings())

    def enter_phase(self) -> None:
        """Exclude what `model` has left for another phase."""
        of_model = {name for _, _, names in _made for name in names}
        self._traces |= {name: one for name, one in self._present().items() if name in of_model}

    def state(self) -> dict[str, Any]:
        """Return the changes for a checkpoint, as JSON."""
        names = moving.without(modules.find_homes(self._author), find_changed_names(self._traces, self._present()))
        present = {full: value for full, value in self._values().items() if full in names}
        kept = {full: value for full, value in present.items() if _is_json_value(value)}
        drawn = {full: _state_of(value) for full, value in present.items() if _state_of(value)}
        found = self._settings.own()
        # Settings that are not single values, such as os.environ with its passwords, are left out.
        plain = {name: value for name, value in found.items() if type(value) in _SINGLE}
        lost = sorted({*names, *found} - {*kept, *drawn, *plain})
        return {"values": kept, "generators": drawn, "settings": plain, "lost": lost}

    def restore(self, state: Mapping[str, Any]) -> str:
        """Apply what `state` returned, and return a line about what it lacks, or an empty string."""
        for home in modules.find_homes(self._author):
            for full, value in state["values"].items():
                owner, _, name = full.rpartition(".")
                if owner == home.name:
                    _give(home, name, value)
            for name, generator in home.data().items():
                if f"{home.name}.{name}" in state["generators"]:
                    values.put_generator(generator, state["generators"][f"{home.name}.{name}"])
        settings.apply_settings(state["settings"])
        lost = ", ".join(state["lost"][:SHOWN])
        return (
            f"{lost}, changed by hooks or callbacks, is no plain value, and a resumed trial is without it"
            if lost
            else ""
        )

    def _present(self) -> Traces:
        return {
            f"{home.name}.{name}": _WithoutCallbacks().digest(value)
            for home in modules.find_homes(self._author)
            for name, value in home.data().items()
        }

    def _values(self) -> dict[str, object]:
        return {
            f"{home.name}.{name}": one for home in modules.find_homes(self._author) for name, one in home.data().items()
        }


class _WithoutCallbacks(values.Digester):
    """A digester that ignores callbacks, whose state is saved separately, and results cached by functions."""

    def _of_parts(self, value: Any, identity: object) -> object:
        if isinstance(value, keras.callbacks.Callback) or hasattr(value, "cache_info"):
            return values.Same(value)
        return super()._of_parts(value, identity)


def _give(home: Home, name: str, value: Any) -> None:
    """Set a name to a plain value; an existing list or dictionary is changed in place."""
    present = home.data().get(name)
    if isinstance(present, list) and isinstance(value, list):
        present[:] = value
    elif isinstance(present, dict) and isinstance(value, dict):
        present.clear()
        present.update(value)
    else:
        home.set(name, value)


_SINGLE = (bool, int, float, str)


def _is_json_value(value: object) -> bool:
    """Return whether a value survives a round trip through JSON."""
    if type(value) is list:
        return all(map(_is_json_value, value))
    if type(value) is dict:
        return all(type(name) is str and _is_json_value(part) for name, part in value.items())
    return value is None or type(value) in _SINGLE


def _state_of(value: object) -> Any:
    """Return the state of a NumPy generator; None for anything else."""
    return values.generator_state(value) if isinstance(value, np.random.Generator) else None
