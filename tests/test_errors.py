"""Texts of others on a terminal."""

from __future__ import annotations

import pytest

from sweep.errors import first_line, printable, shortened


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[36mray::A.go()\x1b[39m", "ray::A.go()"),
        ("\x1b[1;31;48;5;9mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "after link"),
        ("\x1b[2J\x1b[H\x1bMup", "up"),
        ("\x9b31mred", "red"),
        ("bell \x07, back \x08, return \r, lone \x1b", "bell \\x07, back \\x08, return \\r, lone \\x1b"),
        ("lines\nand\ttabs, ümläute, 漢字", "lines\nand\ttabs, ümläute, 漢字"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_nothing_moves_the_cursor_or_changes_colours(text: str, plain: str) -> None:
    assert printable(text) == plain


def test_long_texts_end_after_a_word() -> None:
    assert shortened("all of it", 9) == "all of it"
    assert shortened("nothing is cut in mid-word", 18) == "nothing is cut..."
    assert shortened("no room for more than this", 14) == "no room for..."
    assert shortened("x" * 50, 20) == f"{'x' * 17}..."
    assert first_line(ValueError("\n\x1b[31mwhat it says\nand more"), 12) == "what it says"
    assert first_line(ValueError()) == ""
