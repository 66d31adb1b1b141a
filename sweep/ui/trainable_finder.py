"""Finds the trainables that a sweep file may name, from the syntax of modules, which are not executed."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

MOST_FILES = 300  # maximum number of modules of a folder that are read
LARGEST = 500_000  # bytes of the largest module that is read
OURS = "trainables"
BASE = "KerasTrainable"
METHODS = ("data", "model")  # methods of a `KerasTrainable`
# folders whose modules no sweep file is to name
APART = frozenset({OURS, "sweep", "tests", "test", "benchmarks"})
# modules of `trainables` with classes that only look like trainables
INNER = frozenset({"session"})


class TrainableFinder:
    """Lists trainables; a module that has not changed is not read again."""

    def __init__(self) -> None:
        # time of the file's last change and names of its trainables, by path
        self._known: dict[Path, tuple[int, tuple[str, ...]]] = {}

    def list_trainables(self, folder: Path) -> dict[str, str]:
        """Return the trainables in a folder and in sweep's own package as ``module:Name``, with a note on the place.

        Those of the folder come first: of its modules and those of the folders directly in it, without tests, of which
        at most 300 are read (see `_list_modules`). Modules that cannot be read, are not valid Python or have more than
        500,000 bytes are left out.
        """
        found = {}
        for module, path in _list_modules(folder):
            for name in self._list_names(path):
                found[f"{module}:{name}"] = f"In {path.relative_to(folder)}."
        for module, path in _list_our_modules():
            # the folder may have a module of the same name, which goes first
            for name in self._list_names(path):
                found.setdefault(f"{module}:{name}", "One that comes with sweep.")
        return found

    def _list_names(self, path: Path) -> tuple[str, ...]:
        """Return the names of the trainables in the module at ``path``, from memory if its file has not changed.

        There are none if it cannot be read, is not valid Python, is too deeply nested for Python's parser or has more
        than 500,000 bytes.
        """
        try:
            facts = path.stat()
            known_stamp, known_names = self._known.get(path, (None, ()))
            if known_stamp == facts.st_mtime_ns:
                return known_names
            names: tuple[str, ...] = ()
            if facts.st_size <= LARGEST:
                names = tuple(find_trainables(path.read_text(encoding="utf-8")))
        # Python raises the last two for expressions of thousands of terms.
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return ()  # not kept: a file that is being edited may be valid in a moment
        self._known[path] = facts.st_mtime_ns, names
        return names


def _list_modules(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the dotted name and the path of each module in a folder and in the folders directly in it.

    Modules in the folder come first, each group sorted by path. Left out are tests, files whose path is no name of a
    module, modules and folders with names such as ``__init__``, and those directly in the folder with a name in
    `APART`. At most 300 files are looked at, including those.
    """
    paths = [*sorted(folder.glob("*.py")), *sorted(folder.glob("*/*.py"))]
    for path in paths[:MOST_FILES]:
        parts = path.relative_to(folder).with_suffix("").parts
        is_module = all(part.isidentifier() and not part.startswith("__") for part in parts)
        is_test = parts[-1] == "conftest" or parts[-1].startswith("test_")
        if is_module and parts[0] not in APART and not is_test:
            yield ".".join(parts), path


def _list_our_modules() -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each public module directly in the package `trainables`, except those in `INNER`.

    Modules of its subpackages are left out. Yields nothing if the package is not installed.
    """
    spec = importlib.util.find_spec(OURS)
    if spec is None or spec.submodule_search_locations is None:  # not installed, or no package
        return
    for place in spec.submodule_search_locations:
        for path in sorted(Path(place).glob("*.py")):
            if not path.stem.startswith("_") and path.stem not in INNER:
                yield f"{OURS}.{path.stem}", path


def find_trainables(text: str) -> Iterator[str]:
    """Yield the names of the trainables in the text of a module, other than those that begin with an underscore.

    They are the functions with two parameters of which the second is ``report``, and two kinds of classes: those
    derived from `KerasTrainable`, from a trainable class further up or from a name imported from the package
    `trainables`, and those with any base class that define both ``data`` and ``model``. Only definitions at the top
    level of the module count. Raises `SyntaxError` if the text is not Python, and RecursionError or MemoryError if it
    is too deeply nested for Python's parser.
    """
    # names of trainables so far: those defined above or imported from sweep's own package
    classes = {BASE}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and _is_trainable_class(node, classes):
            classes.add(node.name)  # also a private one, from which others may be derived
            if not node.name.startswith("_") and node.name != BASE:
                yield node.name
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            names = [argument.arg for argument in node.args.args]
            if len(names) == 2 and names[1] == "report":
                yield node.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == OURS:
            classes |= {alias.asname or alias.name for alias in node.names}


def _is_trainable_class(node: ast.ClassDef, classes: set[str]) -> bool:
    """Return whether a class is derived from one of the names ``classes``, or has any base and both of `METHODS`.

    Of a base such as ``module.Name``, only the last part is compared. Only methods that the class itself defines count.
    """
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return bool(bases & classes) or (bool(bases) and methods.issuperset(METHODS))
