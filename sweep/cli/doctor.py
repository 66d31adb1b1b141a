"""``doctor``: whether this machine can train, and what to do where it cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from sweep.doctor import Finding

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}


@click.command()
@options.results
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=180,
    show_default=True,
    metavar="S",
    help="Seconds for each device check.",
)
@click.option("--address", envvar="RAY_ADDRESS", show_envvar=True, metavar="HOST:PORT", help="Check this Ray cluster.")
@options.as_json
def doctor(results: Path, timeout: float, address: str | None, as_json: bool) -> None:
    """Check whether this machine can train; exit code 1 if something must be fixed."""
    from sweep.doctor import Level, checklist, run_command
    from sweep.render import console, document

    given = checklist.Round(run_command, os.environ, results, timeout, address)
    target, found = console(), []
    for finding in checklist.examine(given):
        found.append(finding)
        if not as_json:
            _show(finding, target)
    if as_json:
        click.echo(document(found))
    if any(finding.level is Level.ERROR for finding in found):
        sys.exit(1)


def _show(finding: Finding, target: Console) -> None:
    """Print one finding in a line, and what to do in the next."""
    from rich.text import Text

    level = Text(f"{finding.level.value:<9}", STYLES[finding.level.value])
    target.print(Text.assemble(level, f"{finding.check:<15}{finding.found}"), soft_wrap=True)
    if finding.todo:
        target.print(Text.assemble(" " * 24, ("to do: ", "bold"), finding.todo), soft_wrap=True)
