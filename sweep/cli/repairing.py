"""``repair``: a log that a loss of power has damaged."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli import options
from sweep.errors import plural


@click.command()
@click.argument("sweep")
@options.results
def repair(sweep: str, results: Path) -> None:
    """Keep what can be read of a sweep's damaged log, and say what is lost."""
    from sweep.store import repair as repairing
    from sweep.store.folder import ResultsFolder

    folder = ResultsFolder.open(results, sweep)
    done = repairing.repair(folder)
    records = f"{done.kept:,} {plural('record', done.kept)}"
    if done.original is None:
        click.echo(f"{folder.log} is whole: {records}")
        return
    click.echo(f"{folder.log}: {records} kept")
    for loss in done.losses:
        click.echo(f"  {loss}")
    click.echo(f"as it was: {done.original}\ngo on with: python -m sweep resume {folder.address}")
