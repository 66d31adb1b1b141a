"""What a trainable's source says without running it: its module and all that it imports except the standard library.

Importing the trainable would import TensorFlow. So `plan`, and every check before the first epoch, read the syntax
trees.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from sweep.errors import InputError
from sweep.inspection import dependencies, hyperparameter_reads, own_models, report_reads, unconditional
from sweep.inspection.dependencies import (
    Definitions,
    Distribution,
    Distributions,
    Search,
    importable,
    imports,
    obscure,
)
from sweep.inspection.hyperparameter_reads import Reading
from sweep.inspection.unconditional import Place
from sweep.text import did_you_mean

__all__ = ["HERE", "KERAS_TRAINABLE", "Source", "importable", "inspect", "inspect_given"]

OURS = ("trainables", "sweep")
KERAS_TRAINABLE = "trainables.keras_trainable:KerasTrainable"
HERE = "__main__"  # stands for the module of a class or function that no module contains
_HOME = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """The source of a trainable: its modules, packages, and what its code reads."""

    trainable: str
    files: Mapping[str, Path]  # by module name, the trainable's own first; modules that belong to no installed package
    # versions of the installed packages; None: not installed
    packages: Mapping[str, str | None] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # reasons why more code may be involved than files and packages
    # syntax trees of `files` and `texts`
    trees: Mapping[str, ast.Module] = field(default_factory=dict, repr=False, compare=False)
    texts: Mapping[str, str] = field(default_factory=dict)  # code that is in no module file: from a notebook or script
    unseen: tuple[str, ...] = ()  # code of a notebook or script whose text is unavailable
    optimizers: tuple[str, ...] = ()  # ``module:Name`` of the author's optimizers that the sweep file names

    @cached_property
    def _reading(self) -> Reading:
        theirs = {name: tree for name, tree in self.trees.items() if _top(name) not in OURS}
        ours = {
            name: tree for name, tree in self.trees.items() if _top(name) == "trainables"
        }  # package sweep itself reads no parameter
        found = hyperparameter_reads.read(theirs, ours, self.trainable.partition(":")[2])
        taken = {arg for name in self.optimizers for arg in hyperparameter_reads.arguments_of(name, self.trees)}
        return replace(found, names=found.names | taken, own=found.own | taken)

    @property
    def reads(self) -> frozenset[str]:
        """Names of all parameters that the source visibly reads; ``x.*`` stands for all below ``x``.

        A read is ``hp.x``, ``hp["x"]``, ``hp.get("x")`` and the like, ``"x" in hp``, ``live.number("x")``, or an entry
        of a module's ``READS = ("x", ...)``, which declares names that are computed. ``hp`` may have any name: the
        arguments of a trainable's methods are followed through assignments and calls.
        """
        return self._reading.names

    @property
    def doubts(self) -> tuple[str, ...]:
        """Places from which hyperparameters cannot be followed; if there are any, more parameters may be read."""
        return (*self._reading.doubts, *self.unseen)

    def reads_parameter(self, name: str) -> bool:
        """Return whether the source visibly reads a parameter, by its own name or with its whole group."""
        return _among(name, self.reads)

    def author_reads(self, name: str) -> bool:
        """Return whether the user's own modules visibly read a parameter, not only a base class of sweep's."""
        return _among(name, self._reading.own)

    def may_read(self, name: str) -> bool:
        """Return whether something may read a parameter: it does, there are doubts, or its name appears in the code."""
        return bool(self.doubts) or self.reads_parameter(name) or name.rpartition(".")[2] in self._reading.words

    def derives_from(self, base: str) -> bool:
        """Return whether the trainable is ``module:Name`` or certainly a class derived from it."""
        return unconditional.derives(self.trainable, base, self.trees)

    def reads_surely(self) -> tuple[Place, ...]:
        """Return the parameters that every trial certainly reads without a default, with the places of the reads."""
        if not self.is_function and not self.derives_from(KERAS_TRAINABLE):
            return ()
        return tuple(unconditional.reads(self.trainable, self.trees, is_function=self.is_function))

    def not_found(self) -> tuple[Place, ...]:
        """Return the imports of missing modules that importing the trainable certainly reaches."""
        absent = {name for name, version in self.packages.items() if version is None}
        if any("sys.path" in reason for reason in self.unknown):
            return ()
        met = unconditional.imports(self.trainable.partition(":")[0], self.trees)
        return tuple(place for place in met if _top(place.name) in absent and _top(place.module) not in OURS)

    def environment_value(self, name: str) -> str | None:
        """Return the value that the trainable's module assigns to an environment variable; None if it assigns none.

        Raises ValueError if the value is not a literal.
        """
        return unconditional.environment_value(self.trainable.partition(":")[0], name, self.trees)

    def where(self, place: Place) -> str:
        """Format a place as compilers do: ``file:line``."""
        return f"{self.files.get(place.module, place.module)}:{place.line}"

    def lacks(self, *names: str) -> tuple[str, ...]:
        """Return which of these methods the trainable certainly lacks; all of them if it is a function."""
        return unconditional.lacks(self.trainable, names, self.trees)

    def idle(self) -> dict[str, str]:
        """Return the standard hyperparameters that certainly have no effect in a `KerasTrainable`, with the reasons."""
        theirs = {name: tree for name, tree in self.trees.items() if _top(name) not in OURS}
        if self.doubts or not self.derives_from(KERAS_TRAINABLE):
            return {}
        found: dict[str, str] = {}
        for one in own_models.idle(self.trainable, self.trees, theirs):
            unread = [name for name in one.names if not (one.unless_read and self._may_be_read_by_author(name))]
            found.update(dict.fromkeys(unread, one.why))
        return found

    def _may_be_read_by_author(self, name: str) -> bool:
        """Return whether the user's own modules may read a parameter: they do, or its name appears there."""
        return self.author_reads(name) or name.rpartition(".")[2] in self._reading.words

    def reads_of_its_trial_not(self, names: Iterable[str], group: str = "") -> list[str]:
        """Return the names among ``names`` that a function, or a class without `KerasTrainable`, certainly never reads.

        They are facts about the trial, such as ``fold``: attributes of ``report`` or of the assignment, or with
        ``group`` the keys of the mapping of that name.
        """
        theirs = {name: tree for name, tree in self.trees.items() if _top(name) not in OURS}
        definition = unconditional.definition(self.trainable, self.trees)
        if definition is None or not self.lacks("a method that no class has"):  # a base class may be out of sight
            return []
        return report_reads.surely_unread(definition, theirs, names, group)

    @property
    def is_function(self) -> bool:
        """Whether the trainable is certainly a function."""
        return unconditional.is_function(self.trainable, self.trees)

    @property
    def first_imports(self) -> tuple[str, ...]:
        """The installed modules that importing the trainable imports at once, by name, including large libraries."""
        found: dict[str, None] = {}
        for tree in self.trees.values():
            for node in tree.body:  # not inside functions, nor where a missing one is handled
                match node:
                    case ast.Import(names=aliases):
                        found.update(dict.fromkeys(alias.name for alias in aliases))
                    case ast.ImportFrom(module=str(module), level=0):
                        found[module] = None
        own = {_top(name) for name in self.files}
        return tuple(
            sorted(name for name in found if _top(name) not in own and _top(name) not in sys.stdlib_module_names)
        )

    def module_digests(self) -> dict[str, str]:
        """Return the SHA-256 of each of the author's modules, by name."""
        return {
            name: hashlib.sha256(file.read_bytes()).hexdigest()
            for name, file in self.files.items()
            if file.suffix == ".py" and _top(name) not in OURS
        }

    def digest(self) -> str:
        """Return the SHA-256 over all files; it does not depend on where the code lies."""
        total = hashlib.sha256()
        for name in sorted({*self.files, *self.texts}):
            content = self.texts[name].encode() if name in self.texts else self.files[name].read_bytes()
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()


