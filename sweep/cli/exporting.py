"""``export`` and ``dashboard``: export sweeps to other tools."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep import interruption
from sweep.cli import options
from sweep.errors import InputError
from sweep.text import counted, printable

if TYPE_CHECKING:
    from sweep.store.folder import ResultsFolder


@click.command()
@click.argument(
    "format", type=click.Choice(["csv", "mlflow", "tensorboard", "wandb"]), metavar="FORMAT"
)
@click.argument("sweep")
@options.results
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to write to, instead of one in the sweep's folder.",
)
@click.option(
    "--tracking-uri", metavar="URI", help="MLflow server or database, instead of a folder."
)
@options.as_json
def export(
    format: str,
    sweep: str,
    results: Path,
    output: Path | None,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Write a sweep for CSV, MLflow, TensorBoard or W&B; run it again to update."""
    from sweep.store.folder import ResultsFolder

    if tracking_uri is not None and format != "mlflow":
        raise InputError.one(
            "--tracking-uri", f"says where mlflow is, and means nothing to {format}", "leave it out"
        )
    if tracking_uri is not None and output is not None:
        raise InputError.one("--tracking-uri", "and --output name two places", "give one of them")
    folder = ResultsFolder.open(results, sweep)
    target = output or folder.path / format
    match format:
        case "csv":
            written = _export_csv(folder, target)
        case "mlflow":
            written = _export_mlflow(folder, target, tracking_uri)
        case "tensorboard":
            written = _export_tensorboard(folder, target)
        case _:  # wandb, the only other choice
            written = _export_wandb(folder, target)
    if not as_json:
        click.echo(printable("\n".join(written.lines)))
        return
    from sweep.documents.shapes import ExportDocument
    from sweep.render import document

    click.echo(
        document(
            ExportDocument(
                sweep=folder.name,
                format=format,
                place=written.place,
                files=written.files,
                trials=written.trials,
                next=written.next,
            )
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The result of an export: the fields of `ExportDocument`, and the lines to print."""

    lines: Sequence[str]
    place: str
    files: tuple[str, ...] = ()
    trials: int | None = None
    next: str = ""


def _export_csv(folder: ResultsFolder, target: Path) -> _Written:
    """Export a sweep as CSV files into the folder ``target``, in place of earlier ones; return what to print of it.

    Raises what `runs.export_csv` raises.
    """
    from sweep.export import runs

    files = tuple(str(path) for path in runs.export_csv(folder, target))
    return _Written(lines=[f"csv      {file}" for file in files], place=str(target), files=files)


def _export_mlflow(folder: ResultsFolder, target: Path, uri: str | None) -> _Written:
    """Export a sweep as runs of MLflow: to the server or database ``uri``, or into the folder ``target`` if it is None.

    Returns what to print of it, with the number of trials that were written now. Metrics that MLflow cannot name as
    they are get another name, which a note on standard error tells; another note says that a sweep has not begun.
    Raises what `export_to_mlflow` raises.
    """
    from sweep.export import mlflow_runs, runs

    if uri is None:
        address = mlflow_runs.make_local_uri(target)
    else:
        address = uri
    state = runs.read_sweep_state(folder)
    done = mlflow_runs.export_to_mlflow(state, address)
    if state.tables.history.started is None:
        click.echo("note: the sweep has not begun, so there is nothing to export yet", err=True)
    for name, other in done.renamed.items():
        click.echo(
            printable(f"note: MLflow takes no name like {name}; it is {other} there"), err=True
        )
    lines = [f"mlflow   {counted(done.new, 'trial')} written, {done.unchanged} there already"]
    if uri is None:
        look = f"mlflow ui --backend-store-uri {shlex.quote(address)}"
    else:  # it may be a server, which shows its runs itself
        look = ""
    lines.append(f"look     {look}" if look else f"at       {address}")
    return _Written(lines=lines, place=address, trials=done.new, next=look)


def _export_tensorboard(folder: ResultsFolder, target: Path) -> _Written:
    """Export a sweep as event files of TensorBoard into the folder ``target``; return what to print of it.

    Raises what `EventFiles` raises.
    """
    from sweep.export.tensorboard import EventFiles

    files = EventFiles(folder, target)
    try:
        count = files.update()
    finally:
        files.close()
    look = f"tensorboard --logdir {shlex.quote(str(target))}"
    lines = [f"events   {counted(count, 'trial')}", f"look     {look}"]
    return _Written(lines=lines, place=str(target), trials=count, next=look)


def _export_wandb(folder: ResultsFolder, target: Path) -> _Written:
    """Export a sweep as offline runs of W&B into the folder ``target``; return what to print of it.

    Nothing is sent; the printed command does that. Raises what `write_wandb_runs` raises.
    """
    from sweep.export import runs, wandb_runs

    count = wandb_runs.write_wandb_runs(runs.read_sweep_state(folder), target)
    send = f"wandb sync {shlex.quote(str(target))}/offline-run-*"
    lines = [f"wandb    {counted(count, 'trial')}", f"send     {send}"]
    return _Written(lines=lines, place=str(target), trials=count, next=send)


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
@options.as_json
def dashboard(sweeps: tuple[str, ...], results: Path, port: int, as_json: bool) -> None:
    """Show sweeps in Optuna's dashboard, also while they run, until Ctrl-C."""
    from sweep.documents.shapes import DashboardDocument
    from sweep.export.dashboard import make_server
    from sweep.render import document
    from sweep.store.folder import ResultsFolder, name_uniquely

    folders = name_uniquely(ResultsFolder.open(results, name) for name in sweeps)
    with make_server(
        folders.values(), port, lambda text: click.echo(f"error: {printable(text)}", err=True)
    ) as server:
        interruption.treat_as_ctrl_c()
        with suppress(KeyboardInterrupt):
            if as_json:
                click.echo(document(DashboardDocument(url=server.url)))
            else:
                click.echo(f"dashboard  {server.url}\nend it with Ctrl-C")
            server.serve_forever(poll_interval=0.2)
