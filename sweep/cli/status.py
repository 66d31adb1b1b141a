"""``status`` and ``stop``: where one sweep stands, and how it is ended from elsewhere."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click

from sweep.cli import options
from sweep.errors import printable


@click.command()
@click.argument("sweep")
@options.results
@options.as_json
def status(sweep: str, results: Path, as_json: bool) -> None:
    """Say whether a sweep runs, what became of its trials, and which is best so far."""
    from sweep.analysis import listing
    from sweep.render import figures
    from sweep.render.documents import document
    from sweep.runner import resuming

    reopened = resuming.reopen(results, sweep)
    folder, spec = reopened.folder, reopened.spec
    found = listing.listed(folder)
    configurations = spec.trials()
    total = None if configurations is None else configurations * spec.trials_each
    written = folder.log.stat().st_mtime if folder.log.exists() else None
    if as_json:
        click.echo(document({**dataclasses.asdict(found), "total": total, "written": written}))
        return
    counts = "  ".join(f"{count} {state}" for state, count in sorted(found.trials.items())) or "none"
    lines = [f"{found.name}  {found.state}{f': {found.reason}' if found.reason else ''}"]
    lines.append(f"trials   {counts}{'' if total is None else f', of {total}'}")
    if found.best is not None:
        lines.append(f"best     {found.metric} {figures.score(found.best)}, trial {found.best_trial}")
    if written is not None:
        age = figures.duration(max(0.0, time.time() - written))
        lines.append(f"written  {age} ago, after {figures.duration(found.duration_s or 0.0)} of work")
    if found.state != "running" and (total is None or sum(found.trials.values()) < total or _open(found.trials)):
        lines.append(f"go on    python -m sweep resume {folder.address}")
    click.echo(printable("\n".join(lines)))


@click.command()
@click.argument("sweep")
@options.results
@click.option("--trial", type=click.IntRange(min=0), metavar="N", help="Stop this trial alone, for good.")
@click.option("--now", is_flag=True, help="Do not wait for the end of the running epochs.")
def stop(sweep: str, results: Path, trial: int | None, now: bool) -> None:
    """Stop a running sweep, to be resumed later, or one of its trials."""
    from sweep.runner import stopping

    click.echo(stopping.stop(results, sweep, trial, now=now))


def _open(trials: object) -> bool:
    return isinstance(trials, dict) and any(trials.get(state) for state in ("running", "interrupted"))
