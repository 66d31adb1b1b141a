"""Finds what a trainable other than a `KerasTrainable` reads about its trial: the fold, and the training settings.

A function reads ``report.fold`` and ``report.training``, a class ``assignment.fold`` and ``assignment.training``. Also
finds the metrics that a function reports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

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
    stores its report or passes it to code outside of ``author_trees``, or if it is uncertain which keys are read.
    """
    if isinstance(trainable, Function):
        if len(list_positional(trainable)) < 2 and not trainable.args.vararg:
            return list(names)
        if is_passed_on(trainable, author_trees):
            return []
    used = list_used_definitions(trainable, author_trees)
    read = {name for node in used for name in _list_attributes(node)}
    if not group:
        return [name for name in names if name not in read]
    if group in read:
        keys = _find_keys_read(group, used)
    else:
        keys = set()
    if keys is None:
        return []
    return [name for name in names if name not in keys]


def list_used_definitions(
    trainable: ast.stmt, author_trees: Mapping[str, ast.Module]
) -> list[ast.AST]:
    """Return a trainable's definition and those of all functions and classes in ``author_trees`` that it may use.

    They are matched by name only, whatever module they are in.
    """
    definitions: dict[str, list[ast.AST]] = {}
    for tree in author_trees.values():
        for node in list_nodes(tree):
            if isinstance(node, Function | ast.ClassDef):
                definitions.setdefault(node.name, []).append(node)
    used: list[ast.AST] = [trainable]
    # the list grows during the loop; each definition is taken out, and so added once
    for node in used:
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute):
                used += definitions.pop(part.attr, [])
            elif isinstance(part, ast.Name):
                used += definitions.pop(part.id, [])
    return used


def _list_attributes(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes that code reads, including strings passed to `getattr`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.Call(func=ast.Name(id="getattr"), args=[_, key, *_]):
                yield from find_text_patterns(key)


def _find_keys_read(group: str, used: Iterable[ast.AST]) -> set[str] | None:
    """Return the keys that the code ``used`` reads from the attribute ``group`` of any object, by ``[key]`` or ``get``.

    Returns None if the code uses the attribute in any other way, or with a key that is not a constant.
    """
    keys: set[str] = set()
    for tree in used:
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if not (
                isinstance(node, ast.Attribute)
                and node.attr == group
                and isinstance(node.ctx, ast.Load)
            ):
                continue
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

    A report is a call of the function's second argument. Keywords in `NO_METRICS` are left out. Returns [] if the
    function has no second argument.
    """
    arguments = list_positional(function)
    report = arguments[1].arg if len(arguments) > 1 else ""
    found: dict[str, None] = {}
    for node in ast.walk(function):
        if not (
            report
            and isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == report
        ):
            continue
        for given in node.args:
            if isinstance(given, ast.Dict):
                found.update(
                    dict.fromkeys(text for key in given.keys if key for text in _list_texts(key))
                )
        found.update(
            dict.fromkeys(one.arg for one in node.keywords if one.arg and one.arg not in NO_METRICS)
        )
    return list(found)


def _list_texts(key: ast.expr) -> list[str]:
    """Return the string in a node as a list; [] if it is no string."""
    return [key.value] if isinstance(key, ast.Constant) and isinstance(key.value, str) else []


HARMLESS = frozenset({"getattr", "print", "isinstance", "repr", "id"})


def is_passed_on(function: Function, author_trees: Mapping[str, ast.Module]) -> bool:
    """Return whether a function may pass its report to code outside of ``author_trees``, or store it somewhere.

    The report is the function's second argument; without one, the result is False. Every use of it counts, except
    calling it, using its attributes, and passing it to the author's code or to a function in `HARMLESS`.
    """
    arguments = list_positional(function)
    if len(arguments) > 1:
        report = arguments[1].arg
    else:
        report = ""
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
