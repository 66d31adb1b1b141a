"""Names of the folders in which the workers of one machine share data, and their deletion."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import uuid
from pathlib import Path


def shared_data_name(results_folder: Path) -> str:
    """Return a new, unguessable name for the folder of the data that a sweep's workers share in one session.

    The folder is not created.
    """
    return f"{shared_data_prefix(results_folder)}{uuid.uuid4().hex}"


def shared_data_prefix(results_folder: Path) -> str:
    """Return what the names of a sweep's shared-data folders begin with, in all its sessions.

    It has a hash of the resolved path of ``results_folder``, which must be the path that the driver uses.
    """
    digest = hashlib.sha256(str(results_folder.resolve()).encode()).hexdigest()
    return f"sweep-data-{digest[:16]}-"


def remove_shared_data(prefix: str) -> None:
    """Delete the folders in this machine's temporary folder whose names begin with ``prefix``; ignore errors."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        shutil.rmtree(folder, ignore_errors=True)
