"""``confirm``: fresh seeds for the configurations of a sweep that could still be the best."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli import options, running
from sweep.store.folder import require_locks


@click.command()
@click.argument("sweep")
@options.results
@click.option("--seeds", type=click.IntRange(2, 1000), metavar="N", help="At most N fresh seeds per finalist.")
@click.option("--finalists", type=click.IntRange(2, 100), metavar="N", help="At most N finalists besides the baseline.")
@click.option(
    "--budget", metavar="SHARE", help="Epochs for all of it, as a share of the search's: 50%; none: no limit."
)
@options.no_memo
@options.backend
def confirm(
    sweep: str,
    results: Path,
    seeds: int | None,
    finalists: int | None,
    budget: str | None,
    no_memo: bool,
    address: str | None,
    max_concurrent: int | None,
    no_reuse: bool,
    inline: bool,
    quiet: bool,
    verbose: bool,
    tensorboard: bool,
) -> None:
    """Train the candidates for the best with fresh seeds, and test which one wins.

    By default as its file says in confirm:, or with 8 seeds and 20 % of the search's epochs.
    """
    require_locks()
    from sweep.runner import resuming

    running.go_on(
        resuming.reopen_to_confirm(results, sweep, seeds, finalists, budget),
        address=address,
        max_concurrent=max_concurrent,
        no_reuse=no_reuse,
        inline=inline,
        no_memo=no_memo,
        confirming=True,
        quiet=quiet,
        verbose=verbose,
        tensorboard=tensorboard,
    )
