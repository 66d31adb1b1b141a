"""Options that several commands share, each written once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

results = click.option(
    "--results",
    type=click.Path(file_okay=True, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder that holds all results.",
)
assignments = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change a key of the sweep file; repeatable."
)
simulate_gpus = click.option(
    "--simulate-gpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rehearse on N logical CPU devices in place of GPUs.",
)
no_memo = click.option(
    "--no-memo", is_flag=True, help="Retrain trials even if an earlier sweep already has the result."
)
as_json = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")


def backend(command: _F) -> _F:
    """How trials are run."""
    for option in (
        click.option("--tensorboard", is_flag=True, help="Keep event files for TensorBoard in the sweep's folder."),
        click.option("-v", "--verbose", is_flag=True, help="Name the file with Ray's and TensorFlow's own output."),
        click.option("-q", "--quiet", is_flag=True, help="No progress, only the result."),
        click.option("--inline", is_flag=True, help="In this process, without Ray; for debugging."),
        click.option("--no-reuse", is_flag=True, help="A fresh process for each trial."),
        click.option("--max-concurrent", type=click.IntRange(min=1), metavar="N", help="At most N trials at a time."),
        click.option(
            "--address", envvar="RAY_ADDRESS", show_envvar=True, metavar="HOST:PORT", help="Join this Ray cluster."
        ),
    ):
        command = option(command)
    return command
