"""``best`` and ``retrain``: show and export the winner of a sweep, or train it again at full length."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from sweep.cli import options
from sweep.errors import InputError
from sweep.store.folder import ResultsFolder, require_locks
from sweep.text import printable

if TYPE_CHECKING:
    from sweep.analysis.ranking import RankedConfiguration, Ranking
    from sweep.export.winner import Winner
    from sweep.runner import Options
    from sweep.runner.restoring import Which


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the best trial's model into a new folder.",
)
@click.option(
    "--trial", type=click.IntRange(min=0), metavar="N", help="This trial instead of the best one."
)
@click.option(
    "--epoch",
    default="last",
    show_default=True,
    metavar="N|best|last",
    help="Which of its kept epochs to export.",
)
@click.option(
    "--format",
    "formats",
    default="keras,saved_model",
    show_default=True,
    metavar="LIST",
    help="Any of keras, saved_model, onnx, checkpoint.",
)
@options.as_json
def best(sweep: str, results: Path, trial: int | None, as_json: bool, **exporting: Any) -> None:
    """Show the best configuration, or the Pareto front; export its model.

    With --trial, the configuration of that trial is shown instead, whether or not it has completed. A sweep of which no
    trial has completed is refused otherwise. A model is exported only with --export.
    """
    from sweep import analysis
    from sweep.analysis import ranking as rankings
    from sweep.analysis import verdict

    folder = ResultsFolder.open(results, sweep)
    # ``exporting`` has the options --export, --epoch and --format
    which = _parse_epoch(exporting["epoch"])
    target = exporting["export"]  # None: nothing is exported
    ranking = rankings.rank([analysis.read_sweep(folder)])
    if trial is None:
        rows = ranking.best
        if not rows:
            raise folder.make_none_completed_error()
        # `completed` is a share: this configuration is the best of those that have completed some of their repeats
        if rows[0].completed < 1:
            click.echo("note: no configuration has completed all of its repeats", err=True)
    else:
        rows = tuple(row for row in ranking.rows if row.has_trial(trial))
        if not rows:
            raise folder.make_no_trial_error(
                trial, [one.trial for row in ranking.rows for one in row.trials]
            )
    winner: Winner | None = None
    if target is not None:
        from sweep.export import winner as winners

        formats = []
        for name in exporting["formats"].split(","):
            if name.strip():
                formats.append(name.strip())
        winner = winners.export_winner(folder, target, trial, which, formats)
    answer = verdict.summarize_ranking(
        ranking, running=folder.is_running(), addresses={folder.name: folder.address}
    )
    _print_answer(ranking, rows, answer, winner, as_json=as_json)


def _parse_epoch(epoch: str) -> Which:
    """Parse ``--epoch``: a whole number as an int, "best" or "last"; whether there is such an epoch is not checked.

    Raises InputError for anything else, such as a negative number.
    """
    # each with itself, so that its type is known to be one of the two
    words: dict[str, Literal["best", "last"]] = {"best": "best", "last": "last"}
    if epoch.isdecimal():
        return int(epoch)
    if epoch in words:
        return words[epoch]
    raise InputError.one("--epoch", f"{epoch!r}, expected best, last or the number of an epoch")


def _print_answer(
    ranking: Ranking,
    rows: tuple[RankedConfiguration, ...],
    answer: str,
    winner: Winner | None,
    *,
    as_json: bool,
) -> None:
    """Print the configurations ``rows`` and the answer, as text or as JSON, and what was exported.

    ``rows`` are some of those in ``ranking``; the whole ranking is needed to say how many others a configuration ties
    with. ``answer`` says in words which one is best. ``winner`` is the exported trial, or None if nothing was exported.
    With ``as_json``, the export is part of the document, and the lines on it go to standard error.
    """
    from sweep.render import console, document
    from sweep.render.tables import answered, print_table, ranking_grid

    if as_json:
        from sweep.documents import shapes  # it imports libraries that take longer than the answer

        shown = dataclasses.replace(ranking, rows=rows)
        click.echo(
            document(shapes.extend(shapes.BestDocument, shown, answer=answer, export=winner))
        )
    else:
        print_table(ranking_grid(ranking, only=rows), console())
        click.echo(printable("\n".join(answered(ranking, answer))))
    if winner is not None:
        for line in _describe_export(winner, ranking.objectives[0][0]):
            click.echo(printable(line), err=as_json)


def _describe_export(winner: Winner, objective: str) -> list[str]:
    """Return the lines on an exported model: its files, the checks that were made, and its notes.

    A line on a check is left out if nothing was checked so. Of the metrics that were compared with the log, at most
    four are listed, that of the name ``objective`` first.
    """
    files = [*winner.exported.files.values()]
    if (winner.folder / "checkpoint").is_dir():
        files.append("checkpoint")
    lines = [
        f"exported trial {winner.trial} after epoch {winner.epoch} to {winner.folder}: {', '.join(files)}"
    ]
    if winner.exported.differences:
        largest = max(winner.exported.differences.values())
        lines.append(
            f"checked  in a fresh process on {winner.exported.compared}: predictions differ by {largest:.1e} at most"
        )
    compared = []
    for name, value in winner.exported.metrics.items():
        if name in winner.metrics:  # the log has it, too
            compared.append(f"{name} {value:.6g}")
    # False comes before True; the order of the others stays.
    compared.sort(key=lambda text: not text.startswith(f"{objective} "))
    if compared:
        lines.append(f"checked  against the log: {', '.join(compared[:4])}")
    return [*lines, *(f"note     {note}" for note in winner.notes)]


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--trial", type=click.IntRange(min=0), metavar="N", help="This trial instead of the best one."
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Epochs to train, instead of the trial's.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of runs, each with a new seed.",
)
@click.option(
    "--all-data", is_flag=True, help="Train on the validation data as well: nothing is held out."
)
@click.option(
    "--name", help="Name of the new sweep and its results folder.  [default: NAME-retrain]"
)
@options.assignments
@options.session
def retrain(sweep: str, results: Path, how: Options, as_json: bool, **wanted: Any) -> None:
    """Train the winner at full length, as a sweep of its own.

    The new sweep is beside the old one. The exit code is 1 if no trial has completed, and 130 after an interruption.
    """
    require_locks()  # refuses systems on which sweeps cannot run, such as Windows
    from sweep.cli import running
    from sweep.runner import checking, retraining, session

    folder = ResultsFolder.open(results, sweep)
    prepared = retraining.prepare_retraining(folder, retraining.RetrainingOptions(**wanted))
    folders = prepared.sweep.import_folders
    source = checking.check_trainable(prepared.spec, "retrain", folders, here=how.address is None)
    if wanted["all_data"]:
        retraining.check_joins(source)
    for note in prepared.notes:
        click.echo(f"note: {printable(note)}", err=True)
    how = dataclasses.replace(how, simulated_gpus=prepared.sweep.simulated_gpus)
    training = session.SweepSource(
        spec=prepared.spec,
        source=source,
        import_folders=folders,
        working_folder=prepared.sweep.working_folder,
    )
    with running.viewing(prepared.spec, how, as_json=as_json) as make_view:
        outcome = session.run_sweep(
            training, prepared.text, folder.path.parent, how, make_view, prepared.origin
        )
    running.conclude(outcome, how, as_json=as_json)
