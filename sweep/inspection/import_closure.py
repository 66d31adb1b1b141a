"""Finds the source of a trainable: its module and all modules that it imports, up to installed packages."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.author_code import is_installed
from sweep.errors import InputError
from sweep.inspection import dependencies, unconditional
from sweep.inspection.dependencies import (
    Definitions,
    Distributions,
    InstalledDistribution,
    Search,
    find_unnamed_imports,
    list_first_imports,
    list_imports,
)
from sweep.inspection.own_modules import OwnModule, OwnModules, Trees
from sweep.inspection.source import HERE, OURS, Source, get_top_package
from sweep.inspection.syntax_nodes import parse
from sweep.text import did_you_mean

_HOME = Path(__file__).parents[2]


def find_import_folder(file: Path, module: str) -> Path:
    """Return the folder that must be on the import path so that ``module``, a full name, is imported from ``file``.

    Raises IndexError if ``file`` is in fewer folders than the name has packages.
    """
    return file.parents[module.count(".") + (file.stem == "__init__")]


def inspect(trainable: str, folders: Iterable[Path], optimizers: Sequence[str] = ()) -> Source:
    """Return the source of ``module:Name``, searched in ``folders`` first and then on the import path of this process.

    ``optimizers`` are the author's optimizers, as ``module:Name``, that the sweep file passes to a `KerasTrainable` as
    parameter ``optimizer``; other trainables ignore them. Nothing is imported; what was found in sweep's own modules is
    kept in a file of the user's cache folder.

    Raises InputError if the trainable or one of the optimizers does not exist, if the trainable was defined in a
    notebook or script (`HERE`), if the module of one of them or any imported module in ``folders`` is not valid Python,
    or if one of the author's packages has the name of one of sweep's.
    """
    module, _, name = trainable.partition(":")
    if module == HERE:
        what = f"{name} was defined in a notebook or script, and no module has it"
        raise InputError.one(
            "trainable", what, f"give it in Python, as in sweep.resume('NAME', trainable={name})"
        )
    search = Search(tuple(folders))
    path = search.find(module)
    if path is None:
        top = get_top_package(module)
        if top in OURS:
            # Perhaps a package of the user's with the name of one of sweep's is meant, and sweep's has been found.
            for folder in search.folders:
                if (folder / top).is_dir() and folder != _HOME:
                    raise InputError.one("trainable", *_describe_name_clash(top, folder / top))
        raise InputError.one(
            "trainable",
            f"no module {module!r} in {', '.join(map(str, search.folders))} or among the installed packages",
            "expected module:Name, importable from the current folder or the sweep file's",
        )
    names = _list_candidates(_parse(path))
    # a module with ``from x import *`` may have names that its source does not show
    if name not in names and "*" not in names:
        classes = [one for one in names if one[:1].isupper()]
        raise InputError.one(
            "trainable", f"{path} defines no {name!r}", did_you_mean(name, classes)
        )
    closure = _Closure(search)
    return _add_optimizers(
        optimizers, closure, search, closure.inspect_module(trainable, module, path)
    )


def list_early_imports(trainable: str, folders: Iterable[Path]) -> tuple[str, ...]:
    """Return the full names of the modules of installed packages that the module of ``module:Name`` imports itself.

    Only imports at its top level count, in their order. They are the part of `Source.first_imports` that is found
    without reading any other module; modules of the trainable's own package and of sweep are left out. Returns () if
    the module does not exist or is not valid Python; `inspect` reports these errors.
    """
    search = Search(tuple(folders))
    path = search.find(trainable.partition(":")[0])
    if path is None or path.suffix != ".py":
        return ()
    try:
        tree = _parse(path)
    except InputError:
        return ()
    own = (*OURS, get_top_package(trainable.partition(":")[0]))
    found = []
    for name in list_first_imports(tree):
        place = search.locate_top(get_top_package(name))
        if place is None or place.file is None or get_top_package(name) in own:
            continue
        if is_installed(str(place.file)):
            found.append(name)
    return tuple(found)


def inspect_object(
    trainable: str, target: object, folders: Iterable[Path], optimizers: Sequence[str] = ()
) -> Source:
    """Return the source of a class or function that no module contains: its own text, and that of all it uses.

    ``trainable`` is the name under which the source is kept, ``__main__:Name``. ``folders`` and ``optimizers`` are used
    as in `inspect`. Raises InputError as `inspect` does for optimizers, invalid Python and names of packages.
    """
    search = Search(tuple(folders))
    pieces = dependencies.find_definitions(target)
    closure = _Closure(search)
    return _add_optimizers(
        optimizers, closure, search, closure.collect_definitions(trainable, pieces)
    )


def _add_optimizers(
    optimizers: Sequence[str], closure: _Closure, search: Search, source: Source
) -> Source:
    """Return ``source`` with the modules of the author's optimizers and all that they import, if it can use them.

    Only that of a `KerasTrainable` can; other sources are returned unchanged. ``optimizers`` are given as
    ``module:Name``. ``closure`` must be the one that has collected ``source``. Raises InputError if an optimizer does
    not exist or its module is not valid Python, and as `_Closure.follow_queue` does.
    """
    # The module is among the files of each `KerasTrainable`, which takes optimizers by name.
    if not optimizers or "trainables.recipe.optimizers" not in source.files:
        return source
    for one in optimizers:
        module, _, name = one.partition(":")
        path = search.find(module) if module else None
        if path is None:
            what = f"no module {module!r} in {', '.join(map(str, search.folders))} or among the installed packages"
            raise InputError.one(
                "parameters.optimizer", what, "expected one of Keras's by name, or module:Name"
            )
        if path.suffix == ".py":
            names = _list_candidates(_parse(path))
        else:  # an extension module, whose names are unknown
            names = [name]
        if name not in names and "*" not in names:
            what = f"{path} defines no {name!r}"
            raise InputError.one("parameters.optimizer", what, did_you_mean(name, names))
    queue = []
    for one in optimizers:
        queue += closure.add_module(one.partition(":")[0])
    # all that the closure has collected, for the trainable and for its optimizers
    collected = closure.follow_queue(source.trainable, queue)
    return replace(
        source,
        files=collected.files,
        packages=collected.packages,
        unknown=collected.unknown,
        trees=collected.trees,
        own_modules=collected.own_modules,
        optimizers=tuple(optimizers),
    )


class _Closure:
    """Collects the files of modules and of everything that they import, up to installed packages."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._distributions = Distributions(search.entries)
        # by full name: the files of the modules that count by their content, the author's and sweep's own
        self._files: dict[str, Path] = {}
        # syntax trees of these modules, without those of sweep's own
        self._trees: dict[str, ast.Module] = {}
        # what is known about sweep's own modules, kept in a file between commands; and what is about those in `_files`
        self._all_own_modules = OwnModules()
        self._own_modules: dict[str, OwnModule] = {}
        # by name: the distributions that have installed the other imported modules
        self._owners: dict[str, InstalledDistribution] = {}
        self._absent: set[str] = set()  # top-level packages that are imported and do not exist
        # what cannot be followed, in words; a dict serves as a set that keeps the order
        self._unknown: dict[str, None] = {}
        # Workers search the folders first, so that another package `sweep` in one of them would hide this one.
        found = search.locate_top("sweep")
        if found is not None and found.file is not None and found.entry in search.folders:
            ours = _HOME / "sweep" / "__init__.py"
            if found.file.resolve() != ours.resolve():
                raise InputError.one("trainable", *_describe_name_clash("sweep", found.file))

    def inspect_module(self, trainable: str, module: str, path: Path) -> Source:
        """Return the source of ``trainable``, which the module ``module`` with the file ``path`` defines.

        The module counts by its content even if a distribution has installed it. Raises InputError as `follow_queue`.
        """
        self._files[module] = path
        queue = [module]
        for package in _list_parent_packages(module):  # importing the module imports these, too
            if self._add(package):
                queue.append(package)
        return self.follow_queue(trainable, queue)

    def collect_definitions(self, trainable: str, pieces: Definitions) -> Source:
        """Return the source of a trainable that is in no module: its definitions, and all that they import.

        Raises InputError as `follow_queue`.
        """
        tree = self._trees[HERE] = ast.parse(pieces.text)
        self._unknown.update(dict.fromkeys((*pieces.unseen, *pieces.unknown)))
        imported = dict.fromkeys(
            _with_parent_packages(self._list_imports_of_author(tree, HERE, Path(HERE)))
        )  # each once
        # `HERE` itself is not in the queue, because it has no file to read.
        queue = [name for name in imported if self._add(name)]
        source = self.follow_queue(trainable, queue)
        return replace(
            source, texts={HERE: f"{pieces.text}\n{pieces.values}"}, unseen=pieces.unseen
        )

    def add_module(self, module: str) -> list[str]:
        """Add a module and its parent packages; return those that are new and whose imports must be followed.

        Raises InputError as `_add` does.
        """
        added = []
        for name in (*_list_parent_packages(module), module):
            if name not in self._files and self._add(name):
                added.append(name)
        return added

    def follow_queue(self, trainable: str, queue: list[str]) -> Source:
        """Follow the imports of the modules in ``queue``, and theirs in turn; return the source of all added so far.

        The modules in ``queue`` must have been added before. The list is emptied. What was found in sweep's own modules
        is saved for later commands. Raises InputError as `_follow_imports` and `_add` do.
        """
        seen = set(queue)
        while queue:
            for name in self._follow_imports(queue.pop()):
                if name in seen:
                    continue
                seen.add(name)
                has_imports_to_follow = self._add(name)
                if has_imports_to_follow:
                    queue.append(name)
        # sweep's modules that were analyzed on the way, for later commands
        self._all_own_modules.save()
        return self._make_source(trainable)

    def _make_source(self, trainable: str) -> Source:
        """Return the source that consists of all that was added so far, with the versions of installed packages.

        An installed package that can change without a new version, but is needed by those imported, is noted in
        `_unknown`. The mappings ``files`` and ``own_modules`` of the source are this object's own, and grow with it.
        """
        # the distributions of the imported modules, and all that these require
        needed = self._distributions.list_required(self._owners.values())
        for one in needed.values():
            if one.is_editable:
                reason = (
                    f"{one.name}, which an installed package needs, is a folder that is worked on"
                )
                self._unknown[reason] = None
        # The versions by name; None for those that are not installed.
        packages = {
            **dict.fromkeys(self._absent),
            **{name: one.identity for name, one in needed.items()},
        }
        return Source(
            trainable,
            self._files,
            dict(sorted(packages.items())),
            tuple(self._unknown),
            Trees(self._trees, {name: self._files[name] for name in self._own_modules}),
            own_modules=self._own_modules,
        )

    def _follow_imports(self, module: str) -> Iterator[str]:
        """Yield the modules that a module imports, with their parent packages; a name may come more than once.

        Parent packages of modules in package ``sweep`` are left out. Yields nothing if ``module`` is not a Python
        source file. If it was added by its file, what is known about it is put into `_own_modules` if it is one of
        sweep's (`OURS`), or else into `_trees`. Raises InputError if a file in the searched folders is not valid
        Python. An invalid file elsewhere is only noted in `_unknown`.
        """
        path = self._files.get(module) or self._search.find(module)
        if path is None or path.suffix != ".py":
            return
        try:
            imported = self._list_imports(module, path)
        except InputError:
            if any(path.is_relative_to(folder) for folder in self._search.folders):
                raise
            # in a package elsewhere, which may never import it
            self._unknown[f"{path} is no valid Python"] = None
            return
        yield from _with_parent_packages(imported)

    def _list_imports(self, module: str, path: Path) -> Iterable[str]:
        """Return the names that a module imports, and keep what is known about it, as `_follow_imports` says.

        Raises InputError if its file ``path`` is not valid Python.
        """
        if get_top_package(module) in OURS:
            found = self._all_own_modules.describe(module, path)
            if module in self._files:
                self._own_modules[module] = found
            return found.imports
        tree = _parse(path)
        if module in self._files:
            self._trees[module] = tree
        return self._list_imports_of_author(tree, module, path)

    def _list_imports_of_author(self, tree: ast.Module, module: str, path: Path) -> Iterable[str]:
        """Return the names that a module imports, and note in `_unknown` which of its code cannot be followed.

        ``module`` and ``path`` are the name and the file of the tree's module, which is none of sweep's. A name may be
        no module, and may come twice.
        """
        self._unknown.update(
            dict.fromkeys(f"{path}:{line}: {what}" for line, what in find_unnamed_imports(tree))
        )
        return list_imports(tree, module, is_package=path.stem == "__init__")

    def _add(self, name: str) -> bool:
        """Add a module, or the distribution that has installed it; return whether its imports must be followed.

        Modules that no distribution has installed, those of editable installations and sweep's own are added by their
        files, and their imports must be followed. Of any other module, the distribution is added. A top-level package
        that does not exist is noted in `_absent`, and a top-level module without a file in `_unknown`. Nothing is added
        for the standard library, for the package ``sweep`` itself, and for another name that is no module with a file.
        Raises InputError if a user's package has the name of one of sweep's, so that one of them hides the other.
        """
        top = get_top_package(name)
        # Of sweep, its modules that are imported count, but not the package itself: its version is enough.
        if name == "sweep" or self._search.is_standard(top):
            return False
        place = self._search.locate_top(top)
        if place is None:
            self._absent.add(top)
            return False
        path = self._search.find(name)
        if path is None:
            # Usually a folder without ``__init__``, whose modules are found by themselves, or a name that a module
            # defines. Two other cases count:
            if name == top and not place.folders:
                self._unknown[f"{name} is imported, and lies in no file"] = None
            if name != top and _is_file_of_ours(name):
                # Sweep has such a module, but another package of the same name, which lacks it, was found first.
                hiding = place.folders[0] if place.folders else place.file
                raise InputError.one("trainable", *_describe_name_clash(top, hiding))
            return False
        if place.entry is None:  # found by an import hook, as of an editable installation
            owner = None
        else:  # it lies in a folder on the import path, where a distribution may have installed it
            owner = self._distributions.find_owner(place.entry, path)
        # Code that can change without a new version counts by its content.
        if owner is None or owner.is_editable or top in OURS:
            self._files[name] = path
            return True
        self._owners[owner.name] = owner
        return False


