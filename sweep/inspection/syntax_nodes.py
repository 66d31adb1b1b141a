"""Parses modules, and lists the nodes of a syntax tree once, because many rules look through all nodes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from sweep.errors import InputError

# without the module, to free it
_nodes_below: WeakKeyDictionary[ast.Module, list[ast.AST]] = WeakKeyDictionary()


def parse(content: bytes, path: Path) -> ast.Module:
    """Return the syntax tree of ``content``, that of the file ``path``. Raises InputError if it is not valid Python.

    ``path`` is only for messages; the file is not read.
    """
    try:
        return ast.parse(content, str(path))
    except (SyntaxError, ValueError) as error:  # the latter: it contains null bytes
        raise InputError.one("trainable", f"{path} is no valid Python: {error}") from None
    except (RecursionError, MemoryError):
        raise InputError.one(
            "trainable", f"{path} has an expression that is too deep for Python's parser"
        ) from None


def list_nodes(tree: ast.Module) -> Sequence[ast.AST]:
    """Return all nodes below a module, in the order of `ast.walk`, without those of ``ast.expr_context``.

    The module itself is not included. The list is kept for later calls, so neither the tree nor the list may be changed
    afterwards.
    """
    nodes = _nodes_below.get(tree)
    if nodes is None:
        nodes = _list_children(tree)
        for node in nodes:  # the list grows during the loop
            nodes += _list_children(node)
        _nodes_below[tree] = nodes
    return nodes


def _list_children(node: ast.AST) -> list[ast.AST]:
    """Return the child nodes as `ast.iter_child_nodes` does, but without contexts (`ast.Load` and the like).

    It takes a third of the time.
    """
    children: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for part in value:
                if isinstance(part, ast.AST):
                    children.append(part)
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            children.append(value)
    return children
