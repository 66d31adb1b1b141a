"""The source of a trainable, and everything that can be learned from it without running it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from sweep.inspection import (
    hyperparameter_reads,
    own_models,
    report_reads,
    reported_metrics,
    unconditional,
)
from sweep.inspection.dependencies import list_first_imports
from sweep.inspection.hyperparameter_reads import FoundReads
from sweep.inspection.own_modules import OwnModule
from sweep.inspection.reported_metrics import DEFAULT_METRICS, LOSS, PossibleMetrics
from sweep.inspection.unconditional import NameUse

OURS = ("trainables", "sweep")
KERAS_TRAINABLE = "trainables.keras_trainable:KerasTrainable"
HERE = "__main__"  # stands for the module of a class or function that no module contains


@dataclass(frozen=True)
class Source:
    """The source of a trainable: its modules, the packages it needs, and what its code reads."""

    trainable: str
    # by module name, the trainable's own first; modules that belong to no installed package
    files: Mapping[str, Path]
    # versions of the installed packages; None: not installed
    packages: Mapping[str, str | None] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # reasons why more code may be involved than files and packages
    # syntax trees of `files` and `texts`
    trees: Mapping[str, ast.Module] = field(default_factory=dict, repr=False, compare=False)
    # those of `files` that are sweep's
    own_modules: Mapping[str, OwnModule] = field(default_factory=dict, repr=False, compare=False)
    # code that is in no module file: from a notebook or script
    texts: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()  # code of a notebook or script whose text is unavailable
    # ``module:Name`` of the author's optimizers that the sweep file names
    optimizers: tuple[str, ...] = ()

    @property
    def _author_trees(self) -> dict[str, ast.Module]:
        """The syntax trees of all modules but those of the packages sweep and trainables, by name."""
        theirs = {}
        for name in self.trees:
            if get_top_package(name) not in OURS:
                theirs[name] = self.trees[name]
        return theirs

    @cached_property
    def _reading(self) -> FoundReads:
        """What the source reads of the hyperparameters; computed once.

        The author's code counts as reading the arguments of `optimizers`.
        """
        ours = {}  # package sweep itself reads no parameter
        for name, module in self.own_modules.items():
            if get_top_package(name) == "trainables":
                ours[name] = module.reads
        found = hyperparameter_reads.analyze_reads(
            self._author_trees, ours, self.trainable.partition(":")[2]
        )
        taken = {
            arg
            for name in self.optimizers
            for arg in hyperparameter_reads.list_argument_names(name, self.trees)
        }
        return replace(found, names=found.names | taken, own=found.own | taken)

    @property
    def reads(self) -> frozenset[str]:
        """The names of all parameters that the source visibly reads, including the arguments of `optimizers`.

        A name may be a pattern: ``x.*`` stands for all parameters below ``x``, and ``x_*`` for all whose names begin
        with ``x_``. For ``hp.x.y``, both ``x`` and ``x.y`` are included.

        A read is ``hp.x``, ``hp["x"]``, ``hp.get("x")`` and the like, ``"x" in hp``, ``live.number("x")``, or an entry
        of a module's ``READS = ("x", ...)``, which declares names that are computed. ``hp`` may have any name: the
        arguments of a trainable's methods are followed through assignments and calls.
        """
        return self._reading.names

    @property
    def doubts(self) -> tuple[str, ...]:
        """Texts on the places from which hyperparameters cannot be followed, and on code without source text.

        Code there may read more than `reads`. () if all is known.
        """
        return (*self._reading.doubts, *self.unseen)

    def reads_parameter(self, name: str) -> bool:
        """Return whether the source visibly reads a parameter, by its name or by a pattern such as ``group.*``."""
        return _matches_read(name, self.reads)

    def author_reads_parameter(self, name: str) -> bool:
        """Return whether the author's modules visibly read a parameter, by its name or a pattern such as ``group.*``.

        Reads in modules of sweep do not count. The arguments of `optimizers` count as read.
        """
        return _matches_read(name, self._reading.own)

    def may_read(self, name: str) -> bool:
        """Return whether it cannot be ruled out that a parameter is read.

        It may be read if the source visibly reads it, if there are any doubts, or if the last part of its dotted name
        is an attribute, argument, name or string anywhere in the author's modules.
        """
        return (
            bool(self.doubts)
            or self.reads_parameter(name)
            or name.rpartition(".")[2] in self._reading.words
        )

    def derives_from(self, base: str) -> bool:
        """Return whether the trainable certainly is the class ``base`` (``module:Name``) or derives from it."""
        return unconditional.derives_from(self.trainable, base, self.trees)

    def list_certain_reads(self) -> tuple[NameUse, ...]:
        """Return the parameters that every trial certainly reads without a default, with the places of the reads.

        Only reads in the body of the function or of the methods `data` and `model` count, and none in a branch. A
        parameter that is read twice is listed twice. Returns () for a class that is not certainly a `KerasTrainable`.
        """
        if not self.is_function and not self.derives_from(KERAS_TRAINABLE):
            return ()
        return tuple(
            unconditional.list_certain_reads(
                self.trainable, self.trees, is_function=self.is_function
            )
        )

    def list_missing_imports(self) -> tuple[NameUse, ...]:
        """Return the imports that certainly fail when the trainable is imported, because a package is not installed.

        The name in each is the full name of the module. Only absolute imports in the author's modules count, outside of
        functions, ``if`` and ``try``. Returns () if code changes ``sys.path``, since the modules may then be found
        elsewhere.
        """
        absent = set()
        for name, version in self.packages.items():
            if version is None:
                absent.add(name)
        if any("sys.path" in reason for reason in self.unknown):
            return ()
        # Modules of sweep import none of the author's, so that they need not be followed.
        imports = unconditional.list_certain_imports(
            self.trainable.partition(":")[0], self._author_trees
        )
        return tuple(use for use in imports if get_top_package(use.name) in absent)

    def environment_value(self, name: str) -> str | None:
        """Return the text that the trainable's module assigns to an environment variable; None if it assigns none.

        Only the first statement at the top level of the module that sets the variable counts. Raises ValueError if its
        value is not a literal string, or if it is a call of ``os.environ.setdefault`` or ``update``.
        """
        return unconditional.find_environment_value(
            self.trainable.partition(":")[0], name, self.trees
        )

    def where(self, place: NameUse) -> str:
        """Format the place of a name as compilers do: ``file:line``, or ``module:line`` for code that is in no file."""
        return f"{self.files.get(place.module, place.module)}:{place.line}"

    def list_lacking_methods(self, *names: str) -> tuple[str, ...]:
        """Return those of the methods ``names`` that the trainable certainly lacks; all if it is a plain function.

        Returns () if the trainable may have methods that the source does not show, as with a decorator or an unknown
        base, even for a function.
        """
        return unconditional.list_lacking_methods(self.trainable, names, self.trees)

    def find_idle_hyperparameters(self) -> dict[str, str]:
        """Return why standard hyperparameters certainly have no effect in a `KerasTrainable`, by name.

        Hyperparameters that the author's modules may read are left out, but not those that a trial refuses because of
        the model's own ``compile()``. Returns {} if there are doubts, or if the trainable is not certainly a
        `KerasTrainable`.
        """
        if self.doubts or not self.derives_from(KERAS_TRAINABLE):
            return {}
        found: dict[str, str] = {}
        for one in own_models.find_idle_hyperparameters(
            self.trainable, self.trees, self._author_trees
        ):
            for name in one.names:
                if one.unless_read and self._may_be_read_by_author(name):
                    continue
                found[name] = one.why
        return found

    def _may_be_read_by_author(self, name: str) -> bool:
        """Return whether the author's modules visibly read a parameter, or have the last part of its name as a word."""
        return self.author_reads_parameter(name) or name.rpartition(".")[2] in self._reading.words

    def list_unread_trial_facts(self, names: Iterable[str], group: str = "") -> list[str]:
        """Return those facts about the trial in ``names``, such as ``fold``, that the trainable certainly never reads.

        Facts are attributes of ``report`` or of the assignment or, with ``group``, keys of its mapping with the name
        ``group``, such as ``training``. Call this method only for functions and for classes other than a
        `KerasTrainable`. Returns [] if the trainable may have code that the source does not show, or if it is uncertain
        what that code reads.
        """
        definition = unconditional.find_definition(self.trainable, self.trees)
        # methods out of sight may read any of the facts
        if definition is None or not unconditional.shows_all_methods(self.trainable, self.trees):
            return []
        return report_reads.list_surely_unread(definition, self._author_trees, names, group)

    def reported_metrics(self) -> tuple[str, ...]:
        """Return the metrics that the source visibly reports; there may be more.

        For a `KerasTrainable`, they are always the default ones, whatever its source says: the loss, the accuracy (of
        labels) and the absolute error (of numbers), each with and without ``val_``. For any other class, and for what
        the source does not show to be a function, the result is ().
        """
        if self.derives_from(KERAS_TRAINABLE):
            return tuple(
                f"{prefix}{name}" for name in (LOSS, *DEFAULT_METRICS) for prefix in ("val_", "")
            )
        definition = unconditional.find_definition(self.trainable, self.trees)
        if definition is None or isinstance(definition, ast.ClassDef):
            return ()
        return tuple(report_reads.list_reported_metrics(definition))

    def possible_metrics(self) -> PossibleMetrics | None:
        """Return all metrics that the trainable can report; None if its source does not show all names.

        Also returns None if some code has no source text, and for every class that is not certainly a `KerasTrainable`.
        """
        if self.unseen:
            return None
        if self.derives_from(KERAS_TRAINABLE):
            # also if it is one of those that come with sweep
            module = self.trainable.partition(":")[0]
            theirs = {**self._author_trees, module: self.trees[module]}
            return reported_metrics.list_possible_metrics_of_class(
                self.trainable, self.trees, theirs
            )
        definition = unconditional.find_definition(self.trainable, self.trees)
        if definition is None or isinstance(definition, ast.ClassDef):
            return None
        return reported_metrics.list_possible_metrics_of_function(definition)

    @property
    def is_function(self) -> bool:
        """Whether the trainable is certainly a function."""
        return unconditional.is_function(self.trainable, self.trees)

    @property
    def first_imports(self) -> tuple[str, ...]:
        """The sorted full names of the modules that the source's own modules import at their top level from elsewhere.

        The modules in `files`, and others of the same packages, are left out, and so are the standard library and
        imports within functions, ``if`` and ``try``. Modules that are not installed are included.
        """
        found: set[str] = set()
        for tree in self._author_trees.values():
            found.update(list_first_imports(tree))
        for module in self.own_modules.values():
            found.update(module.first_imports)
        own = {get_top_package(name) for name in self.files}
        return tuple(sorted(name for name in found if get_top_package(name) not in own))

    def module_digests(self) -> dict[str, str]:
        """Return the SHA-256 of the file of each of the author's modules, in hexadecimal, by the name of the module.

        The files are read by this call; it raises OSError if one is gone. Extension modules and code that is in no file
        are left out.
        """
        digests = {}
        for name, file in self.files.items():
            if file.suffix == ".py" and get_top_package(name) not in OURS:
                digests[name] = hashlib.sha256(file.read_bytes()).hexdigest()
        return digests

    def digest(self) -> str:
        """Return a hexadecimal SHA-256 over the names and contents of all `files` and `texts`.

        The files are read by this call; it raises OSError if one is gone. The result depends on the names of modules,
        and not on where the code is stored.
        """
        total = hashlib.sha256()
        for name in sorted({*self.files, *self.texts}):
            if name in self.texts:
                content = self.texts[name].encode()
            else:
                content = self.files[name].read_bytes()
            # With the length, so that no other division into files gives the same bytes.
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()


def _matches_read(name: str, reads: frozenset[str]) -> bool:
    """Return whether a parameter is one of ``reads``, or matches one of these that is a pattern with ``*``."""
    return name in reads or any(fnmatchcase(name, pattern) for pattern in reads if "*" in pattern)


def get_top_package(module: str) -> str:
    """Return the outermost package of a module; the module itself if it is in no package."""
    return module.split(".")[0]
