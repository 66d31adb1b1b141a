"""The machine apart from its GPUs: packages, environment, memory, disk."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from sweep.store.provenance import cpus, memory_bytes, version
from sweep.version import DISTRIBUTION

VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_USE_LEGACY_KERAS", "KERAS_BACKEND")


@dataclass(frozen=True, slots=True)
class Host:
    """What the checks need to know; sizes in bytes, None where the system does not tell."""

    python: str
    requires_python: str
    requirements: tuple[str, ...]  # of this package, as its metadata has them
    installed: Mapping[str, str | None]
    variables: Mapping[str, str]
    cpus: int
    memory_bytes: int | None
    shared_free_bytes: int | None  # of /dev/shm; None on systems without one


@dataclass(frozen=True, slots=True)
class Disk:
    """Where results go."""

    folder: str
    free_bytes: int
    failure: str | None = None  # why nothing can be written


def gather(environ: Mapping[str, str]) -> Host:
    """Look at this machine; starts nothing."""
    about = metadata.metadata(DISTRIBUTION)
    required = tuple(text for text in metadata.requires(DISTRIBUTION) or () if not Requirement(text).marker)
    return Host(
        python=platform.python_version(),
        requires_python=about["Requires-Python"],
        requirements=required,
        installed={Requirement(text).name: version(Requirement(text).name) for text in required},
        variables={name: environ[name] for name in VARIABLES if name in environ},
        cpus=cpus(),
        memory_bytes=memory_bytes(),
        shared_free_bytes=shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None,
    )


def disk(folder: Path) -> Disk:
    """Try to write where the results folder is or would be made."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"sweep")
            file.flush()
    except OSError as error:
        return Disk(str(folder), free, f"{there}: {error.strerror or error}")
    return Disk(str(folder), free)
