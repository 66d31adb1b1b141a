"""Options that several commands share."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sweep.backends.ray_tune.kept_ray import KeptRay
    from sweep.runner import Options
    from sweep.store.folder import ResultsFolder


class _Results(click.ParamType):  # type: ignore[type-arg]  # generic only in click's type stubs
    """The type of ``--results``: a folder, or a URL in an object store, which is converted to its local folder."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the folder for ``value``, as `find_local_folder` does, and raise what that raises."""
        from sweep.store.features import find_local_folder

        return find_local_folder(value)


results = click.option(
    "--results",
    type=_Results(),
    default="results",
    show_default=True,
    help="Folder that holds all results, or a place in an object store such as s3://bucket/prefix.",
)
dashboard = click.option(
    "--address",
    metavar="http://HEAD:8265",
    help="Address of the cluster that the sweep was submitted to; give the sweep by name.",
)
name = click.option(
    "--name", help="Name of the sweep and its results folder, instead of the file's."
)
run_cap = click.option(
    "--run-cap", type=click.IntRange(min=1), metavar="N", help="At most N configurations."
)
max_concurrent = click.option(
    "--max-concurrent", type=click.IntRange(min=1), metavar="N", help="At most N trials at a time."
)
include = click.option(
    "--include",
    multiple=True,
    metavar="PATH",
    help="Send this too, though .gitignore names it; repeatable.",
)
assignments = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the sweep file; repeatable.",
)
notify = click.option(
    "--notify",
    multiple=True,
    metavar="URL|slack:VARIABLE|COMMAND",
    help="Tell this webhook, Slack or command what happens, instead of the receivers in the file; repeatable.",
)
simulate_gpus = click.option(
    "--simulate-gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rehearse on N logical CPU devices in place of GPUs.",
)
no_memo = click.option(
    "--no-memo",
    is_flag=True,
    help="Retrain trials even if an earlier sweep already has the result.",
)
as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="JSON for programs, errors too; `schema COMMAND` describes it.",
)

ARGUMENTS = "sweep.arguments"  # key in the context: the command line, as it was typed
_START_FILE = "sweep.start_file"  # key in the context: the file of `report_start`


def detach(command: Callable[..., None]) -> Callable[..., None]:
    """Declare ``--detach`` for a command, and the hidden ``--start-file`` for its process in the background.

    The command gets ``detach`` as an argument. The file is not passed to it, but kept in the context for
    `report_start`.
    """
    command = click.option(
        "--detach",
        is_flag=True,
        help="Go on in the background; say how to watch it, wait for it and stop it.",
    )(command)
    return click.option(
        "--start-file",
        type=click.Path(path_type=Path),
        hidden=True,
        expose_value=False,
        callback=lambda ctx, _, file: ctx.meta.update({_START_FILE: file}),
    )(command)


def report_start(describe: Callable[[], str]) -> None:
    """Append a line to the start file, by which the process that ran ``--detach`` learns of a start or a failure.

    ``describe`` returns the line as JSON, see `sweep.runner.detaching`; line breaks in it become spaces. Do nothing if
    no process waits for it, or outside of a command. Errors of the file are ignored.
    """
    context = click.get_current_context(silent=True)
    file = context.meta.get(_START_FILE) if context else None
    if file is not None:
        # no longer there once that process has read it
        with suppress(OSError), file.open("r+", encoding="utf-8") as stream:
            stream.seek(0, os.SEEK_END)
            stream.write(f"{' '.join(describe().splitlines())}\n")


_KEYS = {"run_cap": "run_cap", "name": "name", "eager": "training.run_eagerly"}
"""Options that set a key of the sweep file, with that key."""


