"""``report``: one sweep or several as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli import options


@click.command()
@click.argument("sweeps", nargs=-1, required=True)
@options.results
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write, instead of report.html in the (first) sweep's folder.",
)
def report(sweeps: tuple[str, ...], results: Path, output: Path | None) -> None:
    """Write one HTML file with linked charts, on one or several sweeps.

    Open it in a browser, or send it: it needs no network. Several sweeps must have the same objective.
    """
    from sweep.render.report import page
    from sweep.store.disk import replacing
    from sweep.store.folder import ResultsFolder

    folders = [ResultsFolder.open(results, name) for name in dict.fromkeys(sweeps)]
    target = output or folders[0].report
    html = page(folders)
    with replacing(target) as aside:
        aside.write_text(html, encoding="utf-8", errors="backslashreplace")
    click.echo(f"report   {target}")
