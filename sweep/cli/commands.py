"""The command group, and how errors are shown and turned into exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sweep import interruption, output
from sweep.cli import (
    doctor,
    examples,
    exporting,
    kubernetes,
    mcp_server,
    options,
    page,
    planning,
    results,
    running,
    slurm,
    status,
    steering,
    submitting,
    waiting,
    winner,
)
from sweep.errors import WHOLE, InputError, InterruptedByUser, SweepError
from sweep.store.sweep_info import VERSION
from sweep.text import printable

if TYPE_CHECKING:
    from sweep.documents.mistakes import ErrorDocument

AS_JSON = "sweep.as_json"  # key in the context: whether the command line asks for JSON
WRONG_INPUT = 2
# a signal during these saves the trials that have begun
TRAINING = (
    "run",
    "resume",
    "confirm",
    "retrain",
)
WIDTH = 9  # width of the longest command name
GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Look": (
        examples.init,
        examples.examples_command,
        planning.plan,
        results.list_sweeps,
        status.status,
        page.ui,
    ),
    "Run": (
        running.run,
        running.resume,
        status.stop,
        waiting.wait,
        running.confirm,
        winner.retrain,
    ),
    "Steer": (steering.add, steering.change, steering.note, steering.star),
    "Cluster": (submitting.submit, submitting.logs, kubernetes.kube, slurm.slurm),
    "Results": (results.compare, winner.best, results.replay, results.report),
    "Export": (exporting.export, exporting.dashboard),
    "Machine": (doctor.doctor, status.repair, planning.schema, mcp_server.mcp),
}


class _Commands(click.Group):
    """The group of all commands: lists them by topic in its help, and shows errors of users without a traceback."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of `GROUPS` by topic, each with the first sentence of its help; click calls this."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                lines = []
                for command in commands:
                    lines.append((command.name or "", command.get_short_help_str(limit=200)))
                formatter.write_dl([(name.ljust(WIDTH), line) for name, line in lines])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit. If click cannot write an error, exit with code 2.

        If the environment variable named by `WHOLE` is set, the OSError of that is raised instead.
        """
        try:
            return super().main(*args, **extra)
        except OSError:  # from click, which prints usage errors itself
            if os.environ.get(WHOLE):
                raise
            sys.exit(WRONG_INPUT)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the options before the command's name and return the context in which the command will run.

        If they are wrong, the error is printed as a document if ``args`` ask for JSON, and raised for click to print
        it. If the text of ``--help`` or ``--version`` cannot be written, the process exits. The words of the command
        line, and whether they ask for JSON, are kept in the ``meta`` of the context.
        """
        as_json = output.asks_for_json(args)
        given = list(args)  # click takes words away from its list
        try:
            ctx = super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            _print_usage_error(error, as_json=as_json)
            raise
        except OSError as error:  # --help and --version print here, perhaps into a closed pipe
            _exit_with_os_error(error, as_json=as_json)
        ctx.meta[AS_JSON] = as_json
        ctx.meta[options.ARGUMENTS] = tuple(given)
        return ctx

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and return its result; print its errors as lines, and exit with the error's code.

        That is done for errors of sweep and of the operating system and for Ctrl-C. A wrong command line is left to
        click, which prints it, and other exceptions pass. With ``--json``, an error is also printed as a document to
        standard output.
        """
        as_json = ctx.meta[AS_JSON]
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _print_usage_error(error, as_json=as_json)
            raise  # for click to print it as lines
        except InterruptedByUser as error:
            _exit_with_error(error, [str(error)], as_json=as_json)
        except SweepError as error:
            _exit_with_error(
                error, [f"error: {printable(line)}" for line in _list_lines(error)], as_json=as_json
            )
        except KeyboardInterrupt:
            interrupted = InterruptedByUser("interrupted")
            _exit_with_error(interrupted, [str(interrupted)], as_json=as_json)
        except OSError as error:
            _exit_with_os_error(error, as_json=as_json)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command and return (its name, the command, the words that follow); click calls this before it runs.

        For a command that does not train, Python's own handling of signals is restored: it then cleans up as any Python
        program does. Raises click's UsageError if there is no such command.
        """
        found = super().resolve_command(ctx, args)
        name = found[0]
        if name not in TRAINING:
            interruption.stop_handling_signals()
        return found


def _print_error_line(text: str) -> None:
    """Write a line to standard error; do nothing if standard error is closed."""
    with suppress(OSError):
        click.echo(text, err=True)


def _list_lines(error: SweepError) -> list[str]:
    """Return the lines of an error: one for each mistake in the input, or a single one for any other error."""
    if isinstance(error, InputError):
        return [str(problem) for problem in error.problems]
    return [str(error)]


def _exit_with_error(error: SweepError, lines: Sequence[str], *, as_json: bool) -> NoReturn:
    """Write ``lines`` to standard error, with ``as_json`` also the error's document to standard output, and exit.

    The document is also written for a process that has started this one by ``--detach``. The exit code is that of
    ``error``.
    """
    from sweep.documents import mistakes

    for line in lines:
        _print_error_line(line)
    content = mistakes.describe_error(error)
    if as_json:
        _print_document(content)
    options.report_start(lambda: _write_document(content))
    sys.exit(error.exit_code)


def _print_usage_error(error: click.UsageError, *, as_json: bool) -> None:
    """With ``as_json``, print the document of a command line that cannot be parsed; click itself prints the lines."""
    from sweep.documents import mistakes

    if as_json:
        _print_document(mistakes.describe_usage_error(error))


def _print_document(content: ErrorDocument) -> None:
    """Print the document of an error; ignore that standard output may be closed."""
    output.document_follows()
    with suppress(OSError):
        click.echo(_write_document(content))


def _write_document(content: ErrorDocument) -> str:
    """Return the document of an error as text in JSON."""
    from sweep.render import document

    return document(content)


def _exit_with_os_error(error: OSError, *, as_json: bool) -> NoReturn:
    """Print an error of the operating system that no command has handled, and exit with the code of a `SweepError`.

    Exits with code 0 and prints nothing if the reader of standard output has closed the pipe. Any other error is raised
    if the environment variable named by `WHOLE` is set.
    """
    if isinstance(error, BrokenPipeError) and output.failed_by(error):
        sys.exit(0)  # the reader of our output has closed the pipe
    if os.environ.get(WHOLE):
        raise error
    problem = SweepError(_describe_os_error(error))
    _exit_with_error(problem, [f"error: {printable(str(problem))}"], as_json=as_json)


def _describe_os_error(error: OSError) -> str:
    """Return a text on an error of the operating system: "FILE and FILE: WHAT IS WRONG", without files only the latter.

    Standard output is named instead of the files if writing to it has failed.
    """
    files = []
    for file in (error.filename, error.filename2):
        if isinstance(file, str | bytes):  # it may also be None, or the number of an open file
            files.append(os.fsdecode(file))
    if output.failed_by(error):
        files = ["standard output"]
    # Without a file, nothing stands before the colon, which is then removed.
    return ": ".join(
        [" and ".join(files), error.strerror or str(error) or type(error).__name__]
    ).removeprefix(": ")


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, message="%(prog)s %(version)s")
def main() -> None:
    """Hyperparameter sweeps for Keras models.

    Give it one YAML file and one model; get back a comparison you can trust.
    """


for _commands in GROUPS.values():
    for _command in _commands:
        main.add_command(_command)
