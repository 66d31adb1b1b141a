"""``status``, ``stop`` and ``repair``: show a sweep, stop it from another process, and repair a damaged log."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep import interruption
from sweep.cli import options, submitting
from sweep.errors import InputError
from sweep.events import UNFINISHED
from sweep.keeper.client import stop_keeper
from sweep.text import counted, duration, in_one_line, money, percent, printable, score

if TYPE_CHECKING:
    from rich.console import Console

    from sweep.analysis import Trial
    from sweep.analysis.live_status import LogReader
    from sweep.analysis.verdict import SweepSummary
    from sweep.documents.shapes import StatusDocument
    from sweep.render.live import LiveView
    from sweep.runner.resuming import StoredSweep
    from sweep.store.folder import ResultsFolder


@click.command()
@click.argument("sweep")
@options.results
@options.dashboard
@options.as_json
@click.option("--trials", "with_trials", is_flag=True, help="List its trials, too.")
@click.option(
    "--watch",
    is_flag=True,
    help="Show it as `run` does, until the sweep ends; Ctrl-C leaves it running.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    metavar="S",
    help="With --watch: seconds between updates, 1 by default.",
)
def status(
    sweep: str,
    results: Path,
    address: str | None,
    as_json: bool,
    with_trials: bool,
    watch: bool,
    interval: float | None,
) -> None:
    """Show whether a sweep runs, what became of its trials, and the best so far.

    A sweep whose log is damaged, or whose file this version of sweep refuses, is shown as far as it can be read.
    """
    _check_options(as_json=as_json, with_trials=with_trials, watch=watch, interval=interval)
    if address is not None:
        results, sweep = submitting.find_results(sweep, address, prints_job=not as_json)
    from sweep.documents.status import describe_status
    from sweep.render import document
    from sweep.render.tables import rung_lines
    from sweep.runner import resuming

    stored = resuming.open_stored_sweep(results, sweep)
    if watch:
        show_until_its_end(stored, 1.0 if interval is None else interval)
        return
    summary = describe_status(stored, with_trials=with_trials)
    if as_json:
        click.echo(document(summary))
        return
    total = summary.total  # trials in all; None if unknown
    written = summary.written  # when the log was last written, since 1970; None without a log
    lines = _describe_trials(summary, stored, total)
    lines += [f"rungs    {line}" for line in rung_lines(summary.rungs)]
    to_come = _describe_to_come(summary, stored.folder)
    lines += _describe_steering(summary, to_come)
    if summary.other_data:
        lines.append(f"data     {summary.other_data}")
    if summary.other_code:
        lines.append(f"code     {summary.other_code}")
    if summary.cost is not None:
        lines.append(f"cost     {money(summary.cost)}")
    if written is not None:
        # the clock of the machine that runs it may be ahead
        age = duration(max(0.0, time.time() - written))
        lines.append(f"written  {age} ago, after {duration(summary.duration_s or 0.0)} of work")
    has_work = to_come or _has_work_left(summary, total)
    # `resumable` is None, and `problems` say why, if this version of sweep refuses the sweep file
    if summary.state != "running" and has_work and stored.resumable is not None:
        lines.append(f"go on    {stored.folder.to_resume}")
    lines += [f"file     {problem}" for problem in stored.problems]
    click.echo(printable("\n".join(lines)))
    if summary.each:  # the trials, if --trials asked for them
        _print_trials(summary.each, summary.metric)


def _print_trials(trials: Sequence[Trial], metric: str | None) -> None:
    """Print an empty line and a table of trials; ``metric`` is the name of the first objective, None if unknown."""
    from sweep.render import console
    from sweep.render.tables import print_table, trials_grid

    click.echo()
    print_table(trials_grid(trials, metric), console())


def _describe_trials(summary: StatusDocument, stored: StoredSweep, total: int | None) -> list[str]:
    """Return the lines on the state of the sweep, how many trials have which status, the best one and expected gain.

    ``total`` is the number of trials in all, or None if unknown. The lines on paused trials, on the best one and on the
    gain are left out if there is no such thing; ``stored`` tells what pauses trials.
    """
    counts = (
        "  ".join(f"{count:,} {state}" for state, count in sorted(summary.trials.items())) or "none"
    )
    if summary.reason:
        reason = f": {summary.reason}"
    else:
        reason = ""
    if total is None:
        of_total = ""
    else:
        of_total = f", of {total:,}"
    lines = [f"{summary.name}  {summary.state}{reason}", f"trials   {counts}{of_total}"]
    if summary.paused:
        rule = _name_pausing_rule(stored)
        lines.append(
            f"paused   {summary.paused:,} of the interrupted, until {rule} lets them go on"
        )
    if summary.best is not None:
        if summary.verdict:
            verdict = f" ({summary.verdict})"
        else:
            verdict = ""
        lines.append(
            f"best     {summary.metric} {score(summary.best)}, trial {summary.best_trial}{verdict}"
        )
    if summary.expected_gain is not None:
        lines.append(f"gain     {summary.expected_gain.describe()}")
    return lines


def _describe_steering(summary: SweepSummary, to_come: str) -> list[str]:
    """Return the lines on what people have changed in the sweep, and on what is left to do because of that.

    ``to_come`` describes what is left; it is "" if nothing is.
    """
    lines = []
    if summary.queued:
        lines.append(f"queued   {counted(summary.queued, 'added configuration')}")
    if summary.other_space:
        lines.append(f"space    {summary.other_space}")
    if to_come:
        lines.append(f"to come  {to_come}")
    if summary.note:
        lines.append(f"note     {in_one_line(summary.note)}")
    return lines


def _describe_to_come(summary: StatusDocument, folder: ResultsFolder) -> str:
    """Describe what is left to do because a sweep was changed after its end; "" if nothing is, or if the sweep runs.

    ``folder`` is that of the sweep, whose log tells whether the sweep was changed then.
    """
    from sweep.analysis.sweep_changes import describe_to_come
    from sweep.store.log import is_steered_after_end

    if summary.state == "running" or not is_steered_after_end(folder.log):
        return ""
    if summary.total is None:
        left = None
    else:
        # a lower run_cap may allow fewer than were tried
        left = max(summary.total - sum(summary.trials.values()), 0)
    return describe_to_come(left, summary.queued)


def _has_work_left(summary: SweepSummary, total: int | None) -> bool:
    """Return whether trials are left to train: some have not started, or have started and can be resumed.

    ``total`` is the number of trials in all; if it is None, as without a limit, return True.
    """
    if total is None or sum(summary.trials.values()) < total:
        return True
    return any(summary.trials.get(status) for status in UNFINISHED)


@click.command()
@click.argument("sweep", default="")
@options.results
@options.dashboard
@click.option(
    "--warm", is_flag=True, help="End what --keep-warm keeps for this folder, instead of a sweep."
)
@click.option(
    "--trial", type=click.IntRange(min=0), metavar="N", help="Stop this trial alone, for good."
)
@click.option("--now", is_flag=True, help="Do not wait for the end of the running epochs.")
@options.as_json
def stop(
    sweep: str,
    results: Path,
    address: str | None,
    warm: bool,
    trial: int | None,
    now: bool,
    as_json: bool,
) -> None:
    """Stop a running sweep, to be resumed later, or one of its trials for good.

    It waits until that is done; without --now, running trials finish their epochs first. A sweep that is not running,
    and a trial that has ended, are refused. With --warm alone, it stops no sweep, but ends the Ray that --keep-warm
    keeps for the next command in this folder, unless a sweep runs on it.
    """
    if warm:
        if sweep or address is not None or trial is not None or now:
            raise InputError.one(
                "--warm", "is given with a sweep or its options", "leave one of them out"
            )
        _print_stopped("", None, stop_keeper(), as_json=as_json)
        return
    if not sweep:
        raise click.UsageError("Missing argument 'SWEEP'.", click.get_current_context())
    # A whole submitted sweep is stopped through its job; for a trial, and for --now, the request is in the results.
    if address is not None and trial is None and not now:
        result = submitting.stop_submitted_sweep(sweep, address)
    else:
        if address is not None:
            results, sweep = submitting.find_results(sweep, address, prints_job=False)
        from sweep.runner import stop_requests

        result = stop_requests.stop_sweep(results, sweep, trial, now=now)
    _print_stopped(sweep, trial, result, as_json=as_json)


def _print_stopped(sweep: str, trial: int | None, result: str, *, as_json: bool) -> None:
    """Print ``result``, which says what `stop` has done, or with ``as_json`` a document that contains it."""
    if not as_json:
        click.echo(result)
        return
    from sweep.documents.shapes import StoppedDocument
    from sweep.render import document

    click.echo(document(StoppedDocument(sweep=sweep, trial=trial, result=result)))


def _name_pausing_rule(stored: StoredSweep) -> str:
    """Return the name of what pauses trials: the type of the stopping rule, or "method NAME" for a population.

    A rule of the user's own is named as ``module:Name``. If this version of sweep refuses the sweep file, the name is
    "its rule".
    """
    from sweep.spec import sweep_file

    if stored.resumable is None:
        return "its rule"
    spec = stored.resumable.spec
    if spec.population is not None:
        return f"method {spec.method}"
    rule = sweep_file.rule_to_dict(spec.early_terminate)
    if isinstance(rule, dict):
        return str(rule["type"])
    return str(rule)


def _check_options(
    *, as_json: bool, with_trials: bool, watch: bool, interval: float | None
) -> None:
    """Raise InputError for ``watch`` with ``with_trials`` or ``as_json``, and for an ``interval`` without ``watch``."""
    if watch and with_trials:
        raise InputError.one("--watch", "is given with --trials", "leave one of them out")
    if watch and as_json:
        raise InputError.one(
            "--watch", "is given with --json", "run it with --json repeatedly instead"
        )
    if interval is not None and not watch:
        raise InputError.one("--interval", "is given without --watch", "add --watch")


PLAIN_WIDTH = 120  # width of a picture that is not shown on a terminal


def show_until_its_end(sweep: StoredSweep, interval_s: float) -> None:
    """Show the progress of a sweep until no process runs it; show it once if it is not running.

    The log is read every ``interval_s`` seconds. If the output is not a terminal, the progress is printed at the start
    and at the end, and in between a line for each trial that ends. Ctrl-C leaves the sweep running; its progress is
    printed, and the process exits with the code of an interruption. Raises `StoreError` if the log is damaged.
    """
    from sweep import render
    from sweep.analysis.live_status import LogReader
    from sweep.render.live import LiveView
    from sweep.store.ledger import naming

    log_reader = LogReader(sweep.folder)
    console = render.console(soft_wrap=True)
    view = LiveView(console, sweep.outline)
    was_interrupted = False  # by Ctrl-C
    # Two levels, so that the view is closed whatever happens, and Ctrl-C while closing it is caught as well.
    try:
        try:
            with naming(sweep.folder.log):  # errors of reading the log name its path
                running = _read_existing_log(view, log_reader, sweep)
                if running and view.plain:  # not a terminal on which a picture can be redrawn
                    _print_view(view, console, sweep)
                elif running:
                    view.start()
                while running:
                    time.sleep(interval_s)
                    # before reading the log, so that the last events are not missed
                    running = sweep.folder.is_running()
                    _read_new_events(view, log_reader)
        finally:
            view.close()
    except KeyboardInterrupt:
        was_interrupted = True
    _print_view(view, console, sweep)
    if was_interrupted:
        sys.exit(interruption.CODE)


def _read_existing_log(view: LiveView, log_reader: LogReader, sweep: StoredSweep) -> bool:
    """Read the whole log into the view; return whether the sweep was running when the last part was read.

    While a long log is read, the view shows which share of it was read so far, if it is drawn on a terminal. A last
    line that is still being written is left for later. Without a log, nothing is read.
    """
    while True:
        running = sweep.folder.is_running()
        events = log_reader.more()
        if events is None:  # the log was replaced; it is read again from its beginning
            view.forget()
            continue
        view.observe(events)
        # No events, although the log is not read to its end: its last line is still being written.
        if log_reader.share >= 1 or not events:
            view.state = ""
            return running
        view.state = f"reading its log, {percent(log_reader.share)}"
        view.start()


def _read_new_events(view: LiveView, log_reader: LogReader) -> None:
    """Pass the new events of the log to the view; start again from the beginning if the log was replaced.

    Each event that is passed may print a line, as for a trial that has ended.
    """
    # [] if there are no more, None if the log was replaced
    while (events := log_reader.more()) != []:
        if events is None:
            view.forget()
            continue
        for event in events:
            view.on(event)


def _print_view(view: LiveView, console: Console, sweep: StoredSweep) -> None:
    """Print the sweep's present state, as the live view shows it, so that it remains on the terminal.

    It has the size of the terminal or, if the view prints lines instead of a picture, 120 columns and 23 rows. A sweep
    that does not run, and whose last session has not ended regularly, is shown as "unfinished".
    """
    from sweep.render.status import Frame

    if view.plain:  # the output is not a terminal on which a picture can be redrawn
        width = PLAIN_WIDTH
        height = 23  # as on a terminal of 24 lines, of which one is left free below
    else:
        width = console.size.width
        height = console.size.height - 1
    frame = Frame(width=width, height=height, ascii_only=view.ascii_only)
    running = sweep.folder.is_running()
    if running or view.over:  # `over`: the last session has ended regularly
        state = ""  # the view's own
    else:
        state = "unfinished"
    for line in view.lines(frame, running=running, state=state):
        console.print(line)


@click.command()
@click.argument("sweep")
@options.results
@options.as_json
def repair(sweep: str, results: Path, as_json: bool) -> None:
    """Keep what can be read of a sweep's damaged log, and say what is lost.

    The damaged log is kept beside the new one, and the tables are written anew. A log that is whole stays as it is. A
    sweep that is running, or that is in an object store, is refused.
    """
    from sweep.store import repair as repairing
    from sweep.store.folder import ResultsFolder

    folder = ResultsFolder.open(results, sweep)
    repaired = repairing.repair_log(folder)
    if as_json:
        from sweep.documents import shapes
        from sweep.render import document

        more = {"log": str(folder.log), "to_resume": folder.to_resume}
        click.echo(document(shapes.extend(shapes.RepairDocument, repaired, **more)))
        return
    records = counted(repaired.kept, "record")
    if repaired.original is None:  # nothing was damaged
        click.echo(f"{folder.log} is whole: {records}")
        return
    click.echo(f"{folder.log}: {records} kept")
    for loss in repaired.losses:
        click.echo(f"  {loss}")
    click.echo(f"as it was: {repaired.original}\ngo on with: {folder.to_resume}")
