"""Caches of what XLA and CUDA compile, kept on a node between processes.

Both take their folder from the environment, which TensorFlow reads at its first operation.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from sweep.contract import Devices

MOST_BYTES = 4 * 2**30
"""Limit of XLA's cache, from which the least recently used programs are removed, and of CUDA's own."""

DIRECTORY = "--tf_xla_persistent_cache_directory"
_KINDS = "--tf_xla_persistent_cache_device_types"
_CUDA_VARIABLES = ("CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_DISABLE")


def enable_caches(
    training: Mapping[str, object],
    devices: Devices,
    environment: MutableMapping[str, str] | None = None,
) -> Path | None:
    """Set the environment variables that make XLA and CUDA cache compiled programs on disk.

    ``environment`` is `os.environ` if it is None. XLA's cache is set if ``training`` has ``jit_compile`` true, or
    "auto" (the default) on a GPU; CUDA's on a GPU. Simulated GPUs do not count. A cache that the user has set by one of
    the variables is left as it is; other flags for XLA are kept. Call it before TensorFlow's first operation. If XLA's
    cache is set and is above `MOST_BYTES`, its least recently used files are removed. Returns the caches' folder, which
    is created if needed, or None if nothing is set, because no cache is needed, the user has set them, or no private
    folder can be written.
    """
    if environment is None:
        environment = os.environ
    on_gpu = bool(devices.gpus) and not devices.simulated
    option = training.get("jit_compile", "auto")
    flags = environment.get("TF_XLA_FLAGS", "")
    sets_xla = (option is True or (option == "auto" and on_gpu)) and DIRECTORY not in flags
    sets_cuda = on_gpu and not any(name in environment for name in _CUDA_VARIABLES)
    if not sets_xla and not sets_cuda:
        return None
    folder = _folder(environment)
    if folder is None:
        return None
    if sets_cuda:
        environment["CUDA_CACHE_PATH"] = str(folder / "cuda")
        environment["CUDA_CACHE_MAXSIZE"] = str(MOST_BYTES)
    if sets_xla:
        prune(folder / "xla")
        own = f'{DIRECTORY}="{folder / "xla"}" {_KINDS}={"GPU" if on_gpu else "CPU"}'
        environment["TF_XLA_FLAGS"] = f"{flags} {own}".strip()
    return folder


def prune(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the least recently used ``.pb`` files of a folder until the rest has at most ``most_bytes`` bytes.

    Safe while other processes read, write and prune. Do nothing if there is no such folder.
    """
    files = []
    for path in folder.glob("*.pb"):
        with suppress(FileNotFoundError):  # removed by another process
            about = path.stat()
            # Where reading does not set the access time, the time of writing stands for it.
            files.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    size = sum(file[1] for file in files)
    for _, bytes_, path in sorted(files):
        if size <= most_bytes:
            return
        path.unlink(missing_ok=True)
        size -= bytes_


def _folder(environment: Mapping[str, str]) -> Path | None:
    """Return the cache folder of this user and node, and create it; None if no folder can be used.

    The folder lies in the user's cache, which ``environment`` tells, or in the system's temporary folder if the cache
    cannot be used. It has a folder ``xla``. Folders to which other users could write are not used, because the cached
    programs are run.
    """
    home = environment.get("XDG_CACHE_HOME") or (
        f"{environment['HOME']}/.cache" if environment.get("HOME") else ""
    )
    places = []
    if home and Path(home).is_absolute():
        places.append(Path(home, "sweep"))
    for place in (*places, Path(tempfile.gettempdir(), f"sweep-{os.getuid()}")):
        folder = place / f"compiled-{socket.gethostname()}"  # several nodes may share a home
        with suppress(OSError):  # cannot be created: try the next place
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "xla").mkdir(mode=0o700, exist_ok=True)
            private = _is_private(folder) and _is_private(folder / "xla")
            # The folder's name is put in quotes in TF_XLA_FLAGS.
            if private and '"' not in str(folder) and os.access(folder, os.W_OK):
                return folder
    return None


def _is_private(folder: Path) -> bool:
    """Return whether a folder is this user's own and no other user may write to it; False for a link."""
    about = folder.lstat()
    others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not others
