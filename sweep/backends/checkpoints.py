"""Where checkpoints lie: ``checkpoints/<trial>/epoch-<n>``, written aside and renamed, the last two kept."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

KEEP = 2  # a damaged last one falls back to the one before


def of_trial(results_folder: Path, trial: int) -> Path:
    """The folder of one trial's checkpoints."""
    return results_folder / "checkpoints" / f"{trial:05d}"


def newest_first(results_folder: Path, trial: int) -> list[Path]:
    """A trial's complete checkpoints."""
    folder = of_trial(results_folder, trial)
    return sorted(folder.glob("epoch-*"), reverse=True) if folder.is_dir() else []


def write(folder: Path, epoch: int, save: Callable[[Path], None]) -> Path:
    """Let ``save`` fill a folder aside, then rename it into place and delete all but the last two."""
    final = folder / f"epoch-{epoch:06d}"
    if final.exists():
        return final
    aside = folder / f"writing-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    save(aside)
    aside.rename(final)
    for old in sorted(folder.glob("epoch-*"), reverse=True)[KEEP:]:
        shutil.rmtree(old)
    return final


def delete(results_folder: Path, trial: int) -> None:
    """Free the space of a trial's checkpoints."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(of_trial(results_folder, trial))
