"""What is drawn over and over, on a terminal that knows no other sequences than it may use."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from emulator import Terminal
from rich.console import Console
from rich.text import Text

from sweep.render.screen import Above, Screen, is_plain


class Watched:
    """A screen on an emulated terminal."""

    def __init__(self, width: int = 40, height: int = 8) -> None:
        self.terminal = Terminal(width, height)
        self.console = Console(file=self.terminal, force_terminal=True, _environ={"TERM": "xterm"})
        self.console.size = (width, height)  # type: ignore[assignment]  # Rich takes a pair
        self.screen = Screen(self.console)

    def draw(self, frame: Sequence[str], *above: str) -> None:
        self.screen.draw([Text(line) for line in above], [Text(line, no_wrap=True) for line in frame])

    def resize(self, width: int, height: int) -> None:
        self.terminal.resize(width, height)
        self.console.size = (width, height)  # type: ignore[assignment]  # Rich takes a pair

    @property
    def shown(self) -> list[str]:
        return [line for line in self.terminal.lines if line]


def test_a_frame_takes_the_place_of_the_last_one_in_one_write() -> None:
    watched = Watched()
    for number in range(5):
        watched.draw([f"frame {number}", "x" * (40 - number), "end"])
    assert watched.shown == ["frame 4", "x" * 36, "end"]
    assert watched.terminal.history == []
    assert watched.terminal.writes == 5


def test_a_shorter_frame_leaves_nothing_of_a_longer_one() -> None:
    watched = Watched()
    watched.draw(["one", "two", "three"])
    watched.draw(["1"])
    assert watched.shown == ["1"]
    watched.draw([])
    assert watched.shown == []


def test_a_line_as_wide_as_the_terminal_is_whole() -> None:
    watched = Watched()
    for _ in range(2):
        watched.draw(["y" * 40, "高" * 20])
    assert watched.shown == ["y" * 40, "高" * 20]


def test_lines_that_stay_scroll_away_above_the_frame() -> None:
    watched = Watched()
    for number in range(12):
        watched.draw(["frame", str(number)], f"trial {number} failed: {'long ' * 10}")
    assert watched.shown[-2:] == ["frame", "11"]
    everything = " ".join([*watched.terminal.history, *watched.shown])
    assert everything.count("frame") == 1
    assert [number for number in range(12) if f"trial {number} failed" in everything] == list(range(12))
    assert watched.terminal.wraps


def test_a_terminal_that_becomes_narrow_and_wide_again() -> None:
    watched = Watched(40, 20)
    watched.draw(["a" * 40, "b" * 30, "c"], "stays")
    watched.resize(20, 20)
    watched.draw(["a" * 20, "c"])
    assert watched.shown == ["stays", "a" * 20, "c"]
    watched.resize(40, 20)
    watched.draw(["a" * 40, "c"])
    assert watched.shown == ["stays", "a" * 40, "c"]
    assert watched.terminal.history == []


def test_characters_that_the_terminal_has_not() -> None:
    watched = Watched()
    watched.terminal.encoding = "ascii"
    watched.draw(["größer"], "\udce9")
    assert watched.shown == ["?", "gr??er"]


def test_what_is_printed_meanwhile_is_told_line_by_line() -> None:
    told: list[str] = []
    above = Above(Terminal(), told.append)
    for text in ("a", "b\nc", "\r100%\n", "\n", "rest"):
        above.write(text)
    assert told == ["ab", "100%", ""]
    assert above.isatty()
    assert above.encoding == "utf-8"
    above.give_back()
    assert told[-1] == "rest"
    with pytest.raises(OSError, match="fileno"):
        above.fileno()
    with open(os.devnull, "w") as file:  # noqa: PTH123 - a device
        assert Above(file, told.append).fileno() == file.fileno()


@pytest.mark.parametrize(
    ("encoding", "environ", "plain"),
    [
        ("utf-8", {"LANG": "de_DE.UTF-8"}, False),
        ("UTF8", {}, False),
        ("utf-8", {"LANG": "C.UTF-8"}, False),
        ("utf-8", {"LANG": "C"}, True),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ("utf-8", {"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, True),
        ("iso8859-1", {"LANG": "en_US"}, True),
        ("ascii", {}, True),
    ],
)
def test_where_there_is_nothing_but_ascii(encoding: str, environ: dict[str, str], plain: bool) -> None:
    assert is_plain(encoding, environ) is plain
