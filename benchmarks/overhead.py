"""What a sweep costs beside its training: `sweep` and other tools on the same trainings, on this machine.

    python benchmarks/overhead.py                              # everything: about an hour on two CPU cores
    python benchmarks/overhead.py --only sweep,fit --json      # see --help
    python benchmarks/overhead.py --timeline 5                 # where the time until the first epoch goes

`sweep_fused` is the same sweep with `fuse: auto`, which trains several trials as one program. `sweep_warm` is the same
command after another one with `--keep-warm`, which is not counted. Every row is a process of
its own and its wall time is from its start to its exit. `fit` is the bare time of all
epochs in one compiled, warmed-up `Model.fit`; nothing is started, built or traced in it. `imports` is TensorFlow's
import and the start of a local Ray, which any first epoch has to wait for. Memory is the sum of
the resident pages of all processes of a row, shared ones counted in each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import rivals
import timeline

ROOT = Path(__file__).parents[1]
WARM = "sweep_warm"
FUSED = "sweep_fused"
KEEPING = ("--keep-warm", "10m")
ROWS = ("sweep", FUSED, WARM, *rivals.RIVALS)
EPOCHS = 5
SAMPLE_S = 0.25


@dataclass(frozen=True)
class Measured:
    """The figures of one row with one number of trials."""

    row: str
    trials: int
    epochs: int
    wall_s: float
    first_epoch_s: float
    prompt_s: float  # from the end of the last trial to the exit, where a log tells
    peak_mb: float
    load: float  # of the machine when the row began, one minute's mean


def main() -> None:
    """Measure all rows, print each as soon as it is known, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help=f"comma-separated rows of {', '.join(ROWS)}")
    parser.add_argument(
        "--trials", type=int, nargs="+", default=[27, 108], help="sizes of the sweep"
    )
    parser.add_argument(
        "--structures", type=int, choices=[1, 3], default=1, help="how many nets to compile"
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 trials of 2 epochs: says that it works, not how fast",
    )
    parser.add_argument("--json", action="store_true", help="JSON in place of the table")
    parser.add_argument("--timeline", type=int, metavar="RUNS", help="see timeline.py")
    parser.add_argument(
        "--beside", type=Path, metavar="ROOT", help="with --timeline: another checkout with a .venv"
    )
    given = parser.parse_args()
    if given.timeline:
        checkouts = [ROOT] if given.beside is None else [given.beside.resolve(), ROOT]
        print(timeline.compare_checkouts(checkouts, _timeline_command, given.timeline))
        return
    sizes, epochs = ([3], 2) if given.quick else (given.trials, given.epochs)
    rows = given.only.split(",") if given.only else list(ROWS)
    if unknown := set(rows) - set(ROWS):
        parser.error(
            f"--only: no row {', '.join(sorted(unknown))}; expected some of {', '.join(ROWS)}"
        )
    missing = [
        name for name in ("keras_tuner", "tensorboard") if importlib.util.find_spec(name) is None
    ]
    if "keras_tuner" in rows and missing:
        print(f"keras_tuner is left out: it needs {' and '.join(missing)}", file=sys.stderr)
        rows.remove("keras_tuner")
    found = []
    for size in sizes:
        for row in rows:
            try:
                found.append(_measured(row, size, given.structures, epochs))
            except subprocess.CalledProcessError as error:
                print(f"{row} failed:\n{error.stderr[-2000:]}", file=sys.stderr)
                continue
            print(found[-1], file=sys.stderr, flush=True)
    print(json.dumps([asdict(one) for one in found], indent=1) if given.json else _table(found))


def _measured(row: str, trials: int, structures: int, epochs: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="overhead-") as scratch:
        folder = Path(scratch)
        if row == WARM:
            results = str(folder / "before")
            warm_up = [
                *sweep_command(trials, structures, epochs, folder),
                *KEEPING,
                "--results",
                results,
            ]
            subprocess.run(
                [sys.executable, *warm_up], cwd=ROOT, check=True, capture_output=True, text=True
            )
        load, began = os.getloadavg()[0], time.perf_counter()
        if row in ("sweep", FUSED, WARM):
            command = sweep_command(trials, structures, epochs, folder)
            if row == FUSED:
                command += ["--set", "training.fuse=auto"]
            first: Callable[[], bool] = partial(_has_epoch, folder)
        else:
            marker = folder / "first"
            command = [str(Path(rivals.__file__)), row, f"--trials={trials}", f"--epochs={epochs}"]
            command += [f"--structures={structures}", f"--marker={marker}"]
            first = marker.exists
        with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
            process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=out, stderr=err)
            watch = _Watch(process.pid, first)
            code = process.wait()
            wall_s = time.perf_counter() - began
            prompt_s = time.time() - _last_end(folder)
            watch.stop()
            out.seek(0), err.seek(0)
            if row == WARM:
                subprocess.run(
                    [sys.executable, "-m", "sweep", "stop", "--warm"], cwd=ROOT, check=True
                )
            if code:
                raise subprocess.CalledProcessError(code, command, stderr=err.read())
            if row in ("fit", "imports"):  # not from start to exit
                wall_s = json.loads(out.read())["wall_s"]
    return Measured(
        row, trials, epochs, wall_s, watch.first_s, prompt_s, watch.peak_bytes / 1e6, load
    )