def import_folder(file: Path, module: str) -> Path:
    """Return the folder from which the module in this file is imported."""
    return file.parents[module.count(".") + (file.stem == "__init__")]


def inspect(trainable: str, folders: Iterable[Path], optimizers: Sequence[str] = ()) -> Source:
    """Find ``module:Name`` in these folders or among the installed modules. Raises InputError if it is not there.

    ``optimizers`` are the author's optimizers that the sweep file passes to a `KerasTrainable` as parameter
    ``optimizer``.
    """
    module, _, name = trainable.partition(":")
    if module == HERE:
        what = f"{name} was defined in a notebook or script, and no module has it"
        raise InputError.one("trainable", what, f"give it in Python, as in sweep.resume('NAME', trainable={name})")
    search = Search(tuple(folders))
    path = search.find(module)
    if path is None:
        for folder in search.folders if _top(module) in OURS else ():
            if (folder / _top(module)).is_dir() and folder != _HOME:
                raise InputError.one("trainable", *_hidden(_top(module), folder / _top(module)))
        raise InputError.one(
            "trainable",
            f"no module {module!r} in {', '.join(map(str, search.folders))} or among the installed packages",
            "expected module:Name, importable from the current folder or the sweep file's",
        )
    names = _defined(_parse(path))
    if name not in names:
        classes = [n for n in names if n[:1].isupper()]
        raise InputError.one("trainable", f"{path} defines no {name!r}", did_you_mean(name, classes))
    closure = _Closure(search)
    return _with(optimizers, closure, search, closure.of(trainable, module, path))


