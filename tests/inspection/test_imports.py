"""Imports as a module's text names them, and those that it does not."""

from __future__ import annotations

import ast

import pytest

from sweep.inspection.imports import imports, obscure


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import a.b, c as d", {"a.b", "c"}),
        ("from a import b, c", {"a", "a.b", "a.c"}),
        ("from a import *", {"a"}),
        ("from . import b", {"top.mid", "top.mid.b"}),
        ("from ..x import b", {"top.x", "top.x.b"}),
        ("def f():\n    import late", {"late"}),
        ("import importlib\nimportlib.import_module('a.b')", {"importlib", "a.b"}),
    ],
)
def test_named(line: str, named: set[str]) -> None:
    assert set(imports(ast.parse(line), "top.mid.module", is_package=False)) == named


def test_a_packages_own_file_is_relative_to_the_package() -> None:
    assert set(imports(ast.parse("from . import b"), "top.mid", is_package=True)) == {"top.mid", "top.mid.b"}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("importlib.import_module(name)", 1),
        ("__import__(name)", 1),
        ("exec(text)", 1),
        ("spec = importlib.util.spec_from_file_location('a', path)", 1),
        ("sys.path.append(folder)", 1),
        ("importlib.import_module('json'); eval('1'); model.exec(1); os.path.join(a, b)", 0),
    ],
)
def test_not_named(line: str, count: int) -> None:
    assert len(list(obscure(ast.parse(line)))) == count
