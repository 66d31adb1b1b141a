"""Finds the modules that code depends on, and definitions that are in no module.

Modules, their distributions and their imports are located without importing anything. A class or function that was
defined in a notebook or script is represented by the texts, imports and values that it uses.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import json
import sys
import sysconfig
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PathDistribution
from pathlib import Path, PurePath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from sweep.inspection.hyperparameter_reads import get_last_name
from sweep.inspection.syntax_nodes import list_nodes

_STDLIB = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
_STDLIB |= {path / "lib-dynload" for path in _STDLIB}


@dataclass(frozen=True, slots=True)
class PackageLocation:
    """The location of a top-level module or package."""

    entry: Path | None  # the folder on the search path; None: an import hook located it
    file: Path | None  # of the module, or the package's ``__init__``; None: a package without one
    folders: tuple[Path, ...]  # the folders of the package's modules


class Search:
    """Finds modules on the import path of a worker: in ``folders``, then on the path of this process."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        self.entries = tuple(
            dict.fromkeys((*self.folders, *(Path(entry or ".") for entry in sys.path)))
        )
        self._tops: dict[str, PackageLocation | None] = {}
        PathFinder.invalidate_caches()  # files may be newer than its cached folder listings

    def locate_top(self, name: str) -> PackageLocation | None:
        """Return the location of a top-level module or package, which is not imported; None if it does not exist.

        It is looked for in `entries`, then by import hooks. Each result is kept for later calls, None as well.
        """
        if name not in self._tops:
            self._tops[name] = self._locate_on_path(name) or self._locate_by_hooks(name)
        return self._tops[name]

    def find(self, module: str) -> Path | None:
        """Return the file of a module given by its full name; None if the module does not exist or has no file.

        The file of a package is its ``__init__``. The file may be an extension module. Nothing is imported.
        """
        top, *rest = module.split(".")
        place = self.locate_top(top)
        if place is None:
            return None
        file, folders = place.file, place.folders
        # looked up by its last part only, because the full name would import its parents
        for part in rest:
            spec = PathFinder.find_spec(part, list(map(str, folders)))
            if spec is None:
                return None
            file = _get_source_file(spec)
            folders = _list_package_folders(spec)
        return file

    def is_standard(self, name: str) -> bool:
        """Return whether a top-level module belongs to the standard library, and no other module hides it."""
        if name not in sys.stdlib_module_names:
            return False
        place = self.locate_top(name)
        # built-in modules are found by hooks, and have no folder on the path
        return place is None or place.entry is None or place.entry in _STDLIB

    def _locate_on_path(self, name: str) -> PackageLocation | None:
        """Return the location of a top-level module or package in `entries`; None if it is not there.

        The entry of a folder without ``__init__``, which may be in several entries, is the first one.
        """
        spec = PathFinder.find_spec(name, list(map(str, self.entries)))
        if spec is None:
            return None
        file = _get_source_file(spec)
        folders = _list_package_folders(spec)
        inside = folders[0] if folders else file  # its parent is the folder on the path
        if inside is None:
            return None
        return PackageLocation(inside.parent, file, folders)

    def _locate_by_hooks(self, name: str) -> PackageLocation | None:
        """Return the location that an import hook gives for a top-level module, as after an editable installation.

        All finders in `sys.meta_path` are asked in order, Python's own included, so that built-in modules are found as
        well. Returns None if none knows the module, or only as a folder without ``__init__``. Nothing is imported.
        """
        for finder in sys.meta_path:
            spec = finder.find_spec(name, None)
            # a folder without ``__init__`` has no loader
            if spec is not None and spec.loader is not None:
                return PackageLocation(None, _get_source_file(spec), _list_package_folders(spec))
        return None


def _get_source_file(spec: ModuleSpec) -> Path | None:
    """Return the file of a module's spec, which may be an extension module; None if there is no such file."""
    if not spec.has_location or not spec.origin:
        return None
    file = Path(spec.origin)
    if file.is_file():
        return file
    return None


