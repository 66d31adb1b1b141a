"""The folder in which the workers of one machine share data: named by the sweep, gone with its session."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import uuid
from pathlib import Path


def name(results_folder: Path) -> str:
    """A new name for a session of the sweep in this folder; nobody can guess it."""
    return f"{_prefix(results_folder)}{uuid.uuid4().hex}"


def clean(results_folder: Path) -> None:
    """Remove the folders of all sessions of a sweep from this machine; only its running session may call it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(results_folder)}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _prefix(results_folder: Path) -> str:
    digest = hashlib.sha256(str(results_folder.resolve()).encode()).hexdigest()
    return f"sweep-data-{digest[:16]}-"
