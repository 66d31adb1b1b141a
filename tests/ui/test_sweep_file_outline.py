"""What is understood of a sweep file while it is typed; `|` is the cursor."""

from __future__ import annotations

import pytest

from sweep.ui.outline import Outline, read_outline


def read(text: str) -> Outline:
    before, _, after = text.partition("|")
    return read_outline(before + after, len(before))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("method:|", True),
        ("method: |", False),
        ("method: !!str |", False),
        ("method: &a |", False),
    ],
)
def test_the_place_of_a_missing_value(text: str, expected: bool) -> None:
    place = read(text).place
    assert place is not None
    assert (place.kind, place.path, place.start, place.end) == (
        "value",
        ("method",),
        len(text) - 1,
        len(text) - 1,
    )
    assert place.needs_space is expected


@pytest.mark.parametrize("text", ["method: |&a ", "method: !!s|tr ", "method: !|!str # text"])
def test_no_value_is_proposed_within_a_tag_or_an_anchor(text: str) -> None:
    assert read(text).place is None


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quoted_text_may_go_on_in_lines_that_are_indented_further(quote: str) -> None:
    text = f"notes: {quote}compare\n\n  method: not a key\n  more{quote}\nmethod: tpe\nepochs: |"
    outline = read(text)
    assert outline.values[("method",)] == "tpe"
    assert ("notes", "method") not in outline.values
    inside = read(text.replace("|", "").replace("not a", "no|t a"))
    assert inside.place is None
    listed = read(f"values:\n  - {quote}one\n    two: 2{quote}\n  - 3\nepochs: |")
    assert ("values", "two") not in {path for path in listed.values if len(path) == 2}


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quote_that_is_not_closed_yet_hides_no_other_line(quote: str) -> None:
    outline = read(f"name: {quote}my swe|\nmethod: tpe\nnotes: {quote}all{quote}\n")
    assert outline.values[("method",)] == "tpe"
    assert outline.place is not None
    assert (outline.place.kind, outline.place.path) == ("value", ("name",))