def _list_package_folders(spec: ModuleSpec) -> tuple[Path, ...]:
    """Return the folders of the modules of the package with this spec; () if it is that of a module."""
    return tuple(map(Path, spec.submodule_search_locations or ()))


class InstalledDistribution:
    """An installed distribution, identified by ``info``, its folder ``<name>-<version>.dist-info`` or ``.egg-info``."""

    def __init__(self, info: Path) -> None:
        # from the folder's name, because reading the metadata of all distributions takes half a second
        name, _, rest = info.stem.partition("-")
        self.name = canonicalize_name(name)
        self.version = rest.split("-")[0]
        self._info = PathDistribution(info)

    @cached_property
    def record(self) -> str:
        """The text of the file RECORD, with a line for each file and its hash; "" if the installer wrote none."""
        return self._info.read_text("RECORD") or ""

    def has_installed(self, file: str) -> bool:
        """Return whether a file, given relative to the installation folder, is in the distribution's list of files."""
        return self.record.startswith(f"{file},") or f"\n{file}," in self.record

    @cached_property
    def _origin(self) -> Mapping[str, Any] | None:
        """The content of direct_url.json, which says where the distribution was installed from.

        It is None if there is no such file, as after installation from a package index, and {} if it cannot be read.
        """
        text = self._info.read_text("direct_url.json")
        try:
            if text is None:
                return None
            return dict(json.loads(text))
        except (TypeError, ValueError):
            return {}

    @property
    def identity(self) -> str:
        """The version and, if the distribution was not installed from an index, a hash of its files behind a space.

        The hash has 16 digits, and is made from the hashes in the list of files.
        """
        if self._origin is None:  # from an index, where a version always has the same files
            return self.version
        # Some files have no hash there, such as RECORD itself.
        files = sorted(line for line in self.record.splitlines() if "sha256=" in line)
        digest = hashlib.sha256("\n".join(files).encode()).hexdigest()
        return f"{self.version} {digest[:16]}"

    @property
    def is_editable(self) -> bool:
        """Whether it is an editable installation, whose content can change without a new version."""
        return bool((self._origin or {}).get("dir_info", {}).get("editable"))

    @property
    def requirements(self) -> Iterator[str]:
        """The normalized names of the distributions that it requires on this system, read from its metadata.

        Requirements that are not installed are included. Those that only its extras need, and invalid ones, are not. A
        name may come twice.
        """
        for line in self._info.requires or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement:  # in old packages; pip skips it, too
                continue
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                yield canonicalize_name(needed.name)


class Distributions:
    """All distributions that are installed in the folders of a search path."""

    def __init__(self, entries: Iterable[Path]) -> None:
        self._by_entry = {entry: list(_list_installed(entry)) for entry in entries}
        self._by_name: dict[str, InstalledDistribution] = {}
        for found in self._by_entry.values():
            for one in found:
                self._by_name.setdefault(one.name, one)

    def find_owner(self, entry: Path, file: Path) -> InstalledDistribution | None:
        """Return the distribution that has installed a file below the search path folder ``entry``; None if none has.

        A file of a namespace package may be below another folder of the search path; the distributions of that folder
        are searched then. If no file list contains the file, the first distribution that has no file list, but the name
        of the file's top-level package, is returned instead. Returns None for a file below no folder of the path.
        """
        above = [one for one in (entry, *self._by_entry) if file.is_relative_to(one)]
        if not above:
            return None
        found = self._by_entry.get(above[0], [])
        name = file.relative_to(above[0]).as_posix()
        package = canonicalize_name(name.split("/")[0].partition(".")[0])
        alike = [one for one in found if one.name == package]
        others = [one for one in found if one.name != package]
        # The distribution with the package's name is tried first: nearly always it is the owner, and reading the file
        # lists of all others takes long.
        for one in (*alike, *others):
            if one.has_installed(name):
                return one
        # Some systems keep no file lists; then the package's name decides.
        for one in alike:
            if not one.record:
                return one
        return None

    def list_required(
        self, first: Iterable[InstalledDistribution]
    ) -> dict[str, InstalledDistribution]:
        """Return ``first`` and all installed distributions that they require, directly or indirectly, by name.

        Requirements that are not installed are left out. If the path has several of a name, the first is taken.
        """
        needed: dict[str, InstalledDistribution] = {}
        queue = list(first)
        while queue:
            one = queue.pop()
            if one.name not in needed:
                needed[one.name] = one
                for name in one.requirements:
                    if name in self._by_name:
                        queue.append(self._by_name[name])
        return needed


