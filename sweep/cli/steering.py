"""``add``, ``change``, ``note`` and ``star``: steer a sweep, whether it is running or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import options, submitting
from sweep.errors import InputError
from sweep.text import counted, printable

if TYPE_CHECKING:
    from sweep.documents.shapes import Document
    from sweep.events import SteeringEvent
    from sweep.runner.steering import Act
    from sweep.store.folder import ResultsFolder

MOST_CHARACTERS = 10_000  # maximum length of a note


def _steering_command(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that steers a sweep: declare its options, and pass it the sweep's folder and ``as_json``.

    The options are ``--results``, ``--address`` and ``--json``; the command declares the argument ``sweep`` itself.
    """

    @wraps(command)
    def with_folder(sweep: str, results: Path, address: str | None, **given: Any) -> None:
        """Open the folder of the sweep and call the command with it and the other arguments, ``given``.

        With ``address``, ``sweep`` is one that was submitted to this cluster, and ``results`` is not used. Raises
        `UnknownNameError` if there is no such sweep.
        """
        from sweep.store.folder import ResultsFolder

        if address is not None:
            results, sweep = submitting.find_results(sweep, address, prints_job=False)
        command(ResultsFolder.open(results, sweep), **given)

    for declare_option in (options.as_json, options.dashboard, options.results):
        with_folder = declare_option(with_folder)
    return with_folder


def _request_steering(folder: ResultsFolder, act: Act) -> SteeringEvent:
    """Let the process that runs the sweep carry out ``act``, and wait for it; return the event that was logged.

    There is no time limit. If no process runs the sweep, the act is carried out here, and the event appended to the
    log. Raises InputError if the act is refused, and StoreError if the log cannot be read or written.
    """
    from sweep.runner.steering_requests import steer

    return steer(folder, act)


def _print_result(line: str, found: Document, *, as_json: bool) -> None:
    """Print ``line``, or with ``as_json`` the document ``found``."""
    from sweep.render import document

    click.echo(document(found) if as_json else printable(line))


@click.command()
@click.argument("sweep")
@click.argument("values", nargs=-1, metavar="[NAME=VALUE ...]")
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add the configurations of a file: a list in YAML or JSON, or CSV.",
)
@_steering_command
def add(folder: ResultsFolder, values: tuple[str, ...], file: Path | None, as_json: bool) -> None:
    """Add a configuration to a sweep, which is tried next.

    Fixed parameters, and those that do not apply, may be left out. With --from, all configurations of a file are added.
    If the sweep is not running, they are tried when it goes on.
    """
    from sweep.documents.shapes import AddedDocument
    from sweep.runner import additions, resuming
    from sweep.runner.steering import COMMAND, Add, list_added

    if bool(values) == (file is not None):  # both are given, or neither
        raise InputError.one(
            "add", "expected either NAME=VALUE ... or --from FILE", "such as lr=3e-3 units=64"
        )
    if file is None:
        act = Add.of([additions.read_assignments(values)], COMMAND)
    else:
        space = resuming.open_sweep(folder).spec.space
        act = Add.of(additions.read_file(file, space), str(file))
    added = list_added(_request_steering(folder, act))
    running = folder.is_running()
    if running:
        to_resume = None
        when = "next"
    else:
        to_resume = folder.to_resume
        when = f"when the sweep goes on: {to_resume}"
    line = f"{counted(len(added), 'configuration')} added to {folder.name}, tried {when}"
    found = AddedDocument(
        sweep=folder.name, configurations=added, running=running, to_resume=to_resume
    )
    _print_result(line, found, as_json=as_json)


@click.command()
@click.argument("sweep")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="Change a key of the sweep file, as in parameters.units.values=[8,16,32]; repeatable.",
)
@_steering_command
def change(folder: ResultsFolder, assignments: tuple[str, ...], as_json: bool) -> None:
    """Change the space, the limits, the stopping rule or the repeats of a sweep, also while it runs.

    What would make the trials so far mean something else is refused. Added configurations that wait and are not in the
    new space are dropped.
    """
    from sweep.analysis.sweep_changes import list_changes
    from sweep.documents.shapes import ChangedDocument, describe_difference
    from sweep.runner.steering import Change, list_dropped

    dropped = list_dropped(_request_steering(folder, Change(assignments)))
    last = list_changes(folder)[-1]  # the change that was logged just now
    lines = []
    for one in last.differences:
        lines.append(f"{folder.name}: {one.describe()}")
    if dropped:
        lines.append(
            f"{folder.name}: {counted(len(dropped), 'added configuration')} not in the new space, dropped"
        )
    running = folder.is_running()
    if not running:
        lines.append(f"go on    {folder.to_resume}")
    found = ChangedDocument(
        sweep=folder.name,
        changes=tuple(map(describe_difference, last.differences)),
        dropped=dropped,
        running=running,
        to_resume=None if running else folder.to_resume,
    )
    _print_result("\n".join(lines), found, as_json=as_json)


@click.command()
@click.argument("sweep")
@click.argument("words", nargs=-1, required=True, metavar="[TRIAL] TEXT")
@_steering_command
def note(folder: ResultsFolder, words: tuple[str, ...], as_json: bool) -> None:
    """Write a note on a sweep or on one of its trials.

    It replaces the earlier one; an empty text removes it. A note has at most 10,000 characters.
    """
    from sweep.documents.shapes import NotedDocument
    from sweep.runner.steering import Note

    trial, text = _read_note(words)
    _request_steering(folder, Note(text, trial))
    if trial is None:
        on = folder.name
    else:
        on = f"trial {trial} of {folder.name}"
    if text:
        line = f"noted on {on}"
    else:
        line = f"the note on {on} is removed"
    _print_result(line, NotedDocument(sweep=folder.name, trial=trial, text=text), as_json=as_json)


def _read_note(words: tuple[str, ...]) -> tuple[int | None, str]:
    """Return (trial, text) from the words of `note`; the trial is None for a note on the sweep.

    The last word is the text, which may be empty, and the word before it the trial; there must be at least one word.
    Raises InputError for more than two words, a text of more than 10,000 characters, or a trial that is no whole
    number; whether there is such a trial is not checked.
    """
    *before, text = words  # ``before`` has the word for the trial, if there is one
    if len(before) > 1:
        raise InputError.one("TEXT", f"{len(words)} words, expected one text", "put it in quotes")
    if len(text) > MOST_CHARACTERS:
        raise InputError.one(
            "TEXT", f"{len(text):,} characters, expected at most {MOST_CHARACTERS:,}"
        )
    if not before:
        return None, text
    if not before[0].isdecimal():
        raise InputError.one(
            "TRIAL", f"{before[0]!r}, expected the number of a trial", "put the text in quotes"
        )
    return int(before[0]), text


@click.command()
@click.argument("sweep")
@click.argument("trial", type=click.IntRange(min=0))
@click.option("--remove", is_flag=True, help="Take the star away.")
@_steering_command
def star(folder: ResultsFolder, trial: int, remove: bool, as_json: bool) -> None:
    """Give a trial a star, which tables and the report show.

    With --remove, take it away.
    """
    from sweep.documents.shapes import StarredDocument
    from sweep.runner.steering import Star

    _request_steering(folder, Star(trial, starred=not remove))
    line = f"trial {trial} of {folder.name} has {'no' if remove else 'a'} star"
    found = StarredDocument(sweep=folder.name, trial=trial, starred=not remove)
    _print_result(line, found, as_json=as_json)
