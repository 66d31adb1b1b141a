"""``wait``: wait until a sweep is finished, has a verdict, a number of trials, or a score."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options
from sweep.text import duration, printable

if TYPE_CHECKING:
    from sweep.analysis.conditions import Condition
    from sweep.errors import Problem
    from sweep.runner.resuming import StoredSweep
    from sweep.runner.waiting import Waited

TIMED_OUT = 124  # the exit code of `timeout`


@click.command()
@click.argument("sweep")
@options.results
@click.option(
    "--until",
    default="finished",
    show_default=True,
    metavar="finished|verdict|trials=N|best<X",
    help="What to wait for; best>X where the metric is maximized.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="S", help="Wait at most this many seconds."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between looks at the log.",
)
@options.as_json
def wait(
    sweep: str, results: Path, until: str, timeout: float | None, interval: float, as_json: bool
) -> None:
    """Wait for a sweep; exit code 1 if it ends otherwise, 124 after --timeout.

    It only reads the log, and works for a sweep on any machine that shares the results folder. The exit code is 0 if
    what --until names was reached, also if that was so before.
    """
    from sweep.analysis import conditions
    from sweep.runner import resuming, waiting

    condition = conditions.parse_condition(until, "--until")
    stored = resuming.open_stored_sweep(results, sweep)
    waited = waiting.wait_until(stored, condition, timeout_s=timeout, interval_s=interval)
    problem, code = _find_problem(stored, condition, waited)
    if as_json:
        _print_document(stored, condition, waited, problem, code)
    elif problem is None:
        click.echo(f"{stored.folder.name}: {until} after {duration(waited.waited_s)}")
    if problem is not None:
        click.echo(f"error: {printable(str(problem))}", err=True)
    sys.exit(code)


def _find_problem(
    sweep: StoredSweep, condition: Condition, waited: Waited
) -> tuple[Problem | None, int]:
    """Return (problem, exit code): why the condition was not reached, and 124 after a timeout or 1 otherwise.

    Returns (None, 0) if it was reached. The code is 1 whenever no process runs the sweep, even if the time was over.
    """
    from sweep.errors import Problem

    name = sweep.folder.name
    if waited.reached:
        return None, 0
    if waited.running:  # so the waiting can only have ended because the time was over
        what = f"not {condition.text} after {duration(waited.waited_s)}"
        return Problem(name, what, f"see python -m sweep status {sweep.folder.address}"), TIMED_OUT
    what = f"is not running, and not {condition.text}"
    if sweep.problems:
        hint = str(sweep.problems[-1])  # this version of sweep cannot resume it
    else:
        hint = f"go on with: {sweep.folder.to_resume}"
    return Problem(name, what, hint), 1


def _print_document(
    sweep: StoredSweep, condition: Condition, waited: Waited, problem: Problem | None, code: int
) -> None:
    """Print the document of `wait` as JSON: a summary of the sweep as it is now, and how the waiting ended.

    ``problem`` and ``code`` are the results of `_find_problem`.
    """
    from sweep.analysis.verdict import summarize_sweep
    from sweep.documents import mistakes, shapes
    from sweep.render import document

    found = shapes.extend(
        shapes.WaitDocument,
        summarize_sweep(sweep.folder),
        until=condition.text,
        reached=waited.reached,
        waited_s=waited.waited_s,
        exit_code=code,
        error=mistakes.describe_problems([] if problem is None else [problem]),
    )
    click.echo(document(found))
