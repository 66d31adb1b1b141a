"""The list of a module's nodes, against `ast.walk`."""

from __future__ import annotations

import ast
import gc
import weakref
from pathlib import Path

import pytest

from sweep.errors import InputError
from sweep.inspection.syntax_nodes import list_nodes, parse

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


def test_a_file_is_read_in_its_own_encoding() -> None:
    tree = parse(b"# coding: latin-1\nname = '\xe9'", Path("x.py"))
    assert ast.unparse(tree) == "name = 'é'"


@pytest.mark.parametrize("content", [b"class", b"x = '\xe9'", b"x = 1\0"])
def test_what_python_cannot_import_is_an_error(content: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.py is no valid Python"):
        parse(content, Path("x.py"))


@pytest.mark.parametrize(
    "content", [b"x = " + b"1 + " * 50_000 + b"1", b"x = " + b"-" * 50_000 + b"1"]
)
def test_what_is_too_deep_for_the_parser_is_an_error(content: bytes) -> None:
    with pytest.raises(InputError, match=r"x\.py has an expression that is too deep"):
        parse(content, Path("x.py"))
