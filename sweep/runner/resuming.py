"""Finds a sweep again: its resolved sweep file, and how it was run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import Problem, StoreError, refuse
from sweep.spec import Spec, parse
from sweep.store.folder import ResultsFolder

CHANGEABLE = (
    *("run_cap", "budget", "stop_when", "metric.target", "max_failures", "max_restarts", "retries"),
    "confirm",
    *("checkpoint", "resources.max_concurrent", "resources.max_share"),
    *("resources.trial_hours", "resources.epoch_minutes"),
)
"""Keys that change when a sweep ends and how it is run, but nothing of what was trained."""


@dataclass(frozen=True, slots=True)
class Reopened:
    """A sweep that is there already."""

    folder: ResultsFolder
    spec: Spec
    import_folders: tuple[Path, ...]
    working_folder: Path
    simulated_gpus: int | None
    memo: bool  # whether trials of earlier sweeps may answer its own, as `run` was told


def reopen(results: Path, sweep: str, assignments: Sequence[str] = ()) -> Reopened:
    """Return a sweep with changes to `CHANGEABLE` keys.

    Raises InputError if there is no such sweep or a change is none of these, StoreError if its sweep.json
    is damaged.
    """
    folder = ResultsFolder.open(results, sweep)
    info = folder.read_info()
    _check(assignments)
    if not info.spec or info.import_folders is None:
        raise StoreError(f"{folder.info}: lacks spec or import_folders, which `run` writes")
    spec = parse(info.spec_text, str(folder.info), [re.sub(r"^metric\.", "metrics.0.", one) for one in assignments])
    there = tuple(path for path in info.import_folders if path.is_dir())
    there = there or (Path.cwd(),)  # another machine's code
    return Reopened(folder, spec, there, info.working_folder, info.simulated_gpus, info.memo)


def reopen_to_confirm(
    results: Path, sweep: str, seeds: int | None = None, finalists: int | None = None, budget: str | None = None
) -> Reopened:
    """Return a sweep whose ``confirm`` says this, and where nothing is said what its file does, or the defaults.

    ``budget``: a share of the search's epochs such as ``20%``, or ``none`` for no bound. Raises as `reopen`.
    """
    known = reopen(results, sweep).spec.confirm
    given = {"seeds": seeds, "finalists": finalists, "budget": "null" if budget == "none" else budget}
    changes = [f"confirm.{key}={value}" for key, value in given.items() if value is not None]
    return reopen(results, sweep, [*([] if known else ["confirm={}"]), *changes])


def _check(assignments: Sequence[str]) -> None:
    keys = [assignment.partition("=")[0] for assignment in assignments]
    wrong = [key for key in keys if not any(key == known or key.startswith(f"{known}.") for known in CHANGEABLE)]
    what = f"a sweep that has begun can change {', '.join(CHANGEABLE)} alone"
    hint = "start a new sweep with `run`; trials that stay the same are answered from this one"
    refuse(Problem(f"--set {key}", what, hint) for key in wrong)
