"""The list of a module's nodes, against `ast.walk`."""

from __future__ import annotations

import ast
import gc
import weakref
from pathlib import Path

import pytest

from sweep.inspection.syntax_nodes import list_nodes

FILES = sorted((Path(__file__).parents[2] / "sweep" / "inspection").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_has_the_nodes_of_walk_in_their_order(path: Path) -> None:
    tree = ast.parse(path.read_text())
    walked = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert list_nodes(tree) == walked[1:]
    assert list_nodes(tree) is list_nodes(tree)


def test_it_does_not_keep_a_module() -> None:
    tree = ast.parse("a = 1")
    list_nodes(tree)
    kept = weakref.ref(tree)
    del tree
    gc.collect()
    assert kept() is None
