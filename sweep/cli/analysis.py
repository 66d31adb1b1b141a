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
    from sweep.analysis import listing
    from sweep.render.formatting import console, document
    from sweep.render.tables import show, sweeps_grid

    found = listing.sweeps(results)
    if as_json:
        click.echo(document(found))
    elif found:
        show(sweeps_grid(found), console())
    else:
        click.echo(f"no sweeps in {results}; start one: python -m sweep run FILE")


@click.command()
@click.argument("sweeps", nargs=-1, required=True)
@options.results
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the best N configurations.")
@options.as_json
def compare(sweeps: tuple[str, ...], results: Path, limit: int | None, as_json: bool) -> None:
    """Rank the configurations of one or several sweeps, and say which differences are real."""
    from sweep.analysis import held_out, ranking, report_data, search_efficiency, trials, verdict
    from sweep.render.formatting import console, document
    from sweep.render.summaries import cost_lines, held_out_lines
    from sweep.render.summaries import efficiency_lines as worth_lines
    from sweep.render.tables import answered, ranking_grid, show, show_finalists
    from sweep.store import reading
    from sweep.store.folder import ResultsFolder

    folders = [ResultsFolder.open(results, name) for name in sweeps]
    read, wanted = [], {*report_data.COLUMNS, "epoch", *held_out.COLUMNS}
    for folder in folders:
        metrics = [f"metric.{name}" for name, _ in folder.objectives()[:1]]
        read.append((folder, reading.read(folder, [*wanted, *metrics])))
    ranked = ranking.rank([trials.of_tables(folder, one) for folder, one in read])
    answer = verdict.sentence(ranked, running=any(folder.is_running() for folder in folders))
    worths = [found for folder, one in read if (found := search_efficiency.of(folder.name, ranked, one))]
    noise = held_out.of(ranked, read[0][1]) if len(read) == 1 else None
    if as_json:
        told = {field.name: getattr(ranked, field.name) for field in dataclasses.fields(ranked)}
        click.echo(
            document({**told, "rows": ranked.rows[:limit], "answer": answer, "search": worths, "held_out": noise})
        )
        return
    show(ranking_grid(ranked, limit), console())
    show_finalists(ranked, console())
    for folder, one in read:
        for line in cost_lines(report_data.costs_of(folder.name, one)):
            click.echo(line)
    for line in (*worth_lines(worths), *held_out_lines(noise)):
        click.echo(line)
    click.echo("\n".join(answered(ranked, answer)))
