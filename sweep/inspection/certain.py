"""What surely happens in every trial, as far as the text tells: parameters that are read without a default, imports.

Only what is neither in a branch nor in a try counts, and nothing after a branch that may leave.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sweep.hyperparameters import Hyperparameters
from sweep.inspection import methods

METHODS = ("data", "model")  # of a KerasTrainable: called in every trial, with the hyperparameters alone

_NO_NAMES = frozenset(dir(Hyperparameters)) | frozenset(dir(dict))
_READERS = frozenset({"number", "integer", "text", "flag"})  # whose only argument is a name: no default
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LATER = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BRANCHES = (ast.If, ast.Try, ast.For, ast.AsyncFor, ast.While, ast.Match)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Place:
    """A name, and where a module uses it."""

    name: str
    module: str
    line: int


def reads(trainable: str, trees: Mapping[str, ast.Module], *, is_function: bool) -> Iterator[Place]:
    """The parameters that a function, or the class's own `data` and `model`, read in every trial without a default."""
    module, _, name = trainable.partition(":")
    if is_function:
        module, found = methods.definition(module, name, trees)
        yield from _of(module, found, 0)
        return
    for method in METHODS:
        module, found = methods.method(trainable, method, trees)
        yield from _of(module, found, 1)


def imports(module: str, trees: Mapping[str, ast.Module]) -> Iterator[Place]:
    """The modules that importing a module surely imports, also by way of those in ``trees``."""
    queue, seen = [module], {module}
    while queue:
        module = queue.pop()
        for node in trees[module].body if module in trees else ():
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                yield Place(name, module, node.lineno)
                if name not in seen:
                    seen.add(name)
                    queue.append(name)


def _of(module: str, function: ast.stmt | None, place: int) -> Iterator[Place]:
    if not isinstance(function, Function) or function.decorator_list or _is_generator(function):
        return
    positional = [*function.args.posonlyargs, *function.args.args]
    if place >= len(positional):
        return
    hp = positional[place].arg
    named = (node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == hp)
    if not all(isinstance(node.ctx, ast.Load) for node in named):  # it becomes something else
        return
    for node in _executed(function.body):
        if (name := _read(node, hp)) is not None:
            yield Place(name, module, node.lineno)  # type: ignore[attr-defined]  # an expression has one


def _read(node: ast.AST, hp: str) -> str | None:
    """The parameter that an expression reads of ``hp`` and fails without."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=reader), args=[ast.Constant(value=str(name))]):
            if owner == hp and reader in _READERS and not node.keywords:
                return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Load()):
            if owner == hp and name not in _NO_NAMES and not name.startswith("_"):
                return name
        case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            if owner == hp:
                return name
    return None


def _executed(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of statements that are surely reached, in their order."""
    for statement in body:
        if isinstance(statement, _LATER):
            continue
        if isinstance(statement, _BRANCHES):
            for test in _tests(statement):
                yield from _evaluated(test)
            if isinstance(statement, ast.Try) or any(isinstance(one, _LEAVES) for one in ast.walk(statement)):
                return
            continue
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                yield from _evaluated(item.context_expr)
            yield from _executed(statement.body)
            if any(isinstance(one, _LEAVES) for one in ast.walk(statement)):
                return
            continue
        yield from _evaluated(statement)
        if isinstance(statement, _LEAVES):
            return


def _tests(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return [test]
        case ast.For(iter=test) | ast.AsyncFor(iter=test):
            return [test]
        case ast.Match(subject=test):
            return [test]
    return []


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what of it is evaluated in any case."""
    if isinstance(node, (*_LATER, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return
    yield node
    match node:
        case ast.IfExp(test=test):
            yield from _evaluated(test)
        case ast.BoolOp(values=[first, *_]):
            yield from _evaluated(first)
        case ast.Compare(left=left, comparators=[first, *_]):
            yield from _evaluated(left)
            yield from _evaluated(first)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _evaluated(child)


def _is_generator(function: Function) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