def sweep_command(trials: int, structures: int, epochs: int, results: Path) -> list[str]:
    """Return the command of a user who runs the shipped file with other values."""
    values = rivals.grid(trials, structures)
    shipped = (ROOT / "search_spaces" / "lr_wd_aug.yaml").read_text().splitlines(keepends=True)
    file = results / "lr_wd_aug.yaml"
    file.write_text(
        "".join(line for line in shipped if "augmentation" in values or "augmentation:" not in line)
    )
    command = ["-m", "sweep", "run", str(file), "--results", str(results), "--no-memo", "-q"]
    given = {f"parameters.{name}.values": value for name, value in values.items()}
    for key, value in {
        **given,
        "parameters.batch_size.value": rivals.BATCH_SIZE,
        "epochs": epochs,
    }.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    return command


def _timeline_command(results: Path) -> list[str]:
    """Return the command of 27 trials, with what it says."""
    return [word for word in sweep_command(27, 1, EPOCHS, results) if word != "-q"]


def _has_epoch(results: Path) -> bool:
    return any(b'{"event":"epoch' in path.read_bytes() for path in results.glob("*/log.jsonl"))


def _last_end(results: Path) -> float:
    """Return when the last trial ended, in seconds since 1970; NaN without a log."""
    lines = [line for path in results.glob("*/log.jsonl") for line in path.read_text().splitlines()]
    ends = [json.loads(line)["time"] for line in lines if '"event":"trial_ended"' in line]
    return max(ends, default=float("nan"))


class _Watch:
    """Observes the memory of a process tree and the end of its first epoch, from a thread."""

    def __init__(self, root: int, first: Callable[[], bool]) -> None:
        self.peak_bytes, self.first_s = 0, float("nan")
        self._root, self._first, self._began = root, first, time.perf_counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        """Stop observing."""
        self._over.set()
        self._thread.join()
        if self.first_s != self.first_s and self._first():
            self.first_s = time.perf_counter() - self._began

    def _look(self) -> None:
        sampled = 0.0
        while not self._over.wait(0.02):
            now = time.perf_counter()
            if self.first_s != self.first_s and self._first():
                self.first_s = now - self._began
            if now - sampled >= SAMPLE_S:
                sampled, self.peak_bytes = now, max(self.peak_bytes, _resident_bytes(self._root))


def _resident_bytes(root: int) -> int:
    """Return the resident bytes of a process and of all its descendants that are still linked to it."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid], sizes[pid] = int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    total, family = 0, [root]
    while family:
        member = family.pop()
        total += sizes.get(member, 0)
        family += [pid for pid, parent in parents.items() if parent == member]
    return total


def _table(found: list[Measured]) -> str:
    """Return a line per row and size, with times, ratios to `fit` and to `sweep`, and the cost of one more trial."""
    at = {(one.row, one.trials): one for one in found}
    sizes = sorted({one.trials for one in found})
    heads = {
        "trials": 7,
        "wall s": 9,
        "x fit": 8,
        "x sweep": 9,
        "first s": 9,
        "prompt s": 9,
        "s/trial": 9,
        "peak MB": 9,
    }
    lines = [" " * 12 + "".join(head.rjust(width) for head, width in heads.items()) + "  peak MB"]
    for size in sizes:
        for row in ROWS:
            if (row, size) in at:
                one = at[row, size]
                ratios = [_ratio(one, at.get((base, size))) for base in ("fit", "sweep")]
                marginal = _marginal(one, at.get((row, sizes[0])))
                lines.append(
                    f"{row:12}{size:7}{one.wall_s:9.1f}{ratios[0]:>8}{ratios[1]:>9}"
                    f"{one.first_epoch_s:9.1f}{one.prompt_s:9.2f}{marginal:>9}{one.peak_mb:9.0f}"
                )
    lines.append(f"epochs per trial: {found[0].epochs if found else '-'}; cores: {os.cpu_count()}")
    return "\n".join(lines)


def _ratio(one: Measured, base: Measured | None) -> str:
    return f"{one.wall_s / base.wall_s:.2f}" if base else "-"


def _marginal(one: Measured, smallest: Measured | None) -> str:
    if smallest is None or one.trials == smallest.trials:
        return "-"
    return f"{(one.wall_s - smallest.wall_s) / (one.trials - smallest.trials):.2f}"


if __name__ == "__main__":
    main()
