"""The folder in which the workers of one machine share data: named by the sweep, gone with its session."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import uuid
from pathlib import Path


def name(results_folder: Path) -> str:
    """Return a new name for a session of the sweep in this folder; nobody can guess it."""
    return f"{prefix(results_folder)}{uuid.uuid4().hex}"


def prefix(results_folder: Path) -> str:
    """Return what the names of all sessions of a sweep begin with, as its driver sees the folder."""
    digest = hashlib.sha256(str(results_folder.resolve()).encode()).hexdigest()
    return f"sweep-data-{digest[:16]}-"


def clean(results_folder: Path) -> None:
    """Remove the folders of all sessions of a sweep from this machine; only its running session may call it."""
    remove(prefix(results_folder))


def remove(prefix: str) -> None:
    """Remove this machine's folders with names that begin so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(folder, ignore_errors=True)
