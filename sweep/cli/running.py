"""``run``, ``resume`` and ``confirm``: the commands that train."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

import click
from click.core import ParameterSource

from sweep import forking, interruption, output
from sweep.cli import options, page, submitting
from sweep.cli.startup import Startup, describe_cost
from sweep.errors import InputError, Problem, refuse
from sweep.store.folder import ResultsFolder, require_locks
from sweep.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sweep.analysis import Sweep
    from sweep.runner import Options, Outcome, View
    from sweep.runner.resuming import ResumableSweep
    from sweep.runner.session import MakeView
    from sweep.spec import Spec


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.name
@options.results
@options.assignments
@options.simulate_gpus
@options.run_cap
@click.option(
    "--eager",
    is_flag=True,
    help="Train op by op: breakpoints and prints see values. With --inline.",
)
@click.option(
    "--profile", is_flag=True, help="Keep a TensorBoard profile of a few steps of the first trial."
)
@click.option("--or-resume", is_flag=True, help="Go on with the sweep if it exists already.")
@click.option(
    "--ui", is_flag=True, help="Also start the live page, and print its address; see `ui`."
)
@options.detach
@options.notify
@options.session
@options.changes
def run(
    file: Path,
    results: Path,
    changes: Sequence[str],
    how: Options,
    or_resume: bool,
    ui: bool,
    detach: bool,
    as_json: bool,
) -> None:
    """Run a sweep file into a new results folder.

    A sweep that exists already is refused or, with --or-resume, continued. The exit code is 1 if no trial has
    completed, and 130 after an interruption.
    """
    with Startup(quiet=how.quiet) as startup:
        startup.step(f"reading {file}")
        _run_or_resume(
            file,
            results,
            changes,
            how,
            startup,
            or_resume=or_resume,
            ui=ui,
            detach=detach,
            as_json=as_json,
        )


def _run_or_resume(
    file: Path,
    results: Path,
    changes: Sequence[str],
    how: Options,
    startup: Startup,
    *,
    or_resume: bool,
    ui: bool,
    detach: bool,
    as_json: bool,
) -> None:
    """Check a sweep file; run the sweep and print the result, or start it in the background with ``detach``.

    With ``or_resume``, a sweep of that name that exists already is resumed with the changes in the file, which are
    printed. ``ui`` also starts the live page. Ends the process with the exit code of the session unless that is 0. With
    ``detach``, the file is checked here as well, and the function returns once the session in the background has begun.

    Raises `InputError` for mistakes in the file or its trainable, `RefusedError` if the name is taken or a change is
    not possible, `StoreError` if the sweep that exists is damaged, and the errors of `session.run_sweep`.
    """
    require_locks()  # refuses systems on which sweeps cannot run, such as Windows
    from sweep.runner import sweep_files
    from sweep.spec.work import describe_work

    spec, text = sweep_files.load_file(file, changes)
    folders = sweep_files.import_folders(file)
    goes_on = or_resume and ResultsFolder.exists(results, spec.name)
    # In the other cases, the process in the background does this, or `go_on` for the sweep as it is resumed.
    is_new_here = not detach and not goes_on
    if is_new_here:
        startup.announce(f"{spec.name}: {describe_work(spec)}")
        if cost := describe_cost(spec, results, how):
            startup.announce(cost)
        startup.step(f"checking {spec.trainable}")
        _import_early(spec, folders, how)
    from sweep.runner import checking, resuming, session  # these take longer than all of the above

    if detach:
        # Mistakes are reported here, and not only in the output of the process in the background.
        checking.check_trainable(spec, str(file), folders, here=how.address is None)
        driver = _detach(ResultsFolder(results / spec.name), how, as_json=as_json)
        if ui:
            page.start_page_beside(results, spec.name, driver)
        return
    if goes_on:
        reopened, changed = resuming.reopen_as(results, file, spec, how.simulated_gpus)
        startup.close()
        for line in changed:
            click.echo(printable(line), err=True)
        if ui:
            page.start_page_beside(results, spec.name, _find_command_process())
        # The trainable is taken from where this command is typed, not from where the sweep began.
        here = dataclasses.replace(reopened, import_folders=folders, working_folder=Path.cwd())
        go_on(here, how, startup, as_json=as_json)
        return
    source = checking.check_trainable(spec, str(file), folders, here=how.address is None)
    spec = checking.adapt_to_source(spec, source)
    startup.close()
    for note in checking.list_notes(spec, source):
        click.echo(note, err=True)
    if ui:
        page.start_page_beside(results, spec.name, _find_command_process())
    training = session.SweepSource(spec=spec, source=source, import_folders=folders)
    with viewing(spec, how, as_json=as_json) as make_view:
        outcome = session.run_sweep(training, text, results, how, make_view)
    conclude(outcome, how, as_json=as_json)


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--run-cap", type=click.IntRange(min=1), metavar="N", help="Go on to N configurations in all."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change when the sweep ends, as in budget.hours=8; repeatable.",
)
@click.option("--retry-failed", is_flag=True, help="Try failed trials again.")
@click.option(
    "--here",
    is_flag=True,
    help="Look for the trainable in the current folder, not where the sweep began.",
)
@options.detach
@options.notify
@options.session
@options.changes
def resume(
    sweep: str,
    results: Path,
    changes: Sequence[str],
    how: Options,
    here: bool,
    detach: bool,
    as_json: bool,
) -> None:
    """Continue a sweep that was interrupted or killed, or extend one.

    The trainable is looked for where the sweep began or, with --here, in the current folder. With the address of a
    cluster's dashboard (http://...), a submitted sweep is resumed as a job of that cluster. The exit code is 1 if no
    trial has completed, and 130 after an interruption.
    """
    # the address of a dashboard, not of Ray itself
    if how.address is not None and how.address.startswith(("http://", "https://")):
        _refuse_session_options(how)
        submitting.resume_submitted_sweep(
            sweep,
            how.address,
            changes,
            retry_failed=how.retry_failed,
            max_concurrent=how.max_concurrent,
            as_json=as_json,
        )
        return
    require_locks()
    with Startup(quiet=how.quiet) as startup:
        startup.step(f"reading sweep {sweep}")
        from sweep.runner import resuming

        reopened = resuming.reopen(results, sweep, changes)
        if detach:
            _detach(reopened.folder, how, as_json=as_json)
            return
        if here:
            reopened = dataclasses.replace(
                reopened, import_folders=(Path.cwd(),), working_folder=Path.cwd()
            )
        go_on(reopened, how, startup, as_json=as_json)


def _refuse_session_options(how: Options) -> None:
    """Raise an `InputError` if options were given that are not passed to the job of a submitted sweep.

    The error names each of them: ``--results``, ``--inline``, ``--events``, ``--no-reuse``, ``--no-memo`` and
    ``--tensorboard``. To be called while a command runs, whose context tells whether ``--results`` was given.
    """
    results_source = click.get_current_context().get_parameter_source("results")
    # --detach is not refused, because a job always runs in the background
    given = {
        "--results": results_source is not ParameterSource.DEFAULT,
        "--inline": how.inline,
        "--events": how.events,
        "--no-reuse": not how.reuse,
        "--no-memo": not how.memo,
        "--tensorboard": bool(how.followers),
    }
    refuse(
        Problem(
            option,
            "is not passed to the job of a submitted sweep",
            "leave it out",
        )
        for option, is_given in given.items()
        if is_given
    )


def _detach(folder: ResultsFolder, how: Options, *, as_json: bool) -> int:
    """Start this command in a background process, and print how to watch it, wait for it and stop it.

    ``folder`` is that of the sweep. Waits until the session of the background process has begun, and returns the id of
    the process; prints a document instead of lines if ``as_json``. From now on, this process no longer handles signals,
    so that Ctrl-C during the wait ends both. Raises `InputError` if ``--events`` was given, `NotStarted` if the process
    ends before its session has begun, and `StoreError` if its files cannot be written.
    """
    from sweep.documents.shapes import DetachedDocument
    from sweep.render import document
    from sweep.runner import detaching

    if how.events:
        raise InputError.one("--detach", "is given with --events", "leave one of them out")
    interruption.stop_handling_signals()  # until the driver runs, Ctrl-C ends it
    given = click.get_current_context().meta[options.ARGUMENTS]
    # The page is started by this process, and the document printed here; neither is wanted again in the background.
    driver = detaching.start_detached(
        folder, [word for word in given if word not in ("--detach", "--json", "--ui")]
    )
    name = folder.address
    found = DetachedDocument(
        sweep=folder.name,
        results=folder.place,
        process=driver.process,
        output=str(driver.output),
        watch=f"python -m sweep status {name} --watch",
        wait=f"python -m sweep wait {name}",
        stop=f"python -m sweep stop {name}",
    )
    if as_json:
        click.echo(document(found))
        return driver.process
    click.echo(f"started  {printable(found.sweep)} in the background, process {found.process}")
    for word in ("watch", "wait", "stop", "output"):
        click.echo(f"{word:<9}{printable(getattr(found, word))}")
    return driver.process


def _find_command_process() -> int:
    """Return the id of the process in the user's terminal: this one, unless a keeper of Ray runs the command for it."""
    from sweep.backends.ray_tune.kept_ray import get_kept_ray

    kept = get_kept_ray()  # None: this process is no keeper
    if kept is None:
        return os.getpid()
    return kept.terminal or os.getpid()


