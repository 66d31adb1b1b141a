"""Namespaces, in which code keeps values under names: modules, their classes, and the globals of a notebook."""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Hashable, Mapping, MutableMapping, MutableSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sweep.author_code import OWN_PACKAGES, is_author_file, trainable_packages

_HISTORY_NAMES = frozenset({"In", "Out"})  # of a notebook
_TEST_PREFIXES = ("test_", "conftest")
_CACHED_FUNCTION: Any = type(functools.cache(abs))
_MAX_NESTING = 3  # levels of nested classes


@dataclass(frozen=True)
class Namespace:
    """A namespace: a module, a class, or the globals of a notebook."""

    name: str
    owner: Any
    without: frozenset[str] = frozenset()  # names that are not the author's
    only: frozenset[str] | None = None  # names that are the author's; None: all others

    def get_values(self) -> dict[str, object]:
        """Return the author's values in this namespace by name, except modules.

        Names that begin with two underscores are left out; in the globals of a notebook, those that begin with one.
        Also left out are the names in `without` or not in `only`, ``In`` and ``Out``, and tests in a module of tests.
        The result is a new dictionary of the values themselves.
        """
        if isinstance(self.owner, Mapping):
            hidden = "_"  # notebooks keep history under names like _1
        else:
            hidden = "__"
        values = {}
        for name, value in self._names().items():
            if name.startswith(hidden) or name in _HISTORY_NAMES or not self._is_author_name(name):
                continue
            if not isinstance(value, types.ModuleType):  # importing a submodule sets one
                values[name] = value
        return values

    def _is_author_name(self, name: str) -> bool:
        if name in self.without or (self.only is not None and name not in self.only):
            return False
        return not (
            name.startswith("test_") and self.name.rpartition(".")[2].startswith(_TEST_PREFIXES)
        )

    def list_hidden_names(self) -> set[str]:
        """Return the names in this namespace that `get_values` leaves out, also those of imported modules."""
        return {*self._names()} - {*self.get_values()}

    def set(self, name: str, value: object) -> None:
        """Set the value of a name in the module, class or mapping itself."""
        if isinstance(self.owner, MutableMapping):
            self.owner[name] = value
        else:
            setattr(self.owner, name, value)

    def remove(self, name: str) -> None:
        """Delete a name; do nothing if the namespace itself has no such name."""
        if isinstance(self.owner, MutableMapping):
            self.owner.pop(name, None)
        elif name in vars(self.owner):
            delattr(self.owner, name)

    def list_classes(self) -> list[Namespace]:
        """Return the classes that are defined in this namespace, and those nested in them, as namespaces.

        Imported classes are left out, those with names that `get_values` leaves out, and those that are nested more
        than `_MAX_NESTING` levels deep. Each class is listed once, even if it has several names.
        """
        if isinstance(self.owner, Mapping | types.ModuleType):
            module = self.name
        else:
            module = self.owner.__module__
        return self._list_classes_of(module, {id(self.owner)})

    def _list_classes_of(self, module: str, seen: MutableSet[int]) -> list[Namespace]:
        """Return the classes of a module in this namespace and nested in them, each once, except those in ``seen``.

        ``seen`` has the ids of classes, which may be attributes of themselves and of each other, as after
        ``Node.kind = Node``; those that are returned are added.
        """
        classes = []
        for value in self.get_values().values():
            if isinstance(value, type) and value.__module__ == module and id(value) not in seen:
                seen.add(id(value))
                namespace = Namespace(f"{module}.{value.__qualname__}", value)
                classes.append(namespace)
                if value.__qualname__.count(".") < _MAX_NESTING:
                    classes += namespace._list_classes_of(module, seen)
        return classes

    def _names(self) -> Mapping[str, object]:
        names: Mapping[str, object] = (
            self.owner if isinstance(self.owner, Mapping) else vars(self.owner)
        )
        return dict(names)


def list_namespaces_of_function(function: Any) -> list[Namespace]:
    """Return the namespaces in which a function may keep values.

    The first one has the function itself, under the name ``itself``. If it was defined in ``__main__``, the global
    names there that it uses follow, and the classes among them. Then there are all loaded modules of its top-level
    package and of the author (`is_author_module`), with their classes.
    """
    module = getattr(function, "__module__", None) or "__main__"
    result = [Namespace("the function", {"itself": function})]
    if module == "__main__":
        names_around = getattr(function, "__globals__", {})
        namespace = Namespace(
            "__main__", names_around, only=list_used_names(function, names_around)
        )
        result += [namespace, *namespace.list_classes()]
    package = module.partition(".")[0]  # or the function's module itself, if it is in no package

    def is_in_package_or_author(name: str, file: str) -> bool:
        is_in_package = package != "__main__" and name.partition(".")[0] == package
        return is_in_package or is_author_module(name, file)

    for _, other in list_author_modules(is_in_package_or_author, package):
        result += list_namespaces_of_module(other)
    return result


