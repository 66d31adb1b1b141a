"""The doctor's findings on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sweep.doctor.findings import Finding, Level

STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "red"}


def show_finding(finding: Finding, target: Console) -> None:
    """One finding in a line, and what to do in the next."""
    level = Text(f"{finding.level.value:<9}", STYLES[finding.level])
    target.print(Text.assemble(level, f"{finding.check:<15}{finding.found}"), soft_wrap=True)
    if finding.todo:
        target.print(Text.assemble(" " * 24, ("to do: ", "bold"), finding.todo), soft_wrap=True)
