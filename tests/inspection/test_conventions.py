"""How sweep's own modules read hyperparameters."""

from __future__ import annotations

import ast

import pytest

from sweep.inspection.conventions import by_convention, first_name, last_name


@pytest.mark.parametrize(
    ("line", "names", "computed"),
    [
        ("hp.a.b; hp['c']; params.get('d'); 'e' in hp; live.number('f'); hp.below('g')", "a a.b c d e f g.*", False),
        ("def f(x: Hyperparameters): return x.a", "a", False),
        ("hp.get(name); other.get('x')", "", True),
        ("READS = ('a',)\nhp.get(name)", "a", False),
    ],
)
def test_by_convention(line: str, names: str, computed: bool) -> None:
    found, more = by_convention(ast.parse(line))
    assert (found - {"get", "below"}, more) == (set(names.split()), computed)


def test_names_at_both_ends() -> None:
    node = ast.parse("a.b().c", mode="eval").body
    assert (first_name(node), last_name(node)) == ("a", "c")
