"""Finds what a package uses of other libraries that they promise to nobody, from its syntax trees.

- what it imports from private modules (``keras.src``, ``tensorflow.python``, any with a leading underscore), and which
  of their attributes it uses: ``keras.src.utils.naming:reset_uids``;
- attributes with a leading underscore, also those that are named in a text (``getattr(x, "_y")``): ``_y``;
- attributes of other objects that it sets, where no class of its own has them: ``call =``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

# by Python, and by Keras to be set
DOCUMENTED = {
    "_replace",
    "_fields",
    "_asdict",
    "_getframe",
    "_exit",
    "trainable",
}
BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}


def uses(package: Path, private: Iterable[str]) -> dict[str, set[str]]:
    """The private names that each file of a package uses; ``private``: modules that are so without an underscore."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    fields = set[str]().union(*map(_fields, trees.values()))
    inherited = fields.union(*map(_methods, trees.values()))
    found = {
        path: set(_of(tree, fields, inherited, tuple(private))) for path, tree in trees.items()
    }
    return {
        path.relative_to(package.parent).as_posix(): names for path, names in found.items() if names
    }


def _of(
    tree: ast.AST, fields: set[str], inherited: set[str], private: tuple[str, ...]
) -> Iterator[str]:
    own = set(_fields(tree)) | set(_methods(tree))
    modules: dict[str, str] = {}  # local names of private modules
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if _is_private(module, private):
                for alias in names:
                    modules[alias.asname or alias.name] = f"{module}:{alias.name}"
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    if _is_private(f"{module}.{alias.name}", private):
                        modules[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.Import(names=names):
                for alias in names:
                    if _is_private(alias.name, private):
                        modules[alias.asname or alias.name] = alias.name
    used: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
                used.add(name)
                yield f"{modules[name].replace(':', '.')}:{attribute}"
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if attribute in inherited:
                pass  # a class may have it from a base class in another file
            case ast.Attribute(attr=attribute) if _is_hidden(attribute) and attribute not in own:
                yield attribute
            case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Store()):
                if (
                    name not in ("self", "cls")
                    and not _is_hidden(name)
                    and attribute not in fields | DOCUMENTED
                ):
                    yield f"{attribute} ="
            case ast.Call(
                func=ast.Name(id=function), args=[_, ast.Constant(value=str(attribute)), *_]
            ):
                if function in BY_NAME and _is_hidden(attribute) and attribute not in own:
                    yield attribute
    yield from (whole for name, whole in modules.items() if name not in used)


def _fields(tree: ast.AST) -> Iterator[str]:
    """The attributes that the classes of a tree give themselves."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.ClassDef(body=body):
                for part in body:
                    match part:
                        case ast.AnnAssign(target=ast.Name(id=name)):
                            yield name
                        case ast.Assign(targets=targets):
                            yield from (name.id for name in targets if isinstance(name, ast.Name))


def _methods(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (
                part.name
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def _is_private(module: str, private: tuple[str, ...]) -> bool:
    return module.startswith(private) or any(map(_is_hidden, module.split(".")))


def _is_hidden(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED
