"""From what several trials on one GPU would meet to findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.doctor.commands import MISSING, Run
from sweep.doctor.findings import Finding, Level
from sweep.doctor.probe import MODULE, Failure, Shared

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
DAEMON = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class Mps:
    """NVIDIA's multi-process service, by which processes on a GPU compute at the same time, not in turns."""

    runs: bool | None  # None: not known
    pipes: str | None  # the folder by which processes find it, where one is set
    pipes_exist: bool = True


def gather(run: Run, environ: Mapping[str, str]) -> Mps:
    """Whether its daemon runs, without starting it."""
    ran, pipes = run(["pgrep", "-f", DAEMON], 10.0), environ.get(PIPES)
    return Mps(None if ran.code == MISSING else ran.code == 0, pipes, pipes is None or Path(pipes).is_dir())


def mps(found: Mps) -> Iterator[Finding]:
    """Whether trials that share a GPU compute at the same time."""
    if not found.pipes_exist:
        what = f"{PIPES} is {found.pipes}, which does not exist: CUDA may not start in any trial"
        yield Finding("mps", Level.WARNING, what, f"unset it, or start the daemon with it: {DAEMON} -d")
    elif found.runs:
        yield Finding("mps", Level.OK, "the MPS daemon runs: trials that share a GPU compute at the same time")
    elif found.runs is False:
        what = "the MPS daemon does not run: trials that share a GPU (resources.gpus below 1, or auto) take turns"
        todo = f"nothing for whole GPUs; else start it before the sweep: {DAEMON} -d"
        yield Finding("mps", Level.NOTE, what, todo)


def limit(name: str, tried: Shared | Failure) -> Iterator[Finding]:
    """Whether a share of a GPU is held to its memory."""
    if isinstance(tried, Failure):
        todo = f"see it fail: python -m {MODULE} share; give each trial a whole GPU until it works"
        yield Finding("share", Level.ERROR, f"{name}: {tried.reason}", todo)
        return
    found = f"{name}: a quarter may have {tried.limit_bytes / 2**30:.1f} GiB"
    if tried.refused and tried.works:
        yield Finding("share", Level.OK, f"{found}, more is refused, and it goes on")
    else:
        wrong = "the process cannot go on after more was refused" if tried.refused else "more was not refused"
        todo = "give each trial a whole GPU: one could take its neighbour's memory"
        yield Finding("share", Level.ERROR, f"{found}, but {wrong}", todo)
