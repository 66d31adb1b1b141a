"""``report``: a sweep as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli import options


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of report.html in the sweep's folder."
)
def report(sweep: str, results: Path, output: Path | None) -> None:
    """Write a sweep's report: one HTML file with charts, to be opened in a browser or sent."""
    from sweep.analysis import account
    from sweep.render.report import page
    from sweep.store.disk import replacing
    from sweep.store.folder import ResultsFolder

    folder = ResultsFolder.open(results, sweep)
    target = output or folder.report
    html = page(account.of(folder))
    with replacing(target) as aside:
        aside.write_text(html, encoding="utf-8")
    click.echo(f"report   {target}")
