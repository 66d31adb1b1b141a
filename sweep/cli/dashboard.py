"""``dashboard``: sweeps in optuna-dashboard, live."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import click

from sweep.cli import options
from sweep.errors import printable


@click.command()
@click.argument("sweeps", nargs=-1, required=True)
@options.results
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    metavar="N",
    help="Port of 127.0.0.1; 0 picks a free one.",
)
def dashboard(sweeps: tuple[str, ...], results: Path, port: int) -> None:
    """Show sweeps in Optuna's dashboard, also while they run, until Ctrl-C."""
    from sweep.export.dashboard import serve
    from sweep.store.folder import ResultsFolder

    folders = list({(found := ResultsFolder.open(results, name)).path: found for name in sweeps}.values())
    with serve(folders, port, lambda text: click.echo(f"error: {printable(text)}", err=True)) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
        click.echo(f"dashboard  {server.url}\nend it with Ctrl-C")
        with suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)
