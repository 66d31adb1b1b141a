"""A sweep as offline runs of Weights & Biases, one for each trial, for ``wandb sync``; the one module that knows wandb.

Its service writes them, in a process of its own that ends here. Nothing is sent, and nobody is logged in. A run's id
and folder follow from the sweep and the trial alone: what is synced again is not there twice.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweep.errors import StoreError
from sweep.events import Status
from sweep.export import extras
from sweep.export.runs import Exported, Run
from sweep.store.disk import storing

_QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
}
_UNSUCCESSFUL = (Status.DIVERGED, Status.OOM, Status.FAILED)


def export(sweep: Exported, target: Path) -> int:
    """Write the runs of all trials below ``target``/wandb in place of those of an earlier export; how many there are.

    Raises `StoreError` for a disk that cannot be written.
    """
    with storing(target), _environment():
        target.mkdir(parents=True, exist_ok=True)
        library: Any = extras.load("wandb", "wandb", "wandb")
        logging.getLogger("wandb").propagate = False
        count = 0
        try:
            for run in sweep.runs():
                _write(library, sweep, run, target)
                count += 1
        except library.Error as error:
            raise StoreError(f"{target}: wandb could not write: {error}") from error
        finally:
            library.teardown()
    return count


def run_id(sweep: Exported, trial: int) -> str:
    """The same for this trial of this sweep at every export, and for no other."""
    return f"{sweep.identity}-{trial:05d}"


def _write(library: Any, sweep: Exported, run: Run, target: Path) -> None:
    identity = run_id(sweep, run.trial.trial)
    for old in (target / "wandb").glob(f"offline-run-*-{identity}"):
        shutil.rmtree(old)
    status = run.trial.status
    settings = library.Settings(
        mode="offline",
        silent=True,
        console="off",
        save_code=False,
        disable_git=True,
        disable_job_creation=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_start_time=run.started,
    )
    made = library.init(
        dir=str(target),
        project=_project(sweep.name),
        id=identity,
        name=f"{sweep.name}-{run.trial.trial}",
        group=sweep.name,
        job_type="trial",
        tags=[status.value, f"repeat-{run.trial.repeat}"],
        notes=run.trial.status_reason or None,
        config=_config(sweep, run),
        settings=settings,
        reinit="finish_previous",
    )
    for epoch in run.epochs:
        row = {name: _number(value) for name, value in epoch.scalars.items() if not name.startswith("_")}
        made.log({**row, "_timestamp": epoch.time, "_runtime": epoch.time - run.started}, step=epoch.number)
    made.summary.update(
        {
            "status": status.value,
            "reason": run.trial.status_reason,
            "epochs": run.trial.epochs,
            **{f"best/{name}": _number(value) for name, value in run.trial.best.items()},
            **run.facts,
        }
    )
    made.finish(exit_code=1 if status in _UNSUCCESSFUL else 0)


def _config(sweep: Exported, run: Run) -> dict[str, object]:
    """The parameters, nested as dots say, and what else tells the trial apart under ``sweep``."""
    config: dict[str, object] = dict(run.params)
    own = {
        "name": sweep.name,
        "trial": run.trial.trial,
        "trial_id": run.trial.trial_id,
        "repeat": run.trial.repeat,
        "seed": run.trial.seed,
        "objectives": [{"name": name, "goal": goal} for name, goal in sweep.sweep.objectives],
    }
    provenance = sweep.info.get("provenance")
    return {**config, "sweep.trial" if "sweep" in config else "sweep": {**own, "provenance": provenance}}


def _project(name: str) -> str:
    """A project has no / \\ # ? % : and at most 128 characters."""
    return "".join("_" if character in "/\\#?%:" else character for character in name)[:128]


def _number(value: float) -> object:
    """JSON has no NaN; W&B's own words for what is not finite."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


@contextmanager
def _environment() -> Iterator[None]:
    """wandb reads its settings when it is imported, and those of the user are not for this."""
    before: Mapping[str, str] = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        del os.environ[name]
    os.environ.update(_QUIET)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if name.startswith("WANDB_")})
