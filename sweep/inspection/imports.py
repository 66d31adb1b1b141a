"""What a module imports, and where it imports in ways that its text does not tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LOADERS = frozenset({"spec_from_file_location", "SourceFileLoader", "run_path", "run_module"})


def imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """Full names of all modules that may be meant: ``from a import b`` gives ``a`` and ``a.b``."""
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
                if base:
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in aliases if alias.name != "*")
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _called(node) in ("import_module", "__import__"):
                yield name.lstrip(".")


def obscure(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and reason of each import whose module is not named."""
    for node in ast.walk(tree):
        match node:
            case ast.Call() if _called(node) in ("import_module", "__import__"):
                if not (node.args and isinstance(node.args[0], ast.Constant)):
                    yield node.lineno, "imports a module whose name is computed"
            case ast.Call(func=ast.Name(id="exec")):
                yield node.lineno, "runs a text as code"
            case ast.Call() if _called(node) in _LOADERS:
                yield node.lineno, "runs a file as code"
            case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
                yield node.lineno, "changes where modules are found (sys.path)"


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
