"""What is known for sure of a trainable's methods: only that may be refused before anything runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sweep.inspection import inspect
from sweep.inspection.methods import is_function, lacks

OTHER = "class Far:\n    def join(self): ...\n    leave = join\nclass Bare:\n    pass\ndef train(hp): ...\n"
NAMES = ("join", "leave")


def of(text: str) -> tuple[str, ...]:
    return lacks("m:T", NAMES, {"m": ast.parse(text), "far.off": ast.parse(OTHER)})


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("def T(hp, report): ...", NAMES),
        ("@wrapped\ndef T(hp, report): ...", ()),
        ("class T:\n    'words'\n    def begin(self): ...", NAMES),
        ("class T:\n    def join(self): ...", ("leave",)),
        ("class T:\n    join: object\n    async def leave(self): ...", ()),
        ("class B:\n    def join(self): ...\n    def leave(self): ...\nclass T(B): ...", ()),
        ("class T(Elsewhere): ...", ()),
        ("from elsewhere import B\nclass T(B): ...", ()),
        ("from typing import Protocol\nclass T(Protocol): ...", NAMES),
        ("from far.off import Far as Near\nclass T(Near): ...", ()),
        ("import far.off\nclass T(far.off.Bare): ...", NAMES),
        ("import far.off as near\nclass T(near.Far): ...", ()),
        ("from far import off\nclass T(off.Bare): ...", NAMES),
        ("from far.off import train as T", NAMES),
        ("from far.off import gone as T", ()),
        ("T = make()", ()),
        ("if fast:\n    class T: ...\nelse:\n    class T:\n        def join(self): ...", ()),
        ("@made\nclass T: ...", ()),
        ("class T(metaclass=Meta): ...", ()),
        ("class T:\n    if True:\n        def join(self): ...", ()),
        ("class T(T): ...", ()),
        ("class T(bases[0]): ...", ()),
    ],
)
def test_a_method_is_missed_only_where_it_can_come_from_nowhere(text: str, missing: tuple[str, ...]) -> None:
    assert of(text) == missing


def test_relative_imports_are_followed() -> None:
    trees = {"p": ast.parse(""), "p.m": ast.parse("from .far import Far as T"), "p.far": ast.parse(OTHER)}
    assert lacks("p.m:T", NAMES, trees) == ()
    trees["p.m"] = ast.parse("from . import far\nclass T(far.Bare): ...")
    assert lacks("p.m:T", NAMES, trees) == ()  # nobody knows: a name of the package


def test_functions_are_told_from_classes() -> None:
    trees = {"m": ast.parse("def f(hp): ...\nclass C: ...")}
    assert [is_function(f"m:{name}", trees) for name in ("f", "C", "g")] == [True, False, False]


def test_trainables_of_keras_have_what_ranks_need(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from trainables.digits_cnn import DigitsCNN\nclass Mine(DigitsCNN): ...\n")
    assert inspect("mine:Mine", [tmp_path]).lacks(*NAMES) == ()
