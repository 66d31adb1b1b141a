"""The author's modules: those of the trainable, and all others of this process that are not installed packages.

`data` may leave values in them and in their classes, besides what it returns.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

from sweep.author_code import OWN_PACKAGES
from sweep.state import namespaces
from sweep.state.namespaces import Namespace, list_author_modules, list_used_names

_MACHINE = (
    "trainables.keras_trainable",
    "trainables.recipe.author",
)  # modules of sweep's base classes
_CACHED: Any = type(functools.cache(abs))


def find_namespaces(author: object) -> list[Namespace]:
    """Return the modules and classes where this author's code may keep values, as namespaces, each once.

    The trainable's classes and their modules come first, then the author's other modules with their classes. Of a
    notebook or script, there are only the names that the trainable's classes use.
    """
    by_owner: dict[int, Namespace] = {}
    for kind in _list_classes(author):
        names = _get_namespace_of(kind)
        # of a notebook's many names, only those that the class uses
        if kind.__module__ == "__main__":
            only = list_used_names(kind, names)
        else:
            only = None
        module_namespace = Namespace(kind.__module__, names, only=only)
        for namespace in (
            Namespace(kind.__qualname__, kind),
            module_namespace,
            *module_namespace.list_classes(),
        ):
            by_owner.setdefault(id(namespace.owner), namespace)
    packages = list_top_packages(author)

    def is_author(name: str, file: str) -> bool:
        return is_author_module(name, file, packages)

    for name, module in list_author_modules(is_author, frozenset(packages)):
        namespace = Namespace(name, module)
        for part in (namespace, *namespace.list_classes()):
            by_owner.setdefault(id(part.owner), part)
    return [*by_owner.values()]


def count_cached_results(author: object) -> int:
    """Return the number of results in all caches of `functools.cache` and `lru_cache` in the author's modules.

    A function that is known by several names counts for each of them.
    """
    functions = [
        value for namespace in find_namespaces(author) for value in namespace.get_values().values()
    ]
    cached = []
    for function in functions:
        if isinstance(function, _CACHED):
            cached.append(function)
    return sum(function.cache_info().currsize for function in cached)


def list_top_packages(author: object) -> set[str]:
    """Return the names of the top-level packages of the trainable's classes, without sweep's own base classes."""
    return {kind.__module__.partition(".")[0] for kind in _list_classes(author)}


def _list_classes(author: object) -> list[type]:
    """Return the trainable's class and its bases, without `object` and sweep's base classes.

    Classes whose module is not loaded are left out as well.
    """
    classes = []
    for kind in type(author).__mro__:
        if (
            kind is not object
            and _get_namespace_of(kind) is not None
            and not _module_of(kind).startswith(_MACHINE)
        ):
            classes.append(kind)
    return classes


def is_author_module(name: str, file: str | None, tops: set[str]) -> bool:
    """Return whether a module is the author's: its top-level package is in ``tops``, or its file is the author's.

    Modules without a file, ``__main__`` and sweep's own do not count. Neither do test modules (`test_...`, `conftest`),
    of which pytest imports hundreds, except those in ``tops``.
    """
    top = name.partition(".")[0]
    if file is None or top in (*OWN_PACKAGES, "__main__"):
        return False
    return top in tops or namespaces.is_author_module(name, file)


def _module_of(kind: type) -> str:
    """Return the name of a class's module; "" if the class has set ``__module__`` to something that is no text."""
    name = vars(kind).get("__module__", "")
    return name if isinstance(name, str) else ""


def _get_namespace_of(kind: type) -> Any:
    """Return a class's module; None if it is not loaded.

    For a class of a notebook or script, whose module a worker does not have, return the dictionary of its methods'
    globals; {} if it has no methods.
    """
    if kind.__module__ != "__main__":
        return sys.modules.get(kind.__module__)
    methods = (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
    return next((method.__globals__ for method in methods), {})
