"""``export`` and ``dashboard``: show sweeps in other tools."""

from __future__ import annotations

import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options
from sweep.errors import InputError
from sweep.text import counted, printable

if TYPE_CHECKING:
    from sweep.store.folder import ResultsFolder


@click.command()
@click.argument("format", type=click.Choice(["csv", "mlflow", "tensorboard", "wandb"]), metavar="FORMAT")
@click.argument("sweep")
@options.results
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to write to, instead of one in the sweep's folder.",
)
@click.option("--tracking-uri", metavar="URI", help="MLflow server or database, instead of a folder.")
def export(format: str, sweep: str, results: Path, output: Path | None, tracking_uri: str | None) -> None:
    """Write a sweep for CSV, MLflow, TensorBoard or W&B; run it again to update."""
    from sweep.store.folder import ResultsFolder

    if tracking_uri is not None and format != "mlflow":
        raise InputError.one("--tracking-uri", f"says where mlflow is, and means nothing to {format}", "leave it out")
    if tracking_uri is not None and output is not None:
        raise InputError.one("--tracking-uri", "and --output name two places", "give one of them")
    folder = ResultsFolder.open(results, sweep)
    target = output or folder.path / format
    match format:
        case "csv":
            said = _csv(folder, target)
        case "mlflow":
            said = _mlflow(folder, target, tracking_uri)
        case "tensorboard":
            said = _tensorboard(folder, target)
        case _:
            said = _wandb(folder, target)
    click.echo(printable(said))


def _csv(folder: ResultsFolder, target: Path) -> str:
    from sweep.export import runs

    return "\n".join(f"csv      {path}" for path in runs.export_csv(folder, target))


def _mlflow(folder: ResultsFolder, target: Path, uri: str | None) -> str:
    from sweep.export import mlflow_runs, runs

    address = mlflow_runs.local_uri(target) if uri is None else uri
    done = mlflow_runs.export_to_mlflow(runs.read_sweep_state(folder), address)
    for name, other in done.renamed.items():
        click.echo(printable(f"note: MLflow takes no name like {name}; it is {other} there"), err=True)
    lines = [f"mlflow   {counted(done.new, 'trial')} written, {done.unchanged} there already"]
    if uri is None:
        lines.append(f"look     mlflow ui --backend-store-uri {shlex.quote(address)}")
    else:
        lines.append(f"at       {address}")
    return "\n".join(lines)


def _tensorboard(folder: ResultsFolder, target: Path) -> str:
    from sweep.export.tensorboard import EventFiles

    files = EventFiles(folder, target)
    try:
        count = files.update()
    finally:
        files.close()
    return f"events   {counted(count, 'trial')}\nlook     tensorboard --logdir {shlex.quote(str(target))}"


def _wandb(folder: ResultsFolder, target: Path) -> str:
    from sweep.export import runs, wandb_runs

    count = wandb_runs.write_wandb_runs(runs.read_sweep_state(folder), target)
    return f"wandb    {counted(count, 'trial')}\nsend     wandb sync {shlex.quote(str(target))}/offline-run-*"


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
    from sweep.export.dashboard import make_server
    from sweep.store.folder import ResultsFolder, told_apart

    folders = told_apart(ResultsFolder.open(results, name) for name in sweeps)
    with make_server(folders.values(), port, lambda text: click.echo(f"error: {printable(text)}", err=True)) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # treated as Ctrl-C
        click.echo(f"dashboard  {server.url}\nend it with Ctrl-C")
        with suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)