def _list_installed(entry: Path) -> Iterator[InstalledDistribution]:
    """Yield the distributions installed in a folder, sorted by the names of their folders.

    Nothing is yielded if the folder does not exist.
    """
    if entry.is_dir():
        for path in sorted(entry.iterdir()):
            if path.suffix in (".dist-info", ".egg-info"):
                yield InstalledDistribution(path)


_LOADERS = frozenset({"spec_from_file_location", "SourceFileLoader", "run_path", "run_module"})


def list_imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield the full names of all modules that code may import: ``a`` and ``a.b`` for ``from a import b``.

    Thus a name may be no module, and may come twice. Imports in functions are included, and calls of ``import_module``
    and ``__import__`` with a literal name, unless it is relative to a package whose name is computed. ``module`` is the
    full name of the module with the syntax tree ``tree``; ``is_package`` says whether it is a package's ``__init__``.
    """
    for node in list_nodes(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(names=aliases):
                if base := resolve_relative_import(module, node, is_package=is_package):
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in aliases if alias.name != "*")
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if get_last_name(node.func) in (
                "import_module",
                "__import__",
            ):
                if imported := _resolve_called_import(module, name, node, is_package=is_package):
                    yield imported


def list_first_imports(tree: ast.Module) -> list[str]:
    """Return the full names of the modules that a module imports at its top level, in the order of its statements.

    ``from a import b`` gives ``a``. Relative imports and the standard library are left out, and so are imports within
    functions, ``if`` and ``try``. A module that is imported twice is listed twice.
    """
    found: list[str] = []
    for node in tree.body:  # not in functions, nor in `try`, where a missing module may be handled
        match node:
            case ast.Import(names=aliases):
                found += [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module), level=0):
                found.append(module)
    return [name for name in found if name.partition(".")[0] not in sys.stdlib_module_names]


def resolve_relative_import(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    """Return the full name of the module that a ``from ... import`` statement in ``module`` imports from.

    ``is_package`` says whether ``module`` is a package's ``__init__``. Returns "" for ``from . import x`` in a
    top-level module, which is in no package.
    """
    parents: list[str] = []  # the parts of the name of the package that the import is relative to
    if node.level:  # the number of dots
        parts = module.split(".")
        # the first dot stands for the package that contains the module; a package's ``__init__`` is within the package
        parents = parts[: len(parts) - node.level + is_package]
    return ".".join(filter(None, [*parents, node.module]))


def _resolve_called_import(module: str, name: str, call: ast.Call, *, is_package: bool) -> str:
    """Return the full name of the module that a call in ``module`` imports by ``name``, which may begin with dots.

    ``call`` is one of ``import_module`` or ``__import__``, and ``is_package`` says whether ``module`` is a package's
    ``__init__``. Returns "" if the name is relative and the call does not show to which package, or if it has more dots
    than the package has parents.
    """
    if get_last_name(call.func) == "__import__":
        levels = _find_level(call)
        parents = module.split(".")[: None if is_package else -1]
    else:
        levels = len(name) - len(name.lstrip("."))  # the number of dots
        parents = _find_parents(module, call, is_package=is_package)
    if levels == 0:
        return name
    if levels is None or levels > len(parents):
        return ""
    package = parents[: len(parents) - levels + 1]  # the first dot stands for the package itself
    return ".".join(filter(None, [*package, name.lstrip(".")]))


def _find_level(call: ast.Call) -> int | None:
    """Return the argument ``level`` of a call of ``__import__``: 0 for an absolute name, n for one with n dots.

    Returns 0 if there is no such argument, and None if it is computed.
    """
    match _find_argument(call, 4, "level"):
        case None:
            return 0
        case ast.Constant(value=int(level)):
            return level
    return None


def _find_parents(module: str, call: ast.Call, *, is_package: bool) -> list[str]:
    """Return the parts of the name of the package to which a call of ``import_module`` is relative; [] if unknown.

    It is the argument ``package`` of the call: a literal, or ``__name__`` or ``__package__`` of ``module``.
    """
    match _find_argument(call, 1, "package"):
        case ast.Constant(value=str(package)):
            return package.split(".")
        case ast.Name(id="__name__"):
            return module.split(".")
        case ast.Name(id="__package__"):
            return module.split(".")[: None if is_package else -1]
    return []


def _find_argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return the argument of a call at ``position``, or else the one with the keyword ``name``; None if it has none."""
    if len(call.args) > position:
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


