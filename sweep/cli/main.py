"""The commands and how errors leave the program."""

from __future__ import annotations

import sys

import click

from sweep import interruption
from sweep.cli import (
    analysis,
    confirming,
    dashboard,
    doctor,
    examples,
    exporting,
    planning,
    repairing,
    replaying,
    reporting,
    running,
    status,
    winner,
)
from sweep.errors import InputError, Interrupted, SweepError, printable

WRONG_INPUT = 2
TRAINING = ("run", "resume", "confirm", "retrain")  # what they have begun is brought to an end by a signal
INTERRUPTED = 130


class _Commands(click.Group):
    """Shows errors that are the user's to mend as lines, never as a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except InputError as error:
            for problem in error.problems:
                click.echo(f"error: {printable(str(problem))}", err=True)
            sys.exit(WRONG_INPUT)
        except Interrupted as error:
            click.echo(str(error), err=True)
            sys.exit(INTERRUPTED)
        except SweepError as error:
            click.echo(f"error: {printable(str(error))}", err=True)
            sys.exit(WRONG_INPUT)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Let Python's own handler end the commands that train nothing, with what they have open."""
        found = super().resolve_command(ctx, args)
        if found[0] not in TRAINING:
            interruption.end()
        return found


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sweep", message="%(prog)s %(version)s")
def main() -> None:
    """Hyperparameter sweeps on Ray for Keras models: one YAML file in, a comparison to trust out."""


for _command in (
    examples.init,
    examples.examples_command,
    running.run,
    planning.plan,
    running.resume,
    analysis.list_sweeps,
    status.status,
    status.stop,
    repairing.repair,
    analysis.compare,
    winner.best,
    winner.retrain,
    confirming.confirm,
    replaying.replay,
    reporting.report,
    dashboard.dashboard,
    exporting.export,
    planning.schema,
    doctor.doctor,
):
    main.add_command(_command)
