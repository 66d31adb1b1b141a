"""Where a sweep comes from: versions, commit, hardware, command line; kept in its sweep.json."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from sweep.version import VERSION

PACKAGES = ("tensorflow", "keras", "ray", "optuna", "pandas", "pyarrow", "numpy")
TIMEOUT_S = 10


def collect(project_dir: Path) -> dict[str, object]:
    """Everything that could explain a different result, JSON-able; null for what cannot be found out.

    Imports none of the packages and touches no accelerator. ``project_dir`` is the folder of the code.
    """
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpus": cpus(),
        "memory_bytes": memory_bytes(),
        "gpus": _gpus(),
        "packages": {"sweep": VERSION, **{name: version(name) for name in PACKAGES}},
        "git": _git(project_dir),
    }


def cpus() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version(package: str) -> str | None:
    """Return the installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def memory_bytes() -> int | None:
    """Memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # a system without these names
        return None


def _gpus() -> list[dict[str, object]]:
    fields = ("name", "memory.total", "driver_version")
    answer = _run("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    keys = ("name", "memory", "driver")
    return [dict(zip(keys, line.split(", "), strict=False)) for line in (answer or "").splitlines()]


def _git(folder: Path) -> dict[str, object] | None:
    """Commit, branch and whether the code differs from it: a tracked file, or a Python file not tracked."""
    git = ("git", "--no-optional-locks", "-C", str(folder))
    commit = _run(*git, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = _run(*git, "status", "--porcelain", "--untracked-files=no")
    added = _run(*git, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    return {
        "commit": commit,
        "branch": _run(*git, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": None if changed is None or added is None else bool(changed or added),
    }


def _run(*command: str) -> str | None:
    """Return the output of a program; None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