_DEEP_MODULE = ".".join(100 * ["a"])
"""The name of a module that has more parents than any relative import goes up."""


def _is_relative_to_computed_package(call: ast.Call) -> bool:
    """Return whether a call imports a module by a literal name that is relative to a package with a computed name."""
    match call.args:
        case [ast.Constant(value=str(name)), *_]:
            # in so deep a module, only a computed package or level leaves the name unknown
            return not _resolve_called_import(_DEEP_MODULE, name, call, is_package=True)
    return False


def find_unnamed_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line of each expression that may run code which the source does not show, and what the expression does.

    Such expressions are imports with a computed name, or relative to a computed package, calls of ``exec`` and of
    loaders of files, and uses of ``sys.path``.
    """
    for node in list_nodes(tree):
        match node:
            case ast.Call() if get_last_name(node.func) in ("import_module", "__import__"):
                has_literal_name = bool(node.args) and isinstance(node.args[0], ast.Constant)
                if not has_literal_name or _is_relative_to_computed_package(node):
                    yield node.lineno, "imports a module whose name is computed"
            case ast.Call(func=ast.Name(id="exec")):
                yield node.lineno, "runs a text as code"
            case ast.Call() if get_last_name(node.func) in _LOADERS:
                yield node.lineno, "runs a file as code"
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                yield node.lineno, "changes where modules are found (sys.path)"


_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Definitions:
    """The source text and the values that a class or function uses and no module contains."""

    text: str  # source of a module with the imports and definitions used
    values: str  # the plain values used, by name, as JSON
    unseen: tuple[str, ...]  # definitions without source text
    unknown: tuple[str, ...]  # values that cannot be compared between runs


def find_definitions(target: object) -> Definitions:
    """Return the source text and the values that a class or function uses, directly or indirectly.

    Of a class or function that another process can import (`get_import_target`), and of a module, only the import is
    included.
    """
    collector = _Collector()
    collector.visit(getattr(target, "__name__", type(target).__name__), target)
    return Definitions(
        "\n".join([*collector.imports, *collector.texts]),
        json.dumps(collector.values, sort_keys=True),
        tuple(collector.unseen),
        tuple(collector.unknown),
    )


def get_import_target(target: object) -> str | None:
    """Return ``module:Name`` of an object if another process can import it by that name, otherwise None.

    It can be imported if it stands under its own name at the top level of a loaded module other than ``__main__``.
    """
    module = getattr(target, "__module__", None)
    name = getattr(target, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or module == "__main__"
        or "." in name
    ):
        return None
    imported = getattr(sys.modules.get(module), name, None)
    if imported is not target:
        return None
    return f"{module}:{name}"


@dataclass(slots=True)
class _Collector:
    """Collects the imports, texts and values that a class or function uses."""

    # dicts whose values are None serve as sets that keep the order
    imports: dict[str, None] = field(default_factory=dict)  # statements
    texts: dict[str, None] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)  # plain values, by dotted name
    unseen: dict[str, None] = field(default_factory=dict)  # as in `Definitions`
    unknown: dict[str, None] = field(default_factory=dict)  # as in `Definitions`
    # the `id` of each class, function and value without JSON that was visited
    _seen: set[int] = field(default_factory=set)

    def visit(self, name: str, value: object) -> None:
        """Add the object ``value``, which has the name ``name``, and everything that it uses.

        Of modules, and of classes and functions that another process can import, only the import is added. Nothing is
        added for a class or function that was visited before.
        """
        if isinstance(value, types.ModuleType):
            self.imports[f"import {value.__name__}"] = None
            return
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            target = get_import_target(value)
            if target is not None:
                self._add_import(target)
                return
        self._visit_parts(name, value)

    def _add_import(self, target: str) -> None:
        """Add the statement that imports ``module:Name``, unless it is built in."""
        module, _, name = target.partition(":")
        if module != "builtins":
            self.imports[f"from {module} import {name}"] = None

    def _visit_parts(self, name: str, value: object) -> None:
        """Add an object that no module contains, by its parts.

        Classes, functions, methods, partial functions and properties are followed; other objects are added as values.
        """
        match value:
            case type():
                self._visit_class(name, value)
            case types.FunctionType():
                self._visit_function(name, value)
            case types.MethodType():
                self.visit(name, value.__func__)
                self.visit(f"{name}.self", value.__self__)
            case partial():
                self.visit(name, value.func)
                self._visit_all(name, {**dict(enumerate(value.args)), **value.keywords})
            case staticmethod() | classmethod():
                self.visit(name, value.__func__)
            case property():
                for part in (value.fget, value.fset, value.fdel):
                    self.visit(name, part)
            case _:
                self._add_value(name, value)

    def _visit_class(self, name: str, kind: type) -> None:
        """Add a class: its text, its bases, and its own methods and attributes with all that they use.

        Attributes that begin with ``__`` and are no methods, such as ``__module__``, are left out.
        """
        self._add_text(name, kind.__name__, _get_class_source(kind))
        for base in kind.__bases__:
            self.visit(base.__name__, base)
        own = {}
        for key, value in vars(kind).items():
            # not Python's own, such as __module__
            if not key.startswith("__") or inspect.isroutine(value):
                own[key] = value
        self._visit_all(name, own)

    def _visit_function(self, name: str, function: types.FunctionType) -> None:
        """Add a function: its text, and the defaults, closure values and globals that it uses.

        The text is left out if another text contains it, as for methods and for most lambdas. If a global is a module,
        the imports of those loaded modules below it whose names the code uses are added as well.
        """
        code = function.__code__
        # Defaults, attributes and values of closures have dotted names; their lambdas are part of the text of the code
        # that uses them. A lambda under a global name stands elsewhere, and the target may be one.
        is_inner_lambda = "<lambda>" in function.__qualname__ and "." in name
        is_method = "." in function.__qualname__.rpartition("<locals>.")[2]
        if not is_inner_lambda and not is_method:  # a method's text is part of its class
            self._add_text(name, function.__name__, _get_function_source(code))
        by_position = dict(enumerate(function.__defaults__ or ()))
        self._visit_all(name, by_position | (function.__kwdefaults__ or {}))
        closure = {}
        for free, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            closure[free] = _get_closure_value(cell)
        self._visit_all(name, closure)
        words = sorted(set(_collect_names(code)))
        for used in dict.fromkeys(_list_globals(code)):  # each once
            value = function.__globals__.get(used, _ABSENT)
            if value is not _ABSENT:
                self.visit(used, value)
            # Any attribute may be a module below this one: ``os.path.join`` needs os.path as well.
            if isinstance(value, types.ModuleType):
                for word in words:
                    if f"{value.__name__}.{word}" in sys.modules:
                        self.imports[f"import {value.__name__}.{word}"] = None

    def _visit_all(self, name: str, values: Mapping[Any, object]) -> None:
        """Visit values that belong to the object ``name``, each under the name ``name.key``, except `_ABSENT`."""
        for key, value in values.items():
            if value is not _ABSENT:
                self.visit(f"{name}.{key}", value)

    def _add_value(self, name: str, value: object) -> None:
        """Add a plain value, which can be written as JSON, or note that it cannot be compared between runs.

        Paths, bytes and sets count as plain (`_convert_for_json`). Any other value is noted in `unknown`, once for each
        object, and if it is callable, its class is visited.
        """
        try:
            self.values[name] = json.loads(json.dumps(value, default=_convert_for_json))
        except (TypeError, ValueError):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            self.unknown[f"{name} is a {type(value).__name__}"] = None
            if callable(value):
                self.visit(type(value).__name__, type(value))

    def _add_text(self, name: str, defined: str, text: str | None) -> None:
        """Add the text of the definition ``defined``, or note in `unseen` that it is not available if it is None.

        A lambda is noted under ``name``, by which it is used.
        """
        if text is not None:
            self.texts[text] = None
            return
        shown = name if defined == "<lambda>" else defined
        self.unseen[f"the text of {shown} cannot be had"] = None


def _get_function_source(code: types.CodeType) -> str | None:
    """Return the source of a function without its indentation; None if it is not available or not valid by itself.

    Of a lambda, the source is that of the whole lines on which it stands.
    """
    try:
        return _unindent(inspect.getsource(code))  # None if it is only part of a line
    except (OSError, TypeError):  # typed at a prompt
        return None


def _get_class_source(kind: type) -> str | None:
    """Return the source of a class with its decorators; None if it is not available or not valid by itself.

    It is found by the code of its methods, because Python does not know the file of a class that a notebook defines. If
    that fails, as for a class without methods, Python's own way is tried.
    """
    for code in _list_codes(kind):
        try:
            lines, _ = inspect.findsource(code)  # all lines of the file or notebook cell
            tree = ast.parse("".join(lines))
        except (OSError, TypeError, SyntaxError):  # another method may have a source
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name != kind.__name__:
                continue
            # Several classes may have the name; the right one has the method within its lines.
            first_line = min(
                [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            )
            if first_line <= code.co_firstlineno <= (node.end_lineno or first_line):
                return _unindent("".join(lines[first_line - 1 : node.end_lineno]) + "\n")
    try:
        return _unindent(inspect.getsource(kind))
    except (OSError, TypeError):
        return None


def _unindent(text: str) -> str | None:
    """Return the source of a definition without its indentation; None if it is not valid by itself.

    It is not valid if the definition is indented, but a line of a string or a comment in it is not.
    """
    unindented = textwrap.dedent(text)
    try:
        ast.parse(unindented)
    except SyntaxError:
        return None
    return unindented


def _list_codes(kind: type) -> Iterator[types.CodeType]:
    """Yield the code of each method that the body of a class defines, and of the getters of its properties."""
    for value in vars(kind).values():
        # that of a static or class method, or the getter of a property
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, types.FunctionType) and function.__qualname__.startswith(
            f"{kind.__qualname__}."
        ):
            yield function.__code__


def _list_globals(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function and the functions within it use; a name may come twice."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):  # LOAD_NAME: in the body of a class
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_globals(constant)


def _collect_names(code: types.CodeType) -> Iterator[str]:
    """Yield all names of globals and attributes in code and in the functions within it; a name may come twice."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _collect_names(constant)


def _get_closure_value(cell: types.CellType) -> object:
    """Return the value in a cell, a variable of a closure; `_ABSENT` if none is assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _ABSENT


def _convert_for_json(value: object) -> object:
    """Convert a path to a string, bytes to hexadecimal digits, or a set to the sorted `repr` strings of its elements.

    Raises TypeError for other types.
    """
    match value:
        case PurePath():
            return str(value)
        case bytes():
            return value.hex()
        case set() | frozenset():
            return sorted(map(repr, value))
    raise TypeError