def _is_file_of_ours(module: str) -> bool:
    """Return whether one of sweep's own packages (`OURS`) has a file for the module with this full name."""
    parts = module.split(".")
    return parts[0] in OURS and _HOME.joinpath(*parts).with_suffix(".py").is_file()


def _describe_name_clash(top: str, place: Path | None) -> tuple[str, str]:
    """Return what is wrong and a hint, if a user's package at ``place`` has the name ``top`` of one of sweep's."""
    return (
        f"{place} has the name of the package {top!r} that comes with sweep, and hides it or is hidden",
        "rename it",
    )


def _with_parent_packages(modules: Iterable[str]) -> Iterator[str]:
    """Yield modules, and before each the packages that contain it, outermost first; a name may come more than once.

    Packages that contain modules of ``sweep`` are left out: only those modules, and sweep's version, affect training.
    """
    for name in modules:
        if get_top_package(name) != "sweep":
            yield from _list_parent_packages(name)
        yield name


def _list_parent_packages(module: str) -> list[str]:
    """Return the full names of the packages that contain a module, outermost first; [] for a top-level module."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Raises InputError if it is not valid Python, and OSError if it is not readable.

    An extension module is not valid Python.
    """
    return parse(path.read_bytes(), path)


def _list_candidates(tree: ast.Module) -> list[str]:
    """Return the names that a module binds at its top level and that may be a trainable: all but async functions.

    Names in ``if`` and ``try`` are included, but not those that a loop, ``with`` or an unpacked tuple binds.
    """
    names: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.AsyncFunctionDef):
            names += unconditional.list_bound_names(node)
    return names
