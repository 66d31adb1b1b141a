"""``status`` and ``stop``: where one sweep stands, and how it is ended from elsewhere."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click

from sweep.cli import options, watching
from sweep.errors import InputError, printable


@click.command()
@click.argument("sweep")
@options.results
@options.as_json
@click.option("--watch", is_flag=True, help="Show it as `run` does, until the sweep ends; Ctrl-C leaves it running.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    metavar="S",
    help="With --watch: seconds between updates, 1 by default.",
)
def status(sweep: str, results: Path, as_json: bool, watch: bool, interval: float | None) -> None:
    """Show whether a sweep runs, what became of its trials, and the best so far."""
    _refuse_together(as_json=as_json, watch=watch, interval=interval)
    from sweep.analysis import listing
    from sweep.render import formatting
    from sweep.render.formatting import document
    from sweep.runner import resuming

    reopened = resuming.reopen(results, sweep)
    if watch:
        watching.watch(reopened, 1.0 if interval is None else interval)
        return
    folder, spec = reopened.folder, reopened.spec
    found = listing.listed(folder)
    configurations = spec.trials()
    total = None if configurations is None else configurations * spec.trials_each + spec.baseline_trials
    total = None if total is None else max(total, sum(found.trials.values()))  # fresh seeds come on top
    written = folder.log.stat().st_mtime if folder.log.exists() else None
    if as_json:
        click.echo(document({**dataclasses.asdict(found), "total": total, "written": written}))
        return
    counts = "  ".join(f"{count} {state}" for state, count in sorted(found.trials.items())) or "none"
    lines = [f"{found.name}  {found.state}{f': {found.reason}' if found.reason else ''}"]
    lines.append(f"trials   {counts}{'' if total is None else f', of {total}'}")
    if found.best is not None:
        verdict = f" ({found.verdict})" if found.verdict else ""
        lines.append(f"best     {found.metric} {formatting.score(found.best)}, trial {found.best_trial}{verdict}")
    if written is not None:
        age = formatting.duration(max(0.0, time.time() - written))
        lines.append(f"written  {age} ago, after {formatting.duration(found.duration_s or 0.0)} of work")
    if found.state != "running" and (total is None or sum(found.trials.values()) < total or _open(found.trials)):
        lines.append(f"go on    python -m sweep resume {folder.address}")
    click.echo(printable("\n".join(lines)))


@click.command()
@click.argument("sweep")
@options.results
@click.option("--trial", type=click.IntRange(min=0), metavar="N", help="Stop this trial alone, for good.")
@click.option("--now", is_flag=True, help="Do not wait for the end of the running epochs.")
def stop(sweep: str, results: Path, trial: int | None, now: bool) -> None:
    """Stop a running sweep, to be resumed later, or one of its trials for good."""
    from sweep.runner import stopping

    click.echo(stopping.stop(results, sweep, trial, now=now))


def _open(trials: object) -> bool:
    return isinstance(trials, dict) and any(trials.get(state) for state in ("running", "interrupted"))


def _refuse_together(*, as_json: bool, watch: bool, interval: float | None) -> None:
    if watch and as_json:
        raise InputError.one("--watch", "is given with --json", "ask for --json again and again instead")
    if interval is not None and not watch:
        raise InputError.one("--interval", "is given without --watch", "add --watch")