def _import_early(spec: Spec, folders: Sequence[Path], how: Options) -> None:
    """Let a fork server import the libraries of workers, while this process checks the code and starts Ray.

    The libraries are the installed packages that the trainable's module, which is looked for in ``folders``, imports at
    its top. The imports are not waited for. This command has usually started a fork server already. It is replaced if
    it was started for trials with another number of CPU cores, because libraries get as many threads; if there is none,
    one is started. It ends with this command. In a process that keeps Ray for later commands, it ends with the kept Ray
    instead, and none is started or replaced if that runs already. Nothing is imported with ``inline``, with a cluster's
    address, or if workers cannot be forked: if trials use real GPUs, or on other systems than Linux.
    """
    if how.inline or how.address is not None:
        return
    from sweep.backends.ray_tune import kept_ray
    from sweep.inspection import list_early_imports

    devices = spec.resources.devices(how.simulated_gpus)
    kept = kept_ray.get_kept_ray()
    starting = forking.starting_early(devices.cpus, devices.real_gpus)
    # The fork server ends with this command or, if a process keeps Ray running, with that process.
    if kept is None:
        click.get_current_context().with_resource(starting)
    elif not kept.is_running:
        kept.enter(starting)
    forking.import_early(list_early_imports(spec.trainable, folders))


