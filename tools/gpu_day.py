"""Everything that only a GPU can show, in pieces that each end within ten minutes: `make gpu`.

    python tools/gpu_day.py                  on a machine with a GPU; the same command goes on after a cut
    python tools/gpu_day.py --noise          without downloading CIFAR-10: ResNet-50 trains on noise of its shape
    python tools/gpu_day.py --rehearse       without a GPU: the same pieces at their smallest, on CPUs

Each piece is a command that a person may type as well. What it prints is kept in ``--folder`` (build/gpu), and after
each piece results.md there tells all of it: the machine, the versions, what was run, how it ended. A piece that has
ended well is not run again. A sweep that is cut goes on where it was. Exits with 0 if all pieces have ended well, 1 if
one has failed, 3 if time is over and something is left.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIECE_S = 570.0  # the longest a piece may take before it is cut
LEAVE_S = 120.0  # for a sweep that is cut to save its trials; then it is killed
INTERRUPTED = 130  # exit code of a sweep that was cut and can go on
SHOWN_LINES = 80  # of the output of a piece in the results
PACKAGES = ("tensorflow", "keras", "ray", "numpy", "optuna", "pandas", "pyarrow", "nvidia-ml-py")


@dataclass(frozen=True, slots=True)
class Piece:
    """A command to run on a machine with a GPU, and what its result shows."""

    name: str
    shows: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """How the last run of a piece ended."""

    exit_code: int
    seconds: float  # of all its runs
    runs: int
    is_cut: bool  # the last run was ended by the time limit, and the next one goes on

    @property
    def state(self) -> str:
        """The result in a word."""
        if self.is_cut:
            return "cut"
        return "passed" if self.exit_code == 0 else "failed"


def list_pieces(folder: Path, *, noise: bool = False, rehearse: bool = False) -> list[Piece]:
    """Return the pieces, the most important first; with ``rehearse``, at their smallest and on CPUs."""
    python, results = sys.executable, str(folder / "sweeps")
    run = (python, "-m", "sweep", "run")
    kept = ("--or-resume", "--results", results)
    main_job = ("search_spaces/lr_wd_aug.yaml", *kept, "--set", "resources.gpus=1")
    grid = (
        *("search_spaces/resnet50_cifar10.yaml", *kept),
        *("--set", "epochs=5", "--set", "parameters.warmup_epochs.value=1"),
    )
    benchmark = (python, "benchmarks/gpu.py", "--minutes", "8")
    visible = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}
    if noise or rehearse:
        grid = (*grid, "--set", "trainable=trainables.cifar_resnet:NoiseResNet")
    if rehearse:
        small = (
            "--simulate-gpus",
            "1",
            "--run-cap",
            "1",
            "--set",
            "epochs=1",
            "--set",
            "resources.cpus=1",
        )
        main_job = (*main_job, *small)
        grid = (
            *grid,
            *small,
            "--set",
            "parameters.depth.value=20",
            "--set",
            "parameters.examples={value: 256}",
        )
        benchmark = (python, "benchmarks/gpu.py", "--cpu")
        visible = {"CUDA_VISIBLE_DEVICES": "-1"}
    return [
        Piece(
            "doctor",
            "driver, CUDA, links, power, and a training on each GPU",
            (python, "-m", "sweep", "doctor"),
        ),
        Piece(
            "tests",
            "gathered rows, bits again, costs, memory limits",
            (python, "-m", "pytest", "-m", "gpu", "tests/gpu", "-rs"),
            visible,
        ),
        Piece("main-job", "the README's sweep, a GPU a trial", (*run, *main_job)),
        Piece(
            "benchmark",
            "images a second by precision, XLA, GPUs and trials on one; equal to the CPU",
            benchmark,
        ),
        Piece("resnet50", "27 trainings of a ResNet-50 at a tenth of their epochs", (*run, *grid)),
    ]


def run_piece(piece: Piece, folder: Path, limit_s: float) -> Result:
    """Run a piece for at most ``limit_s`` seconds, and add what it prints to its file in ``folder``.

    At the limit it receives SIGINT, which a sweep takes as a request to save its trials and leave.
    """
    before = read_result(piece, folder)
    began = time.monotonic()
    is_cut = False
    with _output(piece, folder).open("a") as output:
        print(f"$ {' '.join(piece.command)}", file=output, flush=True)
        process = subprocess.Popen(
            piece.command,
            cwd=ROOT,
            env={**os.environ, **piece.environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            is_cut = True
            _end(process)
        except KeyboardInterrupt:
            _end(process)
            raise
    goes_on = is_cut or process.returncode == INTERRUPTED
    seconds, runs = (before.seconds, before.runs) if before else (0.0, 0)
    took_s = seconds + time.monotonic() - began
    result = Result(process.returncode, round(took_s, 1), runs + 1, goes_on)
    (folder / f"{piece.name}.json").write_text(json.dumps(asdict(result)))
    return result


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process; kill its group if it does not leave."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_result(piece: Piece, folder: Path) -> Result | None:
    """Return how a piece ended the last time; None if it was not run."""
    path = folder / f"{piece.name}.json"
    return Result(**json.loads(path.read_text())) if path.exists() else None


def _output(piece: Piece, folder: Path) -> Path:
    return folder / f"{piece.name}.txt"


def write_results(pieces: Sequence[Piece], folder: Path) -> Path:
    """Write everything that is known so far to results.md, and return its path."""
    lines = ["# What a GPU showed", "", *(f"- {line}" for line in describe_machine()), ""]
    lines += ["| piece | shows | result | seconds | runs |", "| --- | --- | --- | --- | --- |"]
    for piece in pieces:
        result = read_result(piece, folder)
        if result is None:
            lines.append(f"| {piece.name} | {piece.shows} | not run | | |")
        else:
            lines.append(
                f"| {piece.name} | {piece.shows} | {result.state} | {result.seconds:g} | {result.runs} |"
            )
    for piece in pieces:
        output = _output(piece, folder)
        if output.exists():
            text = output.read_text(errors="replace").splitlines()
            left_out = (
                [f"({len(text) - SHOWN_LINES:,} lines before)"] if len(text) > SHOWN_LINES else []
            )
            lines += ["", f"## {piece.name}", "", "```text", *left_out, *text[-SHOWN_LINES:], "```"]
    path = folder / "results.md"
    path.write_text("\n".join(lines) + "\n")
    return path


def describe_machine() -> list[str]:
    """Return lines about the time, the machine, its GPUs and the versions of all that counts."""
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"{platform.platform()}, Python {platform.python_version()}",
    ]
    lines.append(f"{os.cpu_count()} CPUs")
    lines += _ask(
        "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
    )
    lines += [f"commit {line}" for line in _ask("git", "rev-parse", "HEAD")]
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    return [*lines, ", ".join(versions)]


def _ask(*command: str) -> list[str]:
    """Return what a program prints; its absence or failure in a line."""
    try:
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{command[0]}: {error}"]
    return (
        ran.stdout.splitlines()
        if ran.returncode == 0
        else [f"{command[0]}: exit code {ran.returncode}"]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the pieces that have not ended well, and write the results after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "gpu", help="where results are kept"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="no further piece is begun after these"
    )
    parser.add_argument(
        "--piece-minutes", type=float, default=PIECE_S / 60, help="the longest run of a piece"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="PIECE", help="these pieces, also if they have ended well"
    )
    parser.add_argument("--noise", action="store_true", help="do not download CIFAR-10")
    parser.add_argument("--rehearse", action="store_true", help="at the smallest, on CPUs")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    pieces = list_pieces(given.folder.absolute(), noise=given.noise, rehearse=given.rehearse)
    names = [piece.name for piece in pieces]
    if unknown := [name for name in given.only or () if name not in names]:
        parser.error(f"--only: {', '.join(unknown)}: no such piece, expected {', '.join(names)}")
    ends = time.monotonic() + 60 * given.minutes
    for piece in pieces:
        _run_to_its_end(piece, given.folder, ends, 60 * given.piece_minutes, given.only)
        path = write_results(pieces, given.folder)
    print(f"results  {path}")
    results = [read_result(piece, given.folder) for piece in pieces]
    if any(result is not None and result.state == "failed" for result in results):
        return 1
    return 3 if any(result is None or result.is_cut for result in results) else 0


def _run_to_its_end(
    piece: Piece, folder: Path, ends: float, limit_s: float, only: Sequence[str] | None
) -> None:
    """Run a piece until it has ended or time is over; leave out pieces that have ended well or are not wanted."""
    result = read_result(piece, folder)
    is_done = result is not None and result.state == "passed"
    if piece.name not in only if only else is_done:
        print(f"{piece.name:10} {result.state if result else 'left out'}")
        return
    while True:
        left_s = min(limit_s, ends - time.monotonic())
        if left_s <= 0:
            print(f"{piece.name:10} left for the next time")
            return
        print(
            f"{piece.name:10} runs, for at most {left_s / 60:.1f} minutes: {piece.shows}",
            flush=True,
        )
        result = run_piece(piece, folder, left_s)
        print(f"{piece.name:10} {result.state} after {result.seconds:g} s", flush=True)
        if not result.is_cut:
            return


if __name__ == "__main__":
    sys.exit(main())
