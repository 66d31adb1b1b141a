"""What a sweep will do, found out without doing it: the checks before the first epoch, and `plan`."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.contract import Devices
from sweep.errors import InputError, Problem, did_you_mean
from sweep.events import Params
from sweep.inspection import Source, inspect
from sweep.searchers.build import build as build_searcher
from sweep.spec import Spec

READ_BY_SWEEP = frozenset({"epochs"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A priced sweep."""

    spec: Spec
    devices: Devices
    trials: int | None  # None: bounded by time or epochs alone
    epochs: int | None
    concurrent: int | None  # on this machine; None where it has too little for one trial
    sample: tuple[Params, ...]


def import_folders(spec_path: Path) -> tuple[Path, ...]:
    """Where a trainable is looked for: the current folder, then the sweep file's."""
    folders = [Path.cwd(), spec_path.resolve().parent]
    return tuple(dict.fromkeys(folders))


def check(spec: Spec, where: str, folders: Sequence[Path]) -> Source:
    """The trainable's source; raises InputError if it is missing or does not read a parameter of the file."""
    try:
        source = inspect(spec.trainable, folders)
    except InputError as error:
        raise InputError(Problem(f"{where}: {p.where}", p.what, p.hint) for p in error.problems) from error
    if source.reads is not None:
        known = source.reads | READ_BY_SWEEP
        unread = [name for name in spec.space.names if name not in known]
        if unread:
            raise InputError(
                Problem(
                    f"{where}: parameters.{name}",
                    f"nothing in {spec.trainable} reads it",
                    did_you_mean(name, known),
                )
                for name in unread
            )
    return source


def devices(spec: Spec, simulated_gpus: int | None) -> Devices:
    """What each trial is given."""
    resources = spec.resources
    return Devices(resources.cpus, resources.gpus, simulated=simulated_gpus is not None and resources.gpus > 0)


def plan(spec: Spec, simulated_gpus: int | None, *, sample: int = 5) -> Plan:
    """Price a sweep on this machine."""
    share = devices(spec, simulated_gpus)
    gpus = local_gpus() if simulated_gpus is None else simulated_gpus
    rooms = [(os.cpu_count() or 1) / share.cpus] + ([gpus / share.gpus] if share.gpus else [])
    concurrent = int(min(rooms))
    if spec.resources.max_concurrent != "auto":
        concurrent = min(concurrent, spec.resources.max_concurrent)
    configurations = spec.trials()
    trials = None if configurations is None else configurations * spec.repeats
    searcher = build_searcher(spec.method, spec.space, spec.objectives, spec.seed)
    suggested = (searcher.suggest(number) for number in range(min(sample, configurations or sample)))
    drawn = tuple(params for params in suggested if params is not None)
    return Plan(
        spec=spec,
        devices=share,
        trials=trials,
        epochs=_epochs(spec, trials, drawn),
        concurrent=concurrent or None,
        sample=drawn,
    )


def local_gpus() -> int:
    """GPUs of this machine by the driver's own list; 0 without a driver."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def _epochs(spec: Spec, trials: int | None, drawn: Sequence[Params]) -> int | None:
    """The most epochs that the sweep can train, where every trial has the same number of them."""
    per_trial = {spec.trial_epochs(params) for params in drawn}
    if trials is None or len(per_trial) != 1 or ("epochs" in spec.space.names and trials > len(drawn)):
        return None
    return trials * math.prod(per_trial)