def go_on(
    reopened: ResumableSweep, how: Options, startup: Startup, *, as_json: bool, work: str = ""
) -> None:
    """Check the trainable of a sweep, run one more session of it, and print its result.

    GPUs are simulated as in the earlier sessions, whatever ``how`` says. ``work`` describes what the session will
    train; if it is "", it is described from the sweep file. Ends the process with the exit code of the session, as
    `conclude` does, unless that is 0. Raises `InputError` if the trainable has mistakes, and the errors of
    `session.resume_sweep`.
    """
    from sweep.runner import checking, session
    from sweep.spec.work import describe_work

    spec = reopened.spec
    startup.announce(work or f"{spec.name}: {describe_work(spec)}")
    startup.step(f"checking {reopened.spec.trainable}")
    # as in the sweep's earlier sessions
    how = dataclasses.replace(how, simulated_gpus=reopened.simulated_gpus)
    where = str(reopened.folder.info)
    folders = reopened.import_folders
    _import_early(reopened.spec, folders, how)
    source = checking.check_trainable(reopened.spec, where, folders, here=how.address is None)
    startup.close()
    with viewing(reopened.spec, how, as_json=as_json) as make_view:
        outcome = session.resume_sweep(reopened, source, how, make_view)
    conclude(outcome, how, as_json=as_json)


@contextmanager
def viewing(spec: Spec, how: Options, *, as_json: bool) -> Iterator[MakeView]:
    """Yield a function that creates the view of a session from its folder and terminal, by the options ``how``.

    The session runs inside the block, in which failed writes to standard output are ignored. If trials are trained in
    this process (``inline``) and standard output is to have JSON only, with ``as_json`` or ``--events``, what they
    print goes to standard error.
    """
    redirects = how.inline and (as_json or how.events)
    with output.ignoring_write_errors(redirects=redirects) as results:
        yield _make_viewer(spec, how, results)


def _make_viewer(spec: Spec, how: Options, results: IO[str]) -> MakeView:
    """Return the function that creates the view of a session; with ``--events``, they are written to ``results``."""

    def view(folder: ResultsFolder, terminal: TextIO) -> View:
        """Create the view: lines of JSON with ``--events``, otherwise the live view.

        The live view first gets the lines of `Options.opening`. If this process was started by ``--detach``, the one
        that waits for it is told here that this one has the lock of the sweep.
        """
        from sweep.analysis import Outline
        from sweep.render.event_lines import EventLines
        from sweep.render.live import on_terminal

        options.report_start(lambda: _describe_start(folder))
        if how.events:
            return EventLines(Outline.of(spec), results, terminal)
        live_view = on_terminal(spec, how)
        for line in how.opening(folder):
            live_view.say(line)
        return live_view

    return view


def _describe_start(folder: ResultsFolder) -> str:
    """Return as JSON how large the log of a sweep is now, for the process that waits for this session to begin.

    It is an object with the bytes as ``log_bytes``, 0 without a log.
    """
    from sweep.runner import detaching  # only processes in the background need it

    return detaching.describe_start(folder)