@dataclass
class _ExaminedModules:
    """The modules that were loaded at the last search for the author's, so that only new ones are examined again.

    A trial's process has thousands of modules.
    """

    depends_on: Hashable = None
    loaded: dict[str, object] = field(default_factory=dict)  # a copy of `sys.modules`
    foreign: dict[str, object] = field(default_factory=dict)  # modules that are not the author's
    not_foreign: list[tuple[str, object]] = field(default_factory=list)

    def update(self, depends_on: Hashable) -> None:
        """Update `not_foreign`, the names and the modules in `sys.modules` that are not known to be foreign.

        If ``depends_on`` differs from that of the last call, forget first which modules are foreign.
        """
        if self.depends_on != depends_on:
            self.depends_on, self.loaded, self.foreign = depends_on, {}, {}
        loaded: dict[str, object] = dict(sys.modules)
        same_names = [*loaded] == [*self.loaded]
        # a name may also have another module than before
        if not same_names or not all(map(operator.is_, loaded.values(), self.loaded.values())):
            self.loaded, self.not_foreign = loaded, [*loaded.items()]
        self.not_foreign = [
            (name, module)
            for name, module in self.not_foreign
            if self.foreign.get(name) is not module
        ]


_examined = _ExaminedModules()


def list_author_modules(
    is_author: Callable[[str, str], bool], depends_on: Hashable
) -> list[tuple[str, types.ModuleType]]:
    """Return the names and the loaded modules for which ``is_author(name, file)`` is true, except ``__main__``.

    ``depends_on`` is a value that changes if ``is_author`` would answer otherwise. A module for which ``is_author`` was
    false is not examined again until ``depends_on``, the search path or the trainable's package has changed, even if
    another ``is_author`` is given. Modules without a file are left out.
    """
    _examined.update((depends_on, tuple(sys.path), tuple(trainable_packages.values())))
    found = []
    for name, module in _examined.not_foreign:
        file = getattr(module, "__file__", None)
        if not isinstance(module, types.ModuleType) or not file:
            continue
        # the running script, which may be listed under several names
        if getattr(module, "__name__", "") == "__main__":
            continue
        if is_author(name, file):
            found.append((name, module))
        else:
            _examined.foreign[name] = module
    return found


def list_namespaces_of_module(module: types.ModuleType) -> list[Namespace]:
    """Return the namespaces of a module and of the classes defined in it, the module's first."""
    namespace = Namespace(module.__name__, module)
    return [namespace, *namespace.list_classes()]


def is_author_module(name: str, file: str) -> bool:
    """Return whether a module is the author's, by its dotted name and file.

    Test modules, whose names begin with ``test_`` or ``conftest``, do not count, because pytest imports hundreds of
    them, nor do sweep's own packages.
    """
    last = name.rpartition(".")[2]
    is_ours = name.partition(".")[0] in OWN_PACKAGES
    return not is_ours and not last.startswith(_TEST_PREFIXES) and is_author_file(file)


def _list_parts_in(value: object) -> list[object]:
    """Return the objects that a function or a wrapper of one, such as a method, a property or a partial, refers to.

    These are the functions that are wrapped or decorated, the object of a bound method, the arguments of a partial, and
    the defaults and the closure of a function. None may be among them. The list is empty for any other value.
    """
    found: list[object] = []
    match value:
        case property():
            found = [value.fget, value.fset, value.fdel]
        case staticmethod() | classmethod():
            found = [value.__func__]
        case types.MethodType():
            found = [value.__func__, value.__self__]
        case functools.cached_property():
            found = [value.func]
        case functools.partial() | functools.partialmethod():
            found = [value.func, *value.args, *value.keywords.values()]
        case types.FunctionType():
            found = [getattr(value, "__wrapped__", None), *(value.__defaults__ or ())]
            found += (value.__kwdefaults__ or {}).values()
            for cell in value.__closure__ or ():
                with suppress(ValueError):  # an empty cell
                    found.append(cell.cell_contents)
        # Any other object may answer every attribute with a new object, without end, or import something.
        case _ if isinstance(value, _CACHED_FUNCTION):
            found = [value.__wrapped__]
    return found


def list_used_names(target: object, names_around: Mapping[str, object]) -> frozenset[str]:
    """Return the global names of a notebook that a function or class uses, directly or through other functions.

    ``target`` is the function or class, and ``names_around`` are the globals of the notebook. Names that are used by
    the methods or attributes of objects of the notebook's own classes are included, but not those that only functions
    in a list or dictionary use. The result may also have names that are no globals, such as those of attributes and
    builtins that are used. Other names are unrelated, and would not be sent to a worker.
    """
    names: set[str] = set()
    queue: list[object] = [target]  # what is used and was not looked into yet
    seen: set[int] = set()
    while queue:
        item = queue.pop()
        if id(item) in seen:  # closures and wrapped functions may refer to each other
            continue
        seen.add(id(item))
        codes = []  # the code that belongs to ``item``, if any
        if isinstance(item, types.CodeType):
            codes.append(item)
        if isinstance(item, type) and item.__module__ == "__main__":
            queue += [*vars(item).values(), *item.__bases__]
        else:
            queue += _list_parts_in(item)
        if type(item).__module__ == "__main__":  # its methods may be called, and its attributes
            queue += [type(item), *getattr(item, "__dict__", {}).values()]
        if isinstance(item, types.FunctionType):
            codes.append(item.__code__)
        for code in codes:
            for part in code.co_consts:
                if isinstance(part, types.CodeType):
                    queue.append(part)
            # each name is followed once, so that recursion comes to an end
            new = set(code.co_names) - names
            names |= new
            queue += [names_around[name] for name in new if name in names_around]
    return frozenset(names)
