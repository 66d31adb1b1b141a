"""``slurm``: a sweep as a batch job of Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import options, submitting
from sweep.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--results",
    default="results",
    show_default=True,
    metavar="PATH",
    help="A folder that all nodes share, or a place in an object store such as s3://bucket/prefix.",
)
@click.option("--time", default="24:00:00", show_default=True, metavar="H:MM:SS", help="Time limit of the job.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Whole nodes of the job.")
@click.option("--gpus", type=click.IntRange(min=0), default=0, metavar="N", help="GPUs of each node.")
@click.option("--partition", help="Partition of the job.")
@click.option(
    "--save-before",
    "save_s",
    type=click.IntRange(min=120),
    default=300,
    show_default=True,
    metavar="S",
    help="Save all trials so many seconds before the time limit, and requeue.",
)
@click.option("--sbatch", "more", multiple=True, metavar="OPTION", help="Another option of sbatch; repeatable.")
@click.option("--setup", multiple=True, metavar="LINE", help='A line of the shell before, as "module load cuda".')
@click.option("--name", help="Name of the sweep, instead of the file's.")
@options.assignments
@click.option("--run-cap", type=click.IntRange(min=1), metavar="N", help="At most N configurations.")
@click.option("--dry-run", is_flag=True, help="Print the batch script, and submit nothing.")
@options.changes
def slurm(file: Path, results: str, changes: Sequence[str], more: Sequence[str], dry_run: bool, **asked: Any) -> None:
    """Run a sweep as a job of Slurm, which saves and requeues itself before its time limit."""
    from sweep.render.slurm import Batch, script
    from sweep.store.object_store import check_url, is_url

    sent = submitting.checked(file, changes)
    for option in more:
        if not option.startswith("-") or not option.isprintable():
            raise InputError.one("--sbatch", f"{option!r} is no option of sbatch", "write it as in --sbatch=--qos=long")
    stored = is_url(results)
    where = check_url("--results", results) if stored else str(Path(results).resolve())
    text = script(
        Batch(
            name=sent.spec.name,
            command=sent.command(where),
            address=f"{where}/{sent.spec.name}",
            python=sys.executable,
            folder=sent.root,
            output=str(sent.root) if stored else where,
            options=more,
            **asked,
        )
    )
    if dry_run:
        click.echo(text, nl=False)
        return
    if not stored:
        Path(where).mkdir(parents=True, exist_ok=True)  # else the job has nowhere to write
    click.echo(f"job      {printable(_submitted(text))}")
    click.echo(f"status   python -m sweep status {where}/{sent.spec.name}")


def _submitted(text: str) -> str:
    """Return the number of the job. Raises `InputError` where Slurm does not take it."""
    hint = "--dry-run prints the script, to be submitted where Slurm is"
    try:
        done = subprocess.run(["sbatch", "--parsable"], input=text, capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        raise InputError.one("slurm", "there is no sbatch on this machine", hint) from error
    except subprocess.TimeoutExpired as error:
        raise InputError.one("slurm", "sbatch has not answered within a minute", hint) from error
    if done.returncode:
        raise InputError.one("slurm", (done.stderr.strip().splitlines() or ["sbatch failed"])[-1], hint)
    return done.stdout.strip()