def conclude(outcome: Outcome, how: Options, *, as_json: bool) -> None:
    """Print the result of a session, and end the process with its exit code unless that is 0.

    The code is that of an interruption if the session was interrupted, otherwise 1 if no trial of the sweep has
    completed. Then what went wrong and how to go on is printed to standard error. With ``--events``, no result is
    printed, because standard output has events only.

    Failed writes to standard output do not change these codes; where the code would be 0, `InputError` is raised
    instead, unless the reader has closed the pipe. Raises `StoreError` if the sweep cannot be read.
    """
    from sweep import analysis
    from sweep.events import Status

    sweep = analysis.read_sweep(outcome.folder)
    try:
        if as_json:
            _print_document(outcome, sweep)
        elif not how.events:
            show_result(outcome, sweep, quiet=how.quiet)
        sys.stdout.flush()
    except OSError as error:
        if not output.failed_by(error):
            raise  # one of standard output is reported below, after what the user must know about the sweep
    folder = outcome.folder
    if outcome.fault:  # the problem to solve before the sweep can go on
        click.echo(f"error: {printable(outcome.fault)}", err=True)
    if outcome.interrupted:
        click.echo(f"interrupted; go on with: {folder.to_resume}", err=True)
        sys.exit(interruption.CODE)
    if not outcome.completed:
        why = printable(analysis.first_failure(sweep))
        click.echo(
            f"error: no trial completed{why}; see the error column and {folder.debug_log}", err=True
        )
        # One that diverged or does not meet the constraints is no failed one, and would end the same.
        if any(trial.status == Status.FAILED for trial in sweep.trials):
            click.echo(f"try failed trials again with: {folder.to_resume} --retry-failed", err=True)
        sys.exit(1)
    if failure := output.failure():
        raise InputError.one(
            "standard output", str(failure.strerror), f"the results are in {folder.place}"
        )


def _print_document(outcome: Outcome, sweep: Sweep) -> None:
    """Print the document of a session as JSON; from then on, an interruption prints no error document of its own."""
    from sweep.documents import sessions
    from sweep.render import document

    content = document(sessions.describe_outcome(outcome, sweep))
    output.document_follows()
    click.echo(content)


def show_result(outcome: Outcome, sweep: Sweep, *, quiet: bool) -> None:
    """Print the ranking, the finalists of a confirmation, where the results are, and which configuration is best.

    On a terminal, at most 20 configurations are ranked. With ``quiet``, only the ranking and the finalists are printed.
    """
    from sweep.analysis import ranking, verdict
    from sweep.render import console
    from sweep.render.tables import answered, print_table, ranking_grid, show_finalists

    folder = outcome.folder
    terminal = console()
    ranked = ranking.rank([sweep])
    if ranked.rows:
        print_table(ranking_grid(ranked, limit=20 if terminal.is_terminal else None), terminal)
    show_finalists(ranked, terminal)
    lines = [f"results  {folder.place}", f'pandas   sweep.load("{folder.place}").trials']
    if folder.tensorboard.is_dir():
        lines.append(f"events   tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
    if outcome.stopped and not outcome.interrupted:
        lines.append(f"stopped  {outcome.stopped}")
    if ranked.best:
        lines += answered(
            ranked, verdict.summarize_ranking(ranked, addresses={sweep.name: folder.address})
        )
    if not quiet:
        click.echo("\n" + printable("\n".join(lines)))


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--seeds", type=click.IntRange(2, 1000), metavar="N", help="At most N fresh seeds per finalist."
)
@click.option(
    "--finalists",
    type=click.IntRange(2, 100),
    metavar="N",
    help="At most N finalists besides the baseline.",
)
@click.option(
    "--budget",
    metavar="SHARE",
    help="Epochs for all of it, as a share of the search's: 50%; none: no limit.",
)
@options.session
def confirm(
    sweep: str,
    results: Path,
    seeds: int | None,
    finalists: int | None,
    budget: str | None,
    how: Options,
    as_json: bool,
) -> None:
    """Train the candidates for the best with fresh seeds, and test which one wins.

    Defaults come from `confirm:` in the sweep file; otherwise 8 seeds and 20 % of the search's epochs. It says first
    what it will train, and refuses if that budget is spent. A sweep that is running, or of which no trial has
    completed, is refused as well.
    """
    require_locks()
    with Startup(quiet=how.quiet) as startup:
        startup.step(f"reading sweep {sweep}")
        from sweep.render.plans import describe_confirming
        from sweep.runner import resuming
        from sweep.runner.confirming import plan_confirmation

        reopened = resuming.reopen_to_confirm(results, sweep, seeds, finalists, budget)
        work = ""
        if not reopened.folder.is_running():  # `go_on` refuses one that runs, without a plan
            work = describe_confirming(plan_confirmation(reopened), reopened.folder.name)
        go_on(
            reopened, dataclasses.replace(how, confirming=True), startup, as_json=as_json, work=work
        )
