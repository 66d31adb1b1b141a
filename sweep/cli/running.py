"""``run`` and ``resume``: sweeps that train."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from sweep.cli import options
from sweep.cli.planning import note_ignored, note_unseen
from sweep.errors import printable
from sweep.store.folder import require_locks

if TYPE_CHECKING:
    from sweep.runner.options import Options, Outcome, View
    from sweep.runner.resuming import Reopened
    from sweep.spec import Spec
    from sweep.store.folder import ResultsFolder

INTERRUPTED = 130


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the sweep and its results folder, instead of the file's.")
@options.results
@options.assignments
@options.simulate_gpus
@click.option("--run-cap", type=click.IntRange(min=1), metavar="N", help="At most N configurations.")
@options.no_memo
@click.option("--profile", is_flag=True, help="Keep a TensorBoard profile of a few steps of the first trial.")
@options.backend
def run(
    file: Path,
    name: str | None,
    results: Path,
    assignments: tuple[str, ...],
    simulate_gpus: int | None,
    run_cap: int | None,
    no_memo: bool,
    profile: bool,
    address: str | None,
    max_concurrent: int | None,
    no_reuse: bool,
    inline: bool,
    quiet: bool,
    verbose: bool,
    tensorboard: bool,
) -> None:
    """Run a sweep file into a new results folder."""
    require_locks()
    from sweep import spec as specs
    from sweep.export import followers
    from sweep.runner import planning, session

    given = [*assignments, *([f"run_cap={run_cap}"] if run_cap else []), *([f"name={name}"] if name else [])]
    spec, text = specs.load_with_text(file, given)
    folders = planning.import_folders(file)
    source = planning.check(spec, str(file), folders, here=address is None)
    how = session.Options(
        address=address,
        max_concurrent=max_concurrent,
        simulated_gpus=simulate_gpus,
        reuse=not no_reuse,
        inline=inline,
        memo=not no_memo,
        profile=profile,
        beside=followers(tensorboard=tensorboard),
    )
    note_ignored(spec)
    note_unseen(planning.not_seen_read(spec, source))
    outcome = session.run(spec, text, source, results, folders, how, viewer(spec, how, quiet, verbose))
    conclude(outcome, quiet=quiet)


@click.command()
@click.argument("sweep")
@options.results
@click.option("--run-cap", type=click.IntRange(min=1), metavar="N", help="Go on to N configurations in all.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change when the sweep ends, as in budget.hours=8; repeatable.",
)
@click.option("--retry-failed", is_flag=True, help="Try failed trials again.")
@options.no_memo
@options.backend
def resume(
    sweep: str,
    results: Path,
    run_cap: int | None,
    assignments: tuple[str, ...],
    retry_failed: bool,
    no_memo: bool,
    address: str | None,
    max_concurrent: int | None,
    no_reuse: bool,
    inline: bool,
    quiet: bool,
    verbose: bool,
    tensorboard: bool,
) -> None:
    """Continue a sweep that was interrupted or killed, or extend one."""
    require_locks()
    from sweep.runner import resuming

    given = [*assignments, *([f"run_cap={run_cap}"] if run_cap else [])]
    go_on(
        resuming.reopen(results, sweep, given),
        address=address,
        max_concurrent=max_concurrent,
        no_reuse=no_reuse,
        inline=inline,
        no_memo=no_memo,
        retry_failed=retry_failed,
        quiet=quiet,
        verbose=verbose,
        tensorboard=tensorboard,
    )


def go_on(
    reopened: Reopened,
    *,
    address: str | None,
    max_concurrent: int | None,
    no_reuse: bool,
    inline: bool,
    no_memo: bool,
    quiet: bool,
    verbose: bool,
    tensorboard: bool,
    retry_failed: bool = False,
    confirming: bool = False,
) -> None:
    """Run one more session of a sweep; the options are those of the commands."""
    from sweep.export import followers
    from sweep.runner import planning, session

    source = planning.check(reopened.spec, str(reopened.folder.info), reopened.import_folders, here=address is None)
    how = session.Options(
        address=address,
        max_concurrent=max_concurrent,
        simulated_gpus=reopened.simulated_gpus,
        reuse=not no_reuse,
        inline=inline,
        memo=not no_memo,
        retry_failed=retry_failed,
        confirming=confirming,
        beside=followers(tensorboard=tensorboard),
    )
    outcome = session.resume(reopened, source, how, viewer(reopened.spec, how, quiet, verbose))
    conclude(outcome, quiet=quiet)


class _Viewer:
    """Makes the view of a session once its folder and the terminal are known."""

    def __init__(self, spec: Spec, how: Options, *, quiet: bool, verbose: bool) -> None:
        self._spec, self._how, self._quiet, self._verbose = spec, how, quiet, verbose

    def __call__(self, folder: ResultsFolder, terminal: TextIO) -> View:
        from sweep.analysis.outline import Outline
        from sweep.render.formatting import console
        from sweep.render.live import LiveView

        view = LiveView(console(), Outline.of(self._spec), quiet=self._quiet)
        if self._verbose:
            view.say(f"output of Ray and TensorFlow: {folder.debug_log}")
        if self._how.simulated_gpus and not self._quiet:
            view.say(f"rehearsal: {self._how.simulated_gpus} logical CPU devices stand in for GPUs")
        return view


def viewer(spec: Spec, how: Options, quiet: bool, verbose: bool) -> _Viewer:
    """What makes the view of a session."""
    return _Viewer(spec, how, quiet=quiet, verbose=verbose)


def conclude(outcome: Outcome, *, quiet: bool) -> None:
    """Show the result and leave with the exit code of the contract."""
    from sweep.analysis import ranking, trials, verdict
    from sweep.render.formatting import console
    from sweep.render.tables import answered, ranking_grid, show, show_finalists

    folder, terminal = outcome.folder, console()
    ranked = ranking.rank([trials.read(folder)])
    if ranked.rows:
        show(ranking_grid(ranked, limit=20 if terminal.is_terminal else None), terminal)
    show_finalists(ranked, terminal)
    lines = [f"results  {folder.path}", f'pandas   sweep.load("{folder.path}").trials']
    if (folder.path / "tensorboard").is_dir():
        lines.append(f"events   tensorboard --logdir {shlex.quote(str(folder.path / 'tensorboard'))}")
    if outcome.stopped and not outcome.interrupted:
        lines.append(f"stopped  {outcome.stopped}")
    if ranked.best:
        lines += answered(ranked, verdict.sentence(ranked))
    if not quiet:
        click.echo("\n" + printable("\n".join(lines)))
    if outcome.fault:
        click.echo(f"error: {printable(outcome.fault)}", err=True)
    if outcome.interrupted:
        click.echo(f"interrupted; go on with: python -m sweep resume {folder.address}", err=True)
        sys.exit(INTERRUPTED)
    if not outcome.completed:
        why = printable(trials.first_failure(trials.read(folder)))
        click.echo(f"error: no trial completed{why}; see the error column and {folder.debug_log}", err=True)
        sys.exit(1)
