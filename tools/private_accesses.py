"""Count where tests use private names of sweep and trainables: those that begin with one underscore.

`python tools/private_accesses.py` prints the count of each file below `tests/`, the most first; `-v` lists the places.
These count, if `sweep/` or `trainables/` define the name:

- attributes, `thing._name`, unless the base is `self` or `cls`, or a class in the same file defines the name;
- imports, `from sweep.store.log import _name`;
- names in texts, `monkeypatch.setattr(thing, "_name", ...)`, `getattr(thing, "_name")` and `patch("sweep.log._name")`.

Names that the packages do not define belong to Keras, TensorFlow, Ray and others. They are counted apart.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sweep", "trainables")
PRIVATE = re.compile(r"_[A-Za-z]\w*")
LIKELY = re.compile(
    r"[.\"']_[A-Za-z]|import .*\b_[A-Za-z]|^\s+_[A-Za-z]\w*( as \w+)?,", re.MULTILINE
)
"""What every file has that uses a private name of others; others need not be parsed, which takes longer."""

DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_replace", "_repr_html_"}
"""Names that the documentation of Python or IPython promises in spite of their underscore."""

NAMED_SECOND = {"getattr", "setattr", "hasattr", "delattr", "object"}
"""Functions and methods whose second argument is a name: `monkeypatch.setattr`, `patch.object` and those of Python."""

NAMED_FIRST = {"setattr", "delattr", "patch"}
"""Functions and methods whose first argument may be a dotted path: `monkeypatch.setattr("sweep.log._name", ...)`."""


@dataclass(frozen=True)
class Access:
    """A place in a file that uses a private name."""

    line: int
    name: str


def own_private_names(packages: Iterable[Path]) -> set[str]:
    """Return the private names that packages define: functions, classes, attributes, variables and modules."""
    names = set[str]()
    for package in packages:
        for path in package.rglob("*.py"):
            names |= defined_private_names(ast.parse(path.read_text(encoding="utf-8")))
            names |= set(filter(is_private, (path.stem, path.parent.name)))
    return names


def defined_private_names(tree: ast.AST) -> set[str]:
    """Return the private names that a module defines, in its classes and functions too."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return {name for name in names if is_private(name)}


def is_private(name: str) -> bool:
    """Return whether a name begins with exactly one underscore, and is not documented all the same."""
    return PRIVATE.fullmatch(name) is not None and name not in DOCUMENTED


def private_accesses(source: str) -> list[Access]:
    """Return the private names that a file uses of others, in the order of its lines."""
    if LIKELY.search(source) is None:
        return []
    tree = ast.parse(source)
    names_of_classes = _names_of_classes(tree)
    found = []
    for node in ast.walk(tree):
        for name in _private_names_used_by(node):
            if name not in names_of_classes:
                found.append(Access(node.lineno, name))
    return sorted(found, key=lambda access: access.line)


def _names_of_classes(tree: ast.AST) -> set[str]:
    """Return the private names that the classes of a file define."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names |= defined_private_names(node)
    return names


def _private_names_used_by(node: ast.AST) -> Iterator[str]:
    """Yield the private names that one node of a tree uses, not those of the nodes below it."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return
        case ast.Attribute(attr=name):
            yield from filter(is_private, [name])
        case ast.ImportFrom(module=module, names=aliases):
            parts = (module or "").split(".")
            yield from filter(is_private, [*parts, *(alias.name for alias in aliases)])
        case ast.Import(names=aliases):
            for alias in aliases:
                yield from filter(is_private, alias.name.split("."))
        case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=arguments):
            yield from _private_names_in_texts(function, arguments)


def _private_names_in_texts(function: str, arguments: Sequence[ast.expr]) -> Iterator[str]:
    """Yield the private names among the texts that a call gives to a function which looks up names."""
    match arguments:
        case [ast.Constant(value=str(path)), *_] if function in NAMED_FIRST:
            yield from filter(is_private, path.split("."))
        case [_, ast.Constant(value=str(name)), *_] if function in NAMED_SECOND:
            yield from filter(is_private, [name])


def accesses_by_file(folder: Path, own_names: set[str]) -> dict[str, list[Access]]:
    """Return the places in each file of a folder that use one of these names; files without any are left out."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        accesses = private_accesses(path.read_text(encoding="utf-8"))
        chosen = [access for access in accesses if access.name in own_names]
        if chosen:
            found[path.relative_to(folder).as_posix()] = chosen
    return found


def count_others(folder: Path, own_names: set[str]) -> Counter[str]:
    """Return how often each private name is used in a folder that is none of these: those of other libraries."""
    counts = Counter[str]()
    for path in sorted(folder.rglob("*.py")):
        accesses = private_accesses(path.read_text(encoding="utf-8"))
        counts.update(access.name for access in accesses if access.name not in own_names)
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", "--verbose", action="store_true", help="list the places")
    options = parser.parse_args(arguments)
    own_names = own_private_names(ROOT / package for package in PACKAGES)
    tests = ROOT / "tests"
    found = accesses_by_file(tests, own_names)
    for file, accesses in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(accesses):5} tests/{file}")
        if options.verbose:
            for access in accesses:
                print(f"        {access.line}: {access.name}")
    print(f"{sum(map(len, found.values())):5} in {len(found)} files")
    print(f"{count_others(tests, own_names).total():5} of other libraries")


if __name__ == "__main__":
    main()
