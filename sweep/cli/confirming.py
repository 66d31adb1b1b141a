"""``confirm``: fresh seeds for the configurations of a sweep that could still be the best."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import options, running
from sweep.store.folder import require_locks

if TYPE_CHECKING:
    from sweep.runner.options import Options


@click.command()
@click.argument("sweep")
@options.results
@click.option("--seeds", type=click.IntRange(2, 1000), metavar="N", help="Fresh seeds of a finalist, at most.")
@click.option("--finalists", type=click.IntRange(2, 100), metavar="N", help="Finalists beside the baseline, at most.")
@click.option(
    "--budget", metavar="SHARE", help="Epochs for all of it, as a share of the search's: 50%; none: no bound."
)
@options.session
def confirm(
    sweep: str, results: Path, seeds: int | None, finalists: int | None, budget: str | None, how: Options
) -> None:
    """Race the best configurations of a sweep with fresh seeds until they are told apart.

    By default as its file says in confirm:, or with 8 seeds and 20 % of the search's epochs.
    """
    require_locks()
    from sweep.runner import resuming

    reopened = resuming.reopen_to_confirm(results, sweep, seeds, finalists, budget)
    running.go_on(reopened, dataclasses.replace(how, confirming=True))
