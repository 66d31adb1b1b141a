"""Finds what a trainable other than a `KerasTrainable` reads about its trial: the fold, and the training settings.

A function reads ``report.fold`` and ``report.training``, a class ``assignment.fold`` and ``assignment.training``. Also
finds the metrics that a function reports.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from sweep.inspection.hyperparameter_reads import (
    Function,
    find_text_patterns,
    get_last_name,
    list_positional,
)
from sweep.inspection.syntax_nodes import list_nodes


def list_surely_unread(
    trainable: Function | ast.ClassDef,
    author_trees: Mapping[str, ast.Module],
    names: Iterable[str],
    group: str = "",
) -> list[str]:
    """Return those of ``names`` that no code of a trainable can read.

    A name is read as an attribute of any object or, with ``group``, as a key of the attribute ``group``, in any code
    that the trainable may use. Returns all names for a function without a second argument. Returns [] if the function
    stores its report or passes it to code outside of ``author_trees``, or if it is uncertain which attributes or keys
    are read.
    """
    if isinstance(trainable, Function):
        if len(list_positional(trainable)) < 2 and not trainable.args.vararg:
            return list(names)
        if is_passed_on(trainable, author_trees):
            return []
    used = list_used_definitions(trainable, author_trees)
    modules = _list_imported_names(author_trees.values(), used)
    # pairs of an expression and the name of the attribute that it reads, which may be a pattern with ``*``
    reads = [pair for tree in used for pair in _list_attribute_reads(tree, modules)]
    if not group:
        patterns = {pattern for _, pattern in reads}
        unread = []
        for name in names:
            if not any(fnmatchcase(name, pattern) for pattern in patterns):
                unread.append(name)
        return unread
    reads_of_group = [node for node, pattern in reads if fnmatchcase(group, pattern)]
    keys = _find_keys_read(reads_of_group, used)
    if keys is None:
        return []
    return [name for name in names if name not in keys]


def list_used_definitions(
    trainable: ast.stmt, author_trees: Mapping[str, ast.Module]
) -> list[ast.AST]:
    """Return a trainable's definition and those of all functions and classes in ``author_trees`` that it may use.

    They are matched by name only, whatever module they are in. The trainable's own definition comes first, and may come
    again if its name is used.
    """
    definitions: dict[str, list[ast.AST]] = {}
    for tree in author_trees.values():
        for node in list_nodes(tree):
            if isinstance(node, Function | ast.ClassDef):
                definitions.setdefault(node.name, []).append(node)
    used: list[ast.AST] = [trainable]
    # the list grows during the loop; each definition is taken out, and so added once
    for definition in used:
        for part in ast.walk(definition):
            if isinstance(part, ast.Attribute):
                used += definitions.pop(part.attr, [])
            elif isinstance(part, ast.Name):
                used += definitions.pop(part.id, [])
    return used


def _list_imported_names(trees: Iterable[ast.Module], used: Iterable[ast.AST]) -> set[str]:
    """Return the names that imports bind in modules, without those of arguments and variables in the code ``used``."""
    aliases = [part for tree in trees for part in list_nodes(tree) if isinstance(part, ast.alias)]
    imported = {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    bound = set()
    for tree in used:
        for part in ast.walk(tree):
            if isinstance(part, ast.arg):
                bound.add(part.arg)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                bound.add(part.id)
    return imported - bound


def _list_attribute_reads(tree: ast.AST, modules: Container[str]) -> Iterator[tuple[ast.expr, str]]:
    """Yield each expression that reads an attribute, also by `getattr`, with the attribute's name.

    Of a name that is computed, the unknown parts are ``*``. If the object is one of ``modules`` or an attribute of one,
    as in ``getattr(keras.losses, name)``, a computed name is left out.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield node, name
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, key, *_]):
                while isinstance(owner, ast.Attribute):  # of ``keras.losses``, ``keras``
                    owner = owner.value
                of_module = isinstance(owner, ast.Name) and owner.id in modules
                for pattern in find_text_patterns(key) or {"*"}:
                    if not (of_module and "*" in pattern):
                        yield node, pattern


def _find_keys_read(reads: Iterable[ast.expr], used: Iterable[ast.AST]) -> set[str] | None:
    """Return the keys by which code takes values from ``reads``, expressions in it that give a dictionary.

    A value is taken by ``[key]`` or ``get``. Returns None if the code uses one of these expressions in any other way,
    or with a key that is not a constant. ``used`` are the syntax trees of the code.
    """
    keys: set[str] = set()
    parents: dict[ast.AST, ast.AST] = {}
    for tree in used:
        parents.update(
            {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        )
    for node in reads:
        match parents[node]:
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                keys.add(key)
            case ast.Attribute(attr="get") as method:
                call = parents[method]
                if not (
                    isinstance(call, ast.Call)
                    and call.args
                    and isinstance(call.args[0], ast.Constant)
                ):
                    return None
                keys.add(str(call.args[0].value))
            case _:
                return None
    return keys


NO_METRICS = frozenset({"checkpoint", "learning_rate", "examples_per_s"})
"""Arguments of a report that are no metrics."""


def list_reported_metrics(function: Function) -> list[str]:
    """Return the names of the metrics that a function visibly reports, by keyword or in a literal dict.

    A report is a call of the function's second argument. Each name comes once. Keywords in `NO_METRICS` and names that
    are computed are left out. Returns [] if the function has no second argument.
    """
    arguments = list_positional(function)
    if len(arguments) < 2:
        return []
    report = arguments[1].arg
    found: dict[str, None] = {}  # a set that keeps the order
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id != report:
            continue
        for given in node.args:
            if isinstance(given, ast.Dict):
                found.update(
                    dict.fromkeys(text for key in given.keys if key for text in _list_texts(key))
                )
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in NO_METRICS:
                found[keyword.arg] = None
    return list(found)


def _list_texts(key: ast.expr) -> list[str]:
    """Return the value of a literal string in a list; [] for any other expression."""
    return [key.value] if isinstance(key, ast.Constant) and isinstance(key.value, str) else []


HARMLESS = frozenset({"getattr", "print", "isinstance", "repr", "id"})


def is_passed_on(function: Function, author_trees: Mapping[str, ast.Module]) -> bool:
    """Return whether a function may pass its report to code outside of ``author_trees``, or store it somewhere.

    The report is the function's second argument; without one, the result is False. Every use of it counts, except
    calling it, using its attributes, and passing it to a function in `HARMLESS`, or to one with the name of a function
    or class in ``author_trees``.
    """
    arguments = list_positional(function)
    if len(arguments) < 2:
        return False
    report = arguments[1].arg
    known: set[str] = set()
    for tree in author_trees.values():
        known.update(
            node.name for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)
        )
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(function):
        if not (isinstance(node, ast.Name) and node.id == report):
            continue
        match parents[node]:
            case ast.Attribute() | ast.Expr():
                pass  # an attribute of it is used, or nothing
            # Passed to a function in ``author_trees``, whose code the caller searches as well: nothing is hidden.
            case ast.keyword() as keyword if _get_callee_name(parents[keyword]) in known:
                pass
            case ast.Call(func=called) as call if (
                called is node or _get_callee_name(call) in known | HARMLESS
            ):
                pass
            case _:
                return True
    return False


def _get_callee_name(call: ast.AST) -> str:
    """Return the last name of the called expression, such as ``fit`` for ``model.fit(x)``; "" if there is none."""
    if not isinstance(call, ast.Call):
        return ""
    return get_last_name(call.func)
