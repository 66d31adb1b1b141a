"""The terminal: what may be written to it, and the few colours that mean something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from rich.console import Console

from sweep.events import Status

STYLES: Mapping[str, str] = {
    **{Status.COMPLETED: "green", "finished": "green", Status.RUNNING: "cyan"},
    **{Status.DIVERGED: "yellow", Status.OOM: "yellow", Status.FAILED: "red", "damaged": "red"},
}


def console(file: TextIO | None = None, *, soft_wrap: bool = False) -> Console:
    """A console that takes texts as they are: no markup, no emoji, colour only where the terminal has it."""
    return Console(file=file, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)
