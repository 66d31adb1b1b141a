"""The words by which hyperparameters are read, and how sweep's own modules read them: from what is called `hp`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

READERS = frozenset({"get", "number", "integer", "text", "flag", "choice"})
BELOW = "below"  # reads all parameters below a name
NAMES = frozenset({"hp", "params"})  # what holds hyperparameters by convention: an argument, an attribute


def by_convention(tree: ast.Module) -> tuple[set[str], bool]:
    """Parameters that a module of sweep reads, and whether it reads more, whose names it computes."""
    names = declared_in(tree) or set()
    computed = False
    holders = NAMES | {
        arg.arg
        for arg in ast.walk(tree)
        if isinstance(arg, ast.arg) and arg.annotation and "Hyperparameters" in ast.unparse(arg.annotation)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if (dotted := _dotted(node, holders)) is not None:
                names |= {".".join(dotted[:end]) for end in range(1, len(dotted) + 1)}
            case ast.Subscript(value=owner, slice=key) if last_name(owner) in holders:
                computed |= not isinstance(key, ast.Constant)
                names |= texts(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key, *_]) if method in READERS:
                if last_name(owner) in holders:
                    computed |= not isinstance(key, ast.Constant)
                    names |= texts(key)
                elif last_name(owner) == "live":
                    names |= texts(key)
            case ast.Call(func=ast.Attribute(attr=method, value=owner), args=[key]) if method == BELOW:
                names |= {f"{text}.*" for text in texts(key)} if last_name(owner) in holders else set()
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if (
                last_name(right) in holders
            ):
                names |= texts(key)
    return names, computed and declared_in(tree) is None


def words_of(trees: Mapping[str, ast.Module]) -> frozenset[str]:
    """Every attribute, argument, name and text of some modules."""
    words: set[str] = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.arg(arg=word) | ast.Name(id=word):
                    words.add(word)
                case ast.Constant(value=str(text)):
                    words |= {text, *text.split(".")}
    return frozenset(words)


def declared_in(tree: ast.Module) -> set[str] | None:
    """The texts of a module's ``READS``; None where it has none."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="READS")], value=value):
                return {text for one in ast.walk(value) if isinstance(one, ast.Constant) for text in texts(one)}
    return None


def last_name(node: ast.expr) -> str:
    """The name that an expression ends with, if it is names and dots."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def first_name(node: ast.expr) -> str:
    """The name that an expression begins with: ``a`` of ``a.b.c`` and of ``a().b``."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr, holders: frozenset[str] | set[str]) -> list[str] | None:
    """The attribute names after the holder: ``hp.aug.kind`` gives aug, kind."""
    if not isinstance(node, ast.Attribute):
        return None
    if last_name(node.value) in holders:
        return [node.attr]
    before = _dotted(node.value, holders)
    return None if before is None else [*before, node.attr]


def texts(node: ast.expr) -> set[str]:
    """The text that an expression is, if it is one."""
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()
