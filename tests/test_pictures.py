"""`make pictures`: what of a terminal is drawn, and that a picture asks nobody for anything."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import pictures  # noqa: E402 - a tool, not part of the package

FRAMES = [
    b"\x1b[?7lrunning\x1b[K\r\r\n%d/20 trials\x1b[K\r\r\n\x1b[J\x1b[?7h\x1b[2A\r" % n
    for n in range(20)
]
WRITTEN = b"\r\x1b[2K" + b"".join(FRAMES) + b"\r\n\x1b[1mrank\x1b[0m  verdict\r\n   1  best\r\n"


def test_a_frame_and_the_end_without_what_moved_the_cursor() -> None:
    assert pictures.running(WRITTEN) == "running\n18/20 trials"
    assert pictures.ended(WRITTEN) == "\x1b[1mrank\x1b[0m  verdict\n   1  best"


def test_a_terminal_as_svg_needs_no_font_of_elsewhere(tmp_path: Path) -> None:
    pictures.draw("python -m sweep run a.yaml", pictures.ended(WRITTEN), tmp_path / "end.svg")
    svg = (tmp_path / "end.svg").read_text()
    assert "verdict" in svg
    _self_contained(svg)


def test_a_command_is_run_on_a_terminal(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdout.isatty(), os.get_terminal_size().columns, os.getcwd())"
    shown = pictures.typescript([sys.executable, "-c", code], tmp_path).decode().split()
    assert shown == ["True", str(pictures.COLUMNS), str(tmp_path)]
    with pytest.raises(SystemExit, match="ended with 3"):
        pictures.typescript([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


@pytest.mark.parametrize("name", ["terminal.svg", "running.svg"])
def test_shipped_pictures_ask_nobody(name: str) -> None:
    _self_contained((ROOT / "docs" / "pictures" / name).read_text())


def _self_contained(svg: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"')]+", svg))
    # a namespace and a comment
    assert addresses <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }
    assert "@font-face" not in svg
