"""``slurm``: run a sweep as a Slurm batch job on all of its nodes; the job saves and requeues itself."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sweep.cli import options, submitting
from sweep.errors import InputError
from sweep.text import printable

_TIME = re.compile(
    r"(?:(?P<days>\d+)-)?(?P<hours>\d{1,3})(?::(?P<minutes>\d{2}))?(?::(?P<seconds>\d{2}))?"
)
SETTLE_S = 30  # seconds that Ray gets to shut down on all nodes after the sweep has ended
LATE_S = 60  # seconds by which Slurm's signals may come early


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """The settings of a Slurm job that runs a sweep: its resources and its commands."""

    name: str
    command: Sequence[str]  # arguments of ``python -m sweep``, without an address
    address: str  # address of the sweep, in the form that `stop` takes
    python: str  # absolute path of Python, the same on all nodes
    folder: Path  # folder of the project, the same on all nodes
    output: str  # folder of the job's output
    time: str = "24:00:00"
    nodes: int = 1
    gpus: int = 0  # number of GPUs per node
    save_s: int = 300  # seconds before the time limit at which saving starts
    partition: str | None = None
    options: Sequence[str] = ()  # further options of sbatch
    setup: Sequence[str] = ()  # shell lines to run before the sweep


def parse_time_limit(time: str) -> int:
    """Convert a time limit in Slurm's format to seconds: ``hours:minutes:seconds``, or with ``days-`` in front.

    Without days, all three parts are required, because Slurm reads 8:30 as minutes and seconds, which is never what is
    meant; with days, the hours suffice, perhaps with minutes. Hours have at most three digits, minutes and seconds two,
    which may be above 59. Raises `InputError` for any other text.
    """
    found = _TIME.fullmatch(time)
    if found is None or (found["seconds"] is None and found["days"] is None):
        raise InputError.one(
            "--time", f"{time!r} is no time limit", "write it as in 8:00:00 or 1-12:00:00"
        )
    days, hours, minutes, rest = (
        int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds")
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def format_script(batch: SlurmJob) -> str:
    """Return the batch script of a job, which saves and requeues itself before the time limit.

    A job that Slurm preempts only saves, and one whose sweep ends in time is not requeued. Nothing is written or
    submitted. Raises `InputError` if the time limit is invalid, if it is at most two minutes longer than saving takes
    (`SlurmJob.save_s`), or if the path of the output folder has a double quote or unprintable characters.
    """
    # Signals may come early by `LATE_S`, and at least as long should remain for training.
    if parse_time_limit(batch.time) <= batch.save_s + 2 * LATE_S:
        what = (
            f"{batch.time} leaves no time to train: saving starts {batch.save_s} s before the limit"
        )
        raise InputError.one("--time", what, "ask for more, or lower --save-before")
    sbatch_options = [
        f"--job-name={_replace_special_characters(batch.name)}",
        f"--time={batch.time}",
        f"--nodes={batch.nodes}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",  # all memory of the node, which --exclusive does not include
        *([f"--gpus-per-node={batch.gpus}"] if batch.gpus else []),
        *([f"--partition={batch.partition}"] if batch.partition else []),
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{batch.save_s}",  # B: to the script alone, which then stops the sweep
        f'--output="{_escape_path(batch.output)}/slurm-{_replace_special_characters(batch.name)}-%j.out"',
        *batch.options,
    ]
    sweep = [batch.python, "-m", "sweep"]
    stop = shlex.join([*sweep, "stop", batch.address])
    # `stop` may take until the limit, less the time for Ray's shutdown and a minute for requeueing.
    patience = batch.save_s - LATE_S - SETTLE_S
    save_at_signals = _SAVE_AT_SIGNALS.format(stop=stop, patience=patience, settle=SETTLE_S)
    if batch.nodes == 1:
        start_sweep = _run_on_one_node(sweep, batch)
    else:
        start_sweep = _run_on_all_nodes(sweep, batch)
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in sbatch_options),
        f"cd {shlex.quote(str(batch.folder))} || exit 1",
        *batch.setup,
        *save_at_signals.splitlines(),
        *start_sweep,
        "running=$!",  # the process that the last line has started
        *_WAIT_AND_REQUEUE.splitlines(),
        "",  # so that the script ends with a line feed
    ]
    return "\n".join(lines)


def _run_on_one_node(sweep: Sequence[str], batch: SlurmJob) -> list[str]:
    """Return the line of the batch script, in a list, that starts the sweep on one node in the background.

    ``sweep`` are the words that run sweep's command line: Python, ``-m`` and ``sweep``.
    """
    return [f"srun --export=ALL --cpu-bind=none {shlex.join([*sweep, *batch.command])} &"]


def _run_on_all_nodes(sweep: Sequence[str], batch: SlurmJob) -> list[str]:
    """Return the lines of the batch script that start Ray on all nodes, and run the sweep on this cluster.

    ``sweep`` are the words that run sweep's command line. The lines follow Ray's documentation for Slurm. The sweep
    begins when all nodes have joined, and Ray ends with the sweep. Ray's token is in a file in the output folder that
    only its owner can read, because Slurm stores the environment of each job; the script deletes it at its end.
    """
    ray = ["ray", "symmetric-run", "--min-nodes", str(batch.nodes)]  # it calls `ray` by name
    return [
        f"export PATH={shlex.quote(str(Path(batch.python).parent))}:$PATH",
        *_SET_UP_RAY.format(folder=shlex.quote(batch.output)).splitlines(),
        f'srun --export=ALL --cpu-bind=none {shlex.join(ray)} --address "$address" -- '
        f'{shlex.join([*sweep, *batch.command])} --address "$address" &',
    ]


# shell code that determines the address of Ray's head, and creates the token that Ray's processes need
_SET_UP_RAY = """\
address=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1):$((20000 + SLURM_JOB_ID % 10000))
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={folder}/.ray-token-"$SLURM_JOB_ID" RAY_USAGE_STATS_ENABLED=0
export RAY_gcs_rpc_server_reconnect_timeout_s=45 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' > "$RAY_AUTH_TOKEN_PATH")
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT"""

# shell code that stops the sweep, so that all trials are saved, at Slurm's signals; ``late`` is not empty if it does
# not end in time, ``again`` if the job is to be requeued
_SAVE_AT_SIGNALS = """\
again= late=
save() {{
  echo "$(date '+%F %T') Slurm takes the nodes away: saving all trials"
  timeout -k 10 {patience} {stop} || late=yes
  for _ in $(seq {settle}); do kill -0 $running 2> /dev/null || return; sleep 1; done
  late=yes
}}
trap 'again=yes; save' USR1
trap save TERM"""

# shell code that waits for the sweep, requeues the job if it was saved before the time limit, and exits with its code
_WAIT_AND_REQUEUE = """\
while [ -z "$late" ] && kill -0 $running 2> /dev/null; do sleep 1; done  # `wait` may miss a signal
trap '' USR1 TERM
[ -n "$late" ] && code=1 || { wait $running; code=$?; }
if [ -n "$again" ] && [ $code -ne 0 ]; then
  echo "$(date '+%F %T') requeued; the sweep goes on from its log"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code"""


def _escape_path(path: str) -> str:
    """Return a path for use between double quotes in an option of a batch script: each "%" becomes "%%".

    Slurm replaces patterns such as %j there, and reads "%%" as "%". Raises `InputError`, which names ``--results``, for
    a path with a double quote or unprintable characters.
    """
    if '"' in path or not path.isprintable():
        raise InputError.one(
            "--results", f"{path!r} cannot be named in a batch script", "use another folder"
        )
    return path.replace("%", "%%")


def _replace_special_characters(name: str) -> str:
    """Return a name with "-" in place of all characters but letters and digits of any script, "_", "." and "-"."""
    return re.sub(r"[^\w.-]", "-", name)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--results",
    default="results",
    show_default=True,
    metavar="PATH",
    help="A folder that all nodes share, or a place in an object store such as s3://bucket/prefix.",
)
@click.option(
    "--time",
    default="24:00:00",
    show_default=True,
    metavar="H:MM:SS",
    help="Time limit of the job.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Whole nodes of the job.",
)
@click.option(
    "--gpus", type=click.IntRange(min=0), default=0, metavar="N", help="GPUs of each node."
)
@click.option("--partition", help="Partition of the job.")
@click.option(
    "--save-before",
    "save_s",
    type=click.IntRange(min=120),
    default=300,
    show_default=True,
    metavar="S",
    help="Save all trials this many seconds before the time limit, and requeue.",
)
@click.option(
    "--sbatch",
    "more",
    multiple=True,
    metavar="OPTION",
    help="Another option of sbatch; repeatable.",
)
@click.option(
    "--setup",
    multiple=True,
    metavar="LINE",
    help='A shell command to run first, such as "module load cuda".',
)
@options.name
@options.assignments
@options.run_cap
@click.option("--dry-run", is_flag=True, help="Print the batch script, and submit nothing.")
@options.as_json
@options.changes
def slurm(
    file: Path,
    results: str,
    changes: Sequence[str],
    more: Sequence[str],
    dry_run: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Run a sweep as a job of Slurm, which saves and requeues itself before its time limit.

    The sweep file and its trainable are checked first. The job runs in the current folder, or in that of the sweep
    file if the file is not below it. With --dry-run, the script is printed, and nothing is created.
    """
    from sweep.store.features import is_url
    from sweep.store.object_store import check_url

    sent = submitting.check_file(file, changes)
    for option in more:
        if not option.startswith("-") or not option.isprintable():
            raise InputError.one(
                "--sbatch",
                f"{option!r} is no option of sbatch",
                "write it as in --sbatch=--qos=long",
            )
    in_object_store = is_url(results)
    if in_object_store:
        where = check_url("--results", results)
        output = str(sent.root)  # Slurm cannot write to an object store
    else:
        where = str(Path(results).resolve())
        output = where
    place = f"{where}/{sent.spec.name}"
    # ``asked`` has the options that are named as fields of `SlurmJob`, such as the time limit
    text = format_script(
        SlurmJob(
            name=sent.spec.name,
            command=sent.command(where),
            address=place,
            python=sys.executable,
            folder=sent.root,
            output=output,
            options=more,
            **asked,
        )
    )
    job = None
    if not dry_run:
        if not in_object_store:
            # the job could not write its output otherwise
            Path(where).mkdir(parents=True, exist_ok=True)
        job = printable(_submit_script(text))
    if as_json:
        from sweep.documents.shapes import SlurmDocument
        from sweep.render import document

        click.echo(
            document(SlurmDocument(sweep=sent.spec.name, job=job, results=place, script=text))
        )
    elif job is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"job      {job}")
        click.echo(f"status   python -m sweep status {shlex.quote(place)}")


def _submit_script(text: str) -> str:
    """Submit the script with sbatch and return what it prints: the job number, with the cluster if there are several.

    Raises `InputError` if there is no sbatch here, if it does not answer within a minute, or if it refuses the script.
    """
    hint = "--dry-run prints the script, to be submitted where Slurm is"
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"], input=text, capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError as error:
        raise InputError.one("slurm", "there is no sbatch on this machine", hint) from error
    except subprocess.TimeoutExpired as error:
        raise InputError.one("slurm", "sbatch has not answered within a minute", hint) from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["sbatch failed"]
        raise InputError.one("slurm", said[-1], hint)
    return done.stdout.strip()
