"""The author's modules: the trainable's own, and all others of this process that nobody has installed.

Their data, and that of their classes, is what `data` may leave elsewhere than in what it returns.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sweep.author_code import FOUNDATIONS, OWN_PACKAGES, is_author_file, is_installed

_MACHINE = ("trainables.keras_trainable", "trainables.recipe.author")
_OF_TESTS = ("test_", "conftest")
_HISTORY = frozenset({"In", "Out"})  # of a notebook
_CACHED: Any = type(functools.cache(abs))


@dataclass(frozen=True)
class Home:
    """What has names: a module, a class, or the globals of a notebook."""

    name: str
    owner: Any
    without: frozenset[str] = frozenset()  # names that are not the author's
    only: frozenset[str] | None = None  # the names that are; None: all others

    def data(self) -> dict[str, object]:
        """The values in it that are no modules."""
        hidden = "_" if isinstance(self.owner, Mapping) else "__"  # a notebook keeps its history in names of its own
        return {
            name: value
            for name, value in self._names().items()
            if not name.startswith(hidden)
            and name not in _HISTORY
            and name not in self.without
            and (self.only is None or name in self.only)
            and not isinstance(value, types.ModuleType)  # importing a part of a package sets one
        }

    def set(self, name: str, value: object) -> None:
        """Give a name this value."""
        if isinstance(self.owner, MutableMapping):
            self.owner[name] = value
        else:
            setattr(self.owner, name, value)

    def remove(self, name: str) -> None:
        """Forget a name."""
        if isinstance(self.owner, MutableMapping):
            self.owner.pop(name, None)
        elif name in vars(self.owner):
            delattr(self.owner, name)

    def classes(self) -> list[Home]:
        """The classes that were defined in it."""
        found = [value for value in self._names().values() if isinstance(value, type)]
        return [Home(f"{self.name}.{kind.__qualname__}", kind) for kind in found if _module_of(kind) == self.name]

    def _names(self) -> Mapping[str, object]:
        names: Mapping[str, object] = self.owner if isinstance(self.owner, Mapping) else vars(self.owner)
        return dict(names)


def of(author: object) -> list[Home]:
    """Where this author may keep data; the classes and modules of the trainable first."""
    found: dict[int, Home] = {}
    for kind in _kinds(author):
        around = _around(kind)
        only = _used(kind, around) if kind.__module__ == "__main__" else None
        for home in (Home(kind.__qualname__, kind), Home(kind.__module__, around, only=only)):
            found.setdefault(id(home.owner), home)
    own = tops(author)
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and is_author_module(name, getattr(module, "__file__", None), own):
            home = Home(name, module)
            for one in (home, *home.classes()):
                found.setdefault(id(one.owner), one)
    return [*found.values()]


def cached_results(author: object) -> int:
    """Return how many results `functools.cache` and `lru_cache` keep for the functions in the author's modules."""
    functions = [value for home in of(author) for value in home.data().values()]
    cached = [function for function in functions if isinstance(function, _CACHED)]
    return sum(function.cache_info().currsize for function in cached)


def tops(author: object) -> set[str]:
    """The packages of the trainable's classes."""
    return {kind.__module__.partition(".")[0] for kind in _kinds(author)}


def _kinds(author: object) -> list[type]:
    return [
        kind
        for kind in type(author).__mro__
        if kind is not object and _around(kind) is not None and not _module_of(kind).startswith(_MACHINE)
    ]


def is_author_module(name: str, file: str | None, tops: set[str]) -> bool:
    """Return whether a module is the author's: of a package of the trainable's (``tops``), or in the author's file.

    Modules of tests (`test_...`, `conftest`) are not, of which pytest imports hundreds, but for the trainable's own.
    """
    top, _, rest = name.partition(".")
    if file is None or top in (*OWN_PACKAGES, *FOUNDATIONS, "__main__"):
        return False
    if top in tops:
        return True
    own_name = (rest or top).rpartition(".")[2]
    return not own_name.startswith(_OF_TESTS) and not is_installed(file) and is_author_file(file)


@contextmanager
def imported(heard: Callable[[types.ModuleType], None]) -> Iterator[None]:
    """Hear of each module that is imported inside the block, once its own code has run."""
    finder = _Finder(heard)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """Finds what Python's own would, and tells of it."""

    def __init__(self, heard: Callable[[types.ModuleType], None]) -> None:
        self._heard = heard

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """The module that the others would find, which is told of when it has run."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = None if spec is None else spec.loader
        if not isinstance(loader, importlib.machinery.SourceFileLoader):
            return None
        run = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            self._heard(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader, for this one module
        return spec


def is_machine(value: object) -> bool:
    """Whether an object is a trainable, which the author's globals may hold: it is watched by itself."""
    return any(_module_of(kind).startswith(_MACHINE) for kind in type(value).__mro__)


def _module_of(kind: type) -> str:
    """Return the name of the module that defined a class; a class may have put anything else in its place."""
    name = vars(kind).get("__module__", "")
    return name if isinstance(name, str) else ""


def _used(kind: type, around: Mapping[str, object]) -> frozenset[str]:
    """The names in a notebook that a class's methods name, and the functions and classes that they use in turn.

    All else there is somebody else's, and would not come along to a worker.
    """
    found: set[str] = set()
    queue: list[object] = [kind]
    while queue:
        one = queue.pop()
        codes = [one] if isinstance(one, types.CodeType) else []
        if isinstance(one, type) and one.__module__ == "__main__":
            queue += [getattr(value, "__func__", value) for value in vars(one).values()]
        elif isinstance(one, types.FunctionType):
            codes = [one.__code__]
        for code in codes:
            queue += [part for part in code.co_consts if isinstance(part, types.CodeType)]
            new = set(code.co_names) - found
            found |= new
            queue += [around[name] for name in new if name in around]
    return frozenset(found)


def _around(kind: type) -> Any:
    """What surrounds a class; of one that was defined in a notebook, as its own methods see it, here or in a worker."""
    if kind.__module__ != "__main__":
        return sys.modules.get(kind.__module__)
    methods = (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
    return next((method.__globals__ for method in methods), {})
