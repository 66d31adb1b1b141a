"""``list``, ``compare`` and ``best``: what sweeps have found."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options
from sweep.errors import InputError

if TYPE_CHECKING:
    from sweep.analysis.ranking import Ranked, Ranking


@click.command("list")
@options.results
@options.as_json
def list_sweeps(results: Path, as_json: bool) -> None:
    """List the sweeps of the results folder."""
    from rich.console import Console

    from sweep.analysis import listing
    from sweep.render.documents import document
    from sweep.render.tables import show, sweeps_grid

    found = listing.sweeps(results)
    if as_json:
        click.echo(document(found))
    elif found:
        show(sweeps_grid(found), Console())
    else:
        click.echo(f"no sweeps in {results}; start one: python -m sweep run FILE")


@click.command()
@click.argument("sweeps", nargs=-1, required=True)
@options.results
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the best N configurations.")
@options.as_json
def compare(sweeps: tuple[str, ...], results: Path, limit: int | None, as_json: bool) -> None:
    """Rank the configurations of one sweep or of several with the same objective."""
    from sweep.analysis import costs, ranking, trials
    from sweep.render.costs import lines
    from sweep.store import reading
    from sweep.store.folder import ResultsFolder

    folders = [ResultsFolder.open(results, name) for name in sweeps]
    read = [(folder, reading.read(folder, () if as_json else costs.COLUMNS)) for folder in folders]
    _show(ranking.rank([trials.of_tables(folder, one) for folder, one in read]), limit, as_json=as_json)
    for folder, one in () if as_json else read:
        for line in lines(costs.of_tables(folder.name, one)):
            click.echo(line)


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--export", type=click.Path(path_type=Path), metavar="DIR", help="Copy the best trial's checkpoint there."
)
@options.as_json
def best(sweep: str, results: Path, export: Path | None, as_json: bool) -> None:
    """Show the best configuration, or the Pareto front of several objectives."""
    from sweep.analysis import ranking as rankings
    from sweep.analysis import trials
    from sweep.store.folder import ResultsFolder

    ranking = rankings.rank([trials.read(ResultsFolder.open(results, sweep))])
    rows = ranking.best
    if rows and rows[0].completed < 1:
        click.echo("note: no configuration has completed all of its repeats", err=True)
    if not rows:
        raise InputError.one(sweep, "no trial has completed", f"see python -m sweep compare {sweep}")
    _show(dataclasses.replace(ranking, rows=rows), None, as_json=as_json)
    if export is not None:
        click.echo(_export(results, sweep, rows[0], export), err=as_json)


def _show(ranking: Ranking, limit: int | None, *, as_json: bool) -> None:
    from rich.console import Console

    from sweep.render.documents import document
    from sweep.render.tables import ranking_grid, show

    if as_json:
        click.echo(document(dataclasses.replace(ranking, rows=ranking.rows[:limit])))
    else:
        show(ranking_grid(ranking, limit), Console())


def _export(results: Path, sweep: str, row: Ranked, target: Path) -> str:
    """Copy a checkpoint; says what was done."""
    from sweep.store.folder import ResultsFolder

    folder = ResultsFolder.open(results, sweep)
    kept = ((one, folder.path / one.checkpoint) for one in row.trials if one.checkpoint)
    trial, checkpoint = next(((one, path) for one, path in kept if path.is_dir()), (row.trials[0], None))
    if checkpoint is None:
        raise InputError.one(sweep, f"trial {trial.trial} has no checkpoint", "the best completed trials keep theirs")
    if target.exists():
        raise InputError.one(str(target), "exists already", "name a new folder")
    shutil.copytree(checkpoint, target)
    (target / "trial.json").write_text(
        json.dumps({"sweep": row.sweep, "trial": trial.trial, "params": dict(row.params)}, indent=2) + "\n"
    )
    return f"copied the checkpoint of trial {trial.trial} to {target}"
