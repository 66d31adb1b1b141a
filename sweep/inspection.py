"""What a trainable's source says without running it: that it exists, what it reads, what it is made of.

Importing it would import TensorFlow; `plan` and every check before the first epoch read the syntax tree.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sweep.errors import InputError, did_you_mean
from sweep.hyperparameters import Hyperparameters

READERS = frozenset({"get", "number", "integer", "text", "flag", "choice"})
BELOW = "below"  # reads all parameters below a name


@dataclass(frozen=True)
class Source:
    """A trainable's module and the project modules that it imports, directly or not."""

    trainable: str
    files: dict[str, Path]  # by module name, the trainable's own first

    @cached_property
    def _trees(self) -> dict[str, ast.Module]:
        return {name: _parse(path) for name, path in self.files.items()}

    @cached_property
    def reads(self) -> frozenset[str] | None:
        """Names of all parameters that the source reads; None where it reads names that it computes.

        A read is ``hp.x``, ``hp["x"]``, ``hp.get("x")`` and its kin, ``"x" in hp``, ``live.number("x")``, or
        an entry of a module's ``READS = ("x", ...)``, the way out where names are computed.
        """
        names: set[str] = set()
        for tree in self._trees.values():
            found = _reads(tree)
            if found is None:
                return None
            names |= found
        return frozenset(names) - set(dir(Hyperparameters))

    def reads_parameter(self, name: str) -> bool:
        """Whether the source may read a parameter, by its own name or with all those of its group."""
        reads = self.reads
        if reads is None or name in reads:
            return True
        parts = name.split(".")
        return any(f"{'.'.join(parts[:end])}.*" in reads for end in range(1, len(parts)))

    def digest(self) -> str:
        """SHA-256 over all files: the same code gives the same digest wherever it lies."""
        total = hashlib.sha256()
        for name in sorted(self.files):
            content = self.files[name].read_bytes()
            total.update(f"{name}\0{len(content)}\0".encode())
            total.update(content)
        return total.hexdigest()


def inspect(trainable: str, folders: Iterable[Path]) -> Source:
    """Find ``module:Name`` in these folders or among the installed modules; raises InputError."""
    module, _, name = trainable.partition(":")
    finder = _Finder(tuple(folders))
    path = finder.find(module)
    if path is None:
        raise InputError.one(
            "trainable",
            f"no module {module!r} in {', '.join(map(str, finder.folders))} or among the installed packages",
            "expected module:Name, importable from the current folder or the sweep file's",
        )
    names = _defined(_parse(path))
    if name not in names:
        classes = [n for n in names if n[:1].isupper()]
        raise InputError.one("trainable", f"{path} defines no {name!r}", did_you_mean(name, classes))
    return Source(trainable, finder.closure(module, path))


class _Finder:
    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders

    def find(self, module: str) -> Path | None:
        """The file of a module, found without importing it or its parents."""
        parts = module.split(".")
        for folder in (*self.folders, *(Path(entry) for entry in sys.path if entry)):
            base = folder.joinpath(*parts)
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    return path
        # An editable installation is no folder of sys.path: ask every finder for the top package, which is light.
        for finder in sys.meta_path:
            spec = finder.find_spec(parts[0], None)
            for location in (spec.submodule_search_locations or []) if spec else []:
                base = Path(location).joinpath(*parts[1:])
                for path in (base.with_suffix(".py"), base / "__init__.py"):
                    if path.is_file():
                        return path
        return None

    def closure(self, module: str, path: Path) -> dict[str, Path]:
        """The module and what it imports of the same project: the same top package or a folder given."""
        found = {module: path}
        queue = [module]
        while queue:
            current = queue.pop()
            for imported in _imports(_parse(found[current]), current, is_package=found[current].stem == "__init__"):
                if imported in found or not self._ours(imported, module):
                    continue
                file = self.find(imported)
                if file is not None:
                    found[imported] = file
                    queue.append(imported)
        return found

    def _ours(self, name: str, root: str) -> bool:
        top = name.split(".")[0]
        if top in (root.split(".")[0], "trainables"):
            return True
        return any((f / f"{top}.py").is_file() or (f / top).is_dir() for f in self.folders) and top != "sweep"


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputError.one("trainable", f"{path} is no valid Python: {error}") from None


def _defined(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.append(name)
            case ast.Assign(targets=targets):
                names += [t.id for t in targets if isinstance(t, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [a.asname or a.name.split(".")[0] for a in aliases]
    return names


def _imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=source, names=aliases, level=level):
                base = source or ""
                if level:
                    parents = module.split(".")
                    parents = parents[: len(parents) - level + (1 if is_package else 0)]
                    base = ".".join([*parents, *([source] if source else [])])
                yield base
                yield from (f"{base}.{alias.name}" for alias in aliases)


def _reads(tree: ast.Module) -> set[str] | None:
    """Parameters that a module reads, or None if it reads computed names and declares no ``READS``."""
    names: set[str] = set()
    declared = computed = False
    holders = {"hp", "params"} | {
        arg.arg for arg in ast.walk(tree) if isinstance(arg, ast.arg) and "Hyperparameters" in _annotation(arg)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="READS")], value=value):
                declared = True
                names |= {text for c in ast.walk(value) if isinstance(c, ast.Constant) for text in _text(c)}
            case ast.Attribute() if (dotted := _dotted(node, holders)) is not None:
                names |= {".".join(dotted[:end]) for end in range(1, len(dotted) + 1)}
            case ast.Subscript(value=owner, slice=key) if _held(owner, holders):
                computed |= not isinstance(key, ast.Constant)
                names |= _text(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key, *_]) if method in READERS:
                if _held(owner, holders):
                    computed |= not isinstance(key, ast.Constant)
                    names |= _text(key)
                elif _held(owner, {"live"}):
                    names |= _text(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key]) if method == BELOW:
                names |= {f"{text}.*" for text in _text(key)} if _held(owner, holders) else set()
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if _held(right, holders):
                names |= _text(key)
    return None if computed and not declared else names


def _held(node: ast.expr, holders: set[str]) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in holders
    return False


def _dotted(node: ast.expr, holders: set[str]) -> list[str] | None:
    """The attribute names after the holder: ``hp.aug.kind`` gives aug, kind."""
    if not isinstance(node, ast.Attribute):
        return None
    if _held(node.value, holders):
        return [node.attr]
    before = _dotted(node.value, holders)
    return None if before is None else [*before, node.attr]


def _text(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def _annotation(arg: ast.arg) -> str:
    return ast.unparse(arg.annotation) if arg.annotation else ""
