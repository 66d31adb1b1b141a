"""``list`` and ``compare``: what sweeps have found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from sweep.cli import options


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
    """Rank the configurations of one sweep or of several with the same objective, and say what is told from luck."""
    from rich.console import Console

    from sweep.analysis import costs, ranking, trials, verdict
    from sweep.render.costs import lines
    from sweep.render.documents import document
    from sweep.render.tables import answered, ranking_grid, show
    from sweep.store import reading
    from sweep.store.folder import ResultsFolder

    folders = [ResultsFolder.open(results, name) for name in sweeps]
    read = [(folder, reading.read(folder, () if as_json else costs.COLUMNS)) for folder in folders]
    ranked = ranking.rank([trials.of_tables(folder, one) for folder, one in read])
    answer = verdict.sentence(ranked, running=any(folder.is_running() for folder in folders))
    if as_json:
        told = {field.name: getattr(ranked, field.name) for field in dataclasses.fields(ranked)}
        click.echo(document({**told, "rows": ranked.rows[:limit], "answer": answer}))
        return
    show(ranking_grid(ranked, limit), Console())
    for folder, one in read:
        for line in lines(costs.of_tables(folder.name, one)):
            click.echo(line)
    click.echo("\n".join(answered(ranked, answer)))