def changes(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: pass the changes of the sweep file to it as ``changes``, a list of assignments ``key=value``.

    The changes are those of ``--set``, as they are, and then those of the options that each set one key of the sweep
    file: ``--run-cap``, ``--name``, ``--eager`` and ``--notify``. The command does not get these options themselves.
    """

    @functools.wraps(command)
    def with_changes(assignments: tuple[str, ...], **given: Any) -> None:
        """Convert ``--run-cap`` and the like to assignments, and call the command."""
        values = {}  # by the key that is set; None or False if its option is not given
        for option, key in _KEYS.items():
            values[key] = given.pop(option, None)  # not every command has all of them
        values["notify"] = [_parse_receiver(text) for text in given.pop("notify", ())] or None
        further = []
        for key, value in values.items():
            if value not in (None, False):
                # as JSON, so that --name 12 sets a text and not a number
                further.append(f"{key}={json.dumps(value, ensure_ascii=False)}")
        command(**given, changes=[*assignments, *further])

    return with_changes


def _parse_receiver(text: str) -> dict[str, Any]:
    """Return the entry of the key `notify` for a value of ``--notify``: {KIND: VALUE}.

    It is ``webhook`` with the URL for one of http or https, ``slack`` with the name after ``slack:``, and otherwise
    ``command`` with the list of words, as a shell splits them. Raises `InputError` for a command with unbalanced
    quotes.
    """
    kind, colon, rest = text.partition(":")
    if kind in ("http", "https") and rest.startswith("//"):
        return {"webhook": text}
    if kind == "slack" and colon:
        return {"slack": rest}
    try:
        return {"command": shlex.split(text)}
    except ValueError as error:
        raise InputError.one(
            "--notify", f"{text!r} cannot be read: {error}", "quote it as in a shell"
        ) from None


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in click's type stubs
    """The type of a duration such as 90s, 15m or 2h, which is converted to seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return a duration in seconds; a float is returned as it is.

        Raises click's BadParameter unless ``value`` is a number and a unit (s, m or h), above 0 and up to 24 hours.
        """
        if isinstance(value, float):  # click may pass a value that is converted already
            return value
        units = {"s": 1.0, "m": 60.0, "h": 3600.0}
        try:
            seconds = float(value[:-1]) * units[value[-1:]]
        except (KeyError, ValueError):
            seconds = 0.0  # refused below, like a duration of 0
        if not 0 < seconds <= LONGEST_WARM_S:
            self.fail(
                f"{value!r} is not a duration of up to 24 hours, such as 90s, 15m or 2h", param, ctx
            )
        return seconds


LONGEST_WARM_S = 24 * 3600.0
keep_warm = click.option(
    "--keep-warm",
    type=_Duration(),
    metavar="15m",
    help="Keep Ray and its workers for so long after the command, for the next one in this folder.",
)


def _find_kept_ray() -> KeptRay | None:
    """Return the object that holds the Ray which this process keeps between commands; None if it keeps none.

    A process that does has imported the module long before. In others it is not imported here: its package takes longer
    than the rest of a command up to its first line.
    """
    if "sweep.backends.ray_tune.kept_ray" not in sys.modules:
        return None
    from sweep.backends.ray_tune.kept_ray import get_kept_ray

    return get_kept_ray()


def _apply_keep_warm(given: dict[str, Any]) -> None:
    """Remove ``--keep-warm`` from the arguments ``given``; set how long Ray is kept, if this process keeps it.

    In such a process, also set whether the command is quiet; without the option, Ray is kept as long as before. In any
    other process, nothing is set: it raises InputError if the option is given with ``--inline``, ``--address``,
    ``--eager`` or ``--profile``, or on a system that cannot keep Ray, but not with ``--detach``, which leaves that to
    the process in the background.
    """
    seconds = given.pop("keep_warm", None)  # None without the option
    kept = _find_kept_ray()
    if kept is not None:
        kept.keep_s = seconds or kept.keep_s
        kept.is_quiet = given["quiet"] or given["as_json"] or given["events"]
        return
    # with --detach, the process in the background gets the option
    if seconds is None or given.get("detach"):
        return
    for name in ("inline", "address", "eager", "profile"):
        if given.get(name):
            raise InputError.one("--keep-warm", f"is given with --{name}", "leave one of them out")
    if not hasattr(os, "getuid"):  # as on Windows
        raise InputError.one("--keep-warm", "this system cannot do it", "leave it out")


def session(command: Callable[..., None]) -> Callable[..., None]:
    """Declare the options of commands that train, and pass them as ``how``, an `Options`, and ``as_json``.

    With ``--json``, no progress is shown, because standard output has the result only; ``--events`` with it raises
    InputError, and so may ``--keep-warm``. A command with further options of `Options` declares them itself, above this
    decorator.
    """

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        """Collect the options as `Options` and call the command with what is left of them.

        Raises InputError for ``--events`` with ``--json``, and as `_apply_keep_warm` does.
        """
        if given["events"] and given["as_json"]:
            raise InputError.one("--events", "is given with --json", "leave one of them out")
        _apply_keep_warm(given)  # first, because it needs options that are removed below
        how = _collect_options(given)
        command(**given, how=how)

    for option in (
        as_json,
        click.option(
            "--events", is_flag=True, help="One line of JSON per event, as in the log; no result."
        ),
        click.option(
            "--tensorboard",
            is_flag=True,
            help="Keep event files for TensorBoard in the sweep's folder.",
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Name the file with Ray's and TensorFlow's own output.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="No progress, only the result."),
        click.option("--inline", is_flag=True, help="In this process, without Ray; for debugging."),
        click.option("--no-reuse", is_flag=True, help="A fresh process for each trial."),
        max_concurrent,
        click.option(
            "--address",
            envvar="RAY_ADDRESS",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Join this Ray cluster.",
        ),
        keep_warm,
        no_memo,
    ):
        with_options = option(with_options)
    return with_options


def _collect_options(given: dict[str, Any]) -> Options:
    """Remove the options of a session from the arguments and return them as `Options`; ``as_json`` is not removed."""
    from sweep.runner import Options

    return Options(
        address=given.pop("address"),
        max_concurrent=given.pop("max_concurrent"),
        # those with a default here are options of some commands only
        simulated_gpus=given.pop("simulate_gpus", None),
        reuse=not given.pop("no_reuse"),
        inline=given.pop("inline"),
        memo=not given.pop("no_memo"),
        retry_failed=given.pop("retry_failed", False),
        profile=given.pop("profile", False),
        quiet=given.pop("quiet") or given["as_json"],
        verbose=given.pop("verbose"),
        events=given.pop("events"),
        followers=_create_followers(tensorboard=given.pop("tensorboard")),
    )


def _create_followers(
    *, tensorboard: bool
) -> Sequence[Callable[[ResultsFolder], AbstractContextManager[object]]]:
    """Return the functions that start exporters which follow a sweep while it runs; () unless ``tensorboard``.

    Each is called with the sweep's folder, and returns a context manager that follows it inside its block.
    """
    if not tensorboard:
        return ()
    from sweep.export import create_followers

    return create_followers(tensorboard=True)