def inspect_given(trainable: str, given: object, folders: Iterable[Path], optimizers: Sequence[str] = ()) -> Source:
    """Return the source of a class or function that no module contains: its text, and that of all it uses."""
    search, pieces = Search(tuple(folders)), dependencies.of(given)
    closure = _Closure(search)
    return _with(optimizers, closure, search, closure.of_text(trainable, pieces))


def _with(optimizers: Sequence[str], closure: _Closure, search: Search, source: Source) -> Source:
    """Add the author's optimizers to a source, if its trainable takes optimizers by name."""
    if not optimizers or "trainables.recipe.optimizers" not in source.files:
        return source
    for one in optimizers:
        module, _, name = one.partition(":")
        path = search.find(module) if module else None
        if path is None:
            what = f"no module {module!r} in {', '.join(map(str, search.folders))} or among the installed packages"
            raise InputError.one("parameters.optimizer", what, "expected one of Keras's by name, or module:Name")
        names = _defined(_parse(path)) if path.suffix == ".py" else [name]
        if name not in names:
            what = f"{path} defines no {name!r}"
            raise InputError.one("parameters.optimizer", what, did_you_mean(name, names))
    modules = [one.partition(":")[0] for one in optimizers]
    more = closure.closed(source.trainable, [module for module in modules if closure.take(module)])
    return replace(
        source,
        files=more.files,
        packages=more.packages,
        unknown=more.unknown,
        trees=more.trees,
        optimizers=tuple(optimizers),
    )


