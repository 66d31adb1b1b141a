"""``doctor``: whether this machine can train, and what to do where it cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from sweep.cli import options


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
    from sweep.doctor import checklist, probe
    from sweep.doctor.probe import Level
    from sweep.render.formatting import console, document
    from sweep.render.summaries import show_finding

    given = checklist.Round(probe.run_command, os.environ, results, timeout, address)
    target, found = console(), []
    for finding in checklist.examine(given):
        found.append(finding)
        if not as_json:
            show_finding(finding, target)
    if as_json:
        click.echo(document(found))
    if any(finding.level is Level.ERROR for finding in found):
        sys.exit(1)
