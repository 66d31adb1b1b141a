"""Places, and values in words."""

from __future__ import annotations

import pytest

from sweep.errors import InputError
from sweep.events import Value
from sweep.spec.validation import Document, KeyPath, TextPosition, describe_value, flow, format_path
from sweep.spec.yaml_reader import parse_document, read_value


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("a", "b"), "a.b"),
        (("metrics", 1, "goal"), "metrics[1].goal"),
        (("a", "b.c"), "a.b.c"),
    ],
)
def test_dotted(path: KeyPath, text: str) -> None:
    assert format_path(path) == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "nothing"),
        (True, "true"),
        (3, "number 3"),
        (1e-4, "number 0.0001"),
        ("a\nb", r"text 'a\nb'"),
        ([1, 2], "a list of 2"),
        ([], "an empty list"),
        ({"a": 1}, "a mapping"),
    ],
)
def test_show(value: Value, words: str) -> None:
    assert describe_value(value) == words


def test_show_shortens_a_long_text() -> None:
    assert len(describe_value("x" * 1000)) < 80


@pytest.mark.parametrize(
    "value",
    [None, False, 1, 1.5, "sgd", "1", "true", "a: b", "", [1, ["a"]], {"a": {"b": [None, "x y"]}}],
)
def test_flow_reads_back(value: Value) -> None:
    assert read_value(flow(value), "x") == value


def places(document: Document) -> list[str]:
    with pytest.raises(InputError) as caught:
        document.check()
    return [str(problem) for problem in caught.value.problems]


def test_mistakes_come_in_the_order_of_the_file() -> None:
    document = parse_document("a: 1\nb: {c: 2}\n", "s.yaml")
    document.add_outside_mistake("--set d=1", "outside")
    document.add_mistake(("b", "c"), "second")
    document.add_mistake(("a",), "first")
    document.add_mistake(("b",), "at its key", at_key=True)
    assert places(document) == [
        "s.yaml:1:4: a: first",
        "s.yaml:2:1: b: at its key",
        "s.yaml:2:8: b.c: second",
        "--set d=1: outside",
    ]


def test_what_is_missing_stands_at_its_parent() -> None:
    document = parse_document("a: 1\nb:\n  c: 2\n", "s.yaml")
    document.add_mistake(("b", "d"), "missing")
    assert places(document) == ["s.yaml:3:3: b.d: missing"]


def test_what_was_set_from_outside_has_no_line() -> None:
    document = parse_document("a: {b: 1}\n", "s.yaml")
    document.override(("a",), "--set a={b: 2}")
    document.add_mistake(("a", "b"), "wrong")
    assert places(document) == ["--set a={b: 2}: a.b: wrong"]


def test_one_place_is_wrong_once() -> None:
    document = parse_document("a: .inf\n", "s.yaml")
    document.add_mistake(("a",), "follows from it")
    assert places(document) == ["s.yaml:1:4: .inf is not a finite number"]


def test_no_mistakes_no_error() -> None:
    document = Document("s.yaml")
    document.check()
    assert document.where(TextPosition(2, 3)) == "s.yaml:2:3"