class _Closure:
    """Collects a module and everything it imports, stopping at installed packages."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._distributions = Distributions(search.entries)
        self._files: dict[str, Path] = {}
        self._trees: dict[str, ast.Module] = {}
        self._owners: dict[str, Distribution] = {}
        self._absent: set[str] = set()
        self._unknown: dict[str, None] = {}
        ours, sweeps = _HOME / "sweep" / "__init__.py", search.top("sweep")
        hides = sweeps and sweeps.entry in search.folders and sweeps.file  # workers search these folders first
        if hides and hides.resolve() != ours.resolve():
            raise InputError.one("trainable", *_hidden("sweep", hides))

    def of(self, trainable: str, module: str, path: Path) -> Source:
        self._files[module] = path
        return self.closed(trainable, [module, *filter(self._add, _parents(module))])

    def of_text(self, trainable: str, pieces: Definitions) -> Source:
        """Return the source of code that is in no module file; otherwise as `of`."""
        tree = self._trees[HERE] = ast.parse(pieces.text)
        self._unknown.update(dict.fromkeys((*pieces.unseen, *pieces.unknown)))
        source = self.closed(trainable, [*filter(self._add, dict.fromkeys(self._named(tree, HERE, Path(HERE))))])
        return replace(source, texts={HERE: f"{pieces.text}\n{pieces.values}"}, unseen=pieces.unseen)

    def take(self, module: str) -> bool:
        """Add a module and its parent packages; return whether its own imports must be followed."""
        return module not in self._files and any([*map(self._add, _parents(module)), self._add(module)])

    def closed(self, trainable: str, queue: list[str]) -> Source:
        """Return the source of everything added so far, and of what the queued modules import."""
        seen = set(queue)
        while queue:
            for name in self._imported(queue.pop()):
                if name not in seen:
                    seen.add(name)
                    if self._add(name):
                        queue.append(name)
        needed = self._distributions.needed(self._owners.values())
        for one in needed.values():
            if one.is_editable:
                self._unknown[f"{one.name}, which an installed package needs, is a folder that is worked on"] = None
        packages = {**dict.fromkeys(self._absent), **{name: one.identity for name, one in needed.items()}}
        return Source(trainable, self._files, dict(sorted(packages.items())), tuple(self._unknown), self._trees)

    def _imported(self, module: str) -> Iterator[str]:
        path = self._files.get(module) or self._search.find(module)
        if path is None or path.suffix != ".py":
            return
        try:
            tree = _parse(path)
        except InputError:
            if any(path.is_relative_to(folder) for folder in self._search.folders):
                raise
            self._unknown[f"{path} is no valid Python"] = None  # in a package elsewhere, which may never import it
            return
        if module in self._files:
            self._trees[module] = tree
        yield from self._named(tree, module, path)

    def _named(self, tree: ast.Module, module: str, path: Path) -> Iterator[str]:
        """Yield the modules that a tree imports, with their parent packages."""
        if _top(module) not in OURS:
            self._unknown.update(dict.fromkeys(f"{path}:{line}: {what}" for line, what in obscure(tree)))
        for name in imports(tree, module, is_package=path.stem == "__init__"):
            # Parent packages of sweep's modules are skipped: only the modules named, and sweep's version, affect
            # training.
            yield from () if _top(name) == "sweep" else _parents(name)
            yield name

    def _add(self, name: str) -> bool:
        """Add a module; return whether its own imports must be followed."""
        top = _top(name)
        if name == "sweep" or self._search.is_standard(top):
            return False
        place = self._search.top(top)
        if place is None:
            self._absent.add(top)
            return False
        path = self._search.find(name)
        if path is None:  # a folder, or a name defined in a module
            if name == top and not place.folders:
                self._unknown[f"{name} is imported, and lies in no file"] = None
            if top in OURS and name != top and _HOME.joinpath(*name.split(".")).with_suffix(".py").is_file():
                raise InputError.one("trainable", *_hidden(top, place.folders[0] if place.folders else place.file))
            return False
        owner = None if place.entry is None else self._distributions.owner(place.entry, path)
        if owner is None or owner.is_editable or top in OURS:
            self._files[name] = path
            return True
        self._owners[owner.name] = owner
        return False


def _hidden(top: str, place: Path | None) -> tuple[str, str]:
    """Return what is wrong with a user's package that is named like one of sweep's, and a hint."""
    return f"{place} has the name of the package {top!r} that comes with sweep, and hides it or is hidden", "rename it"


def _among(name: str, reads: frozenset[str]) -> bool:
    return name in reads or any(fnmatchcase(name, pattern) for pattern in reads if "*" in pattern)


def _top(module: str) -> str:
    return module.split(".")[0]


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputError.one("trainable", f"{path} is no valid Python: {error}") from None


def _defined(tree: ast.Module) -> list[str]:
    """Return the names in a module that may be a trainable."""
    return [
        name for node in tree.body if not isinstance(node, ast.AsyncFunctionDef) for name in unconditional.bound(node)
    ]
