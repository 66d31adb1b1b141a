"""Functions for results that may be in an object store; they import the modules for it only if the results are there.

See `sweep.runner.features` for other features that are imported only when they are used.

| feature | takes part | module |
| --- | --- | --- |
| object stores | a folder has a file `.store` with the URL of a place in a store, or a URL is given | `object_store` |
| the copy of a sweep in a store, and its log there | the same | `remote` |
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sweep.store.object_store import ObjectStore as ObjectStore

STAND_IN = ".store"  # file with the URL, in a folder that is the local copy of a place in a store

AWAY_S = 300.0
"""Seconds without an answer from the store after which the session ends; until then training continues."""

_URL = re.compile(r"([a-z0-9+]+)://", re.IGNORECASE)


def is_url(text: object) -> bool:
    """Return whether ``text`` begins with a scheme, known or not, and ``://``: the URL of a place in a store."""
    return _URL.match(str(text)) is not None


def find_local_folder(results: str | Path, where: str = "--results") -> Path:
    """Return the results folder ``results`` as a path; for a URL, the folder of its local copy.

    A folder is not created, and need not exist. The folder of a copy is created and marked if necessary, but its
    content is not updated. ``where`` names the option or argument in error messages. Raises `InputError` for an invalid
    URL or one of an unknown kind of store, or if no folder for copies is known, and `StoreError` if the folder cannot
    be created.
    """
    if not is_url(results):
        return Path(results)
    from sweep.store import remote

    return remote.local(results, where)


def store_of(folder: Path) -> ObjectStore | None:
    """Return the place in an object store that a folder is the local copy of; None for an ordinary or missing folder.

    The folder is a copy if it has the file ``.store``, which has the URL. The store is not asked.
    """
    try:
        url = (folder / STAND_IN).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    from sweep.store.object_store import ObjectStore

    return ObjectStore(url)


def mark_copy(folder: Path, url: str | None) -> None:
    """Mark ``folder`` as the local copy of the place ``url`` in an object store, and create it if necessary.

    It replaces the mark of another place. Does nothing if ``url`` is None. Raises `OSError` if the folder cannot be
    created, and `StoreError` if the mark cannot be written.
    """
    if url is None:
        return
    from sweep.store.object_store import ObjectStore, mark_as_copy

    mark_as_copy(folder, ObjectStore(url))


class LogCopy(Protocol):
    """Uploads a log to an object store while it is written."""

    def check(self) -> None:
        """Raise `StoreError` if nothing more may be written, as when another process has taken over the sweep."""

    def appended(self, end: int, *, wait: bool) -> None:
        """Set the byte ``end`` up to which the log is complete and is to be uploaded, in the background.

        With ``wait``, return only when it is uploaded. Raises `StoreError` if that fails.
        """


def copying_log(
    folder: Path, store: ObjectStore | None, sync_s: float
) -> AbstractContextManager[LogCopy | None]:
    """Return a context manager that holds a sweep's lease and uploads its log every ``sync_s`` seconds.

    The caller must hold the lock of ``folder``, the local copy, which is updated first. The context manager yields the
    `LogCopy`; its end uploads the rest of the log and the other files, but no checkpoints. It raises `RefusedError` if
    another process has the lease, and `StoreError` if the store is unavailable, at the beginning or at the end. Without
    a store, it yields None and does nothing.
    """
    if store is None:
        return nullcontext()
    from sweep.store import remote

    return remote.Writer(folder, store, sync_s).open()


def update_copy(folder: Path, store: ObjectStore | None) -> bool:
    """Update the local copy ``folder`` of a sweep; return whether ``store`` has the sweep, False if ``store`` is None.

    The copy is renamed if the store does not have the sweep. While a process of this machine, perhaps this one, runs
    the sweep, the copy is left as it is, and True is returned. Raises `StoreError` if the store is unavailable.
    """
    if store is None:
        return False
    from sweep.store import remote

    return remote.pull(folder, store)


def update_copies(results_dir: Path) -> None:
    """Update the local copies in ``results_dir`` of all sweeps in its store; do nothing if it is an ordinary folder.

    Sweeps of the store that have no copy yet get one. Copies of sweeps that the store no longer has are renamed, so
    that they do not count as sweeps any more. Raises `StoreError` if the store is unavailable.
    """
    store = store_of(results_dir)
    if store is None:
        return
    from sweep.store import remote

    remote.pull_all(results_dir, store)


def publish_sweep(aside: Path, folder: Path, store: ObjectStore | None) -> None:
    """Rename ``aside``, the complete folder of a new sweep, to ``folder``; with a store, create the sweep there before.

    Raises `RefusedError` if another process has taken the name in the store, whose sweep is then downloaded to
    ``folder``. Raises `StoreError` if the store is unavailable, and `OSError` if ``folder`` is not empty.
    """
    if store is None:
        aside.rename(folder)
        return
    from sweep.store import remote

    remote.publish_sweep(aside, folder, store)


def withdraw_sweep(folder: Path, store: ObjectStore | None) -> None:
    """Delete a sweep from its object store, but not its folder; do nothing without a store.

    If it is running, its log has events or the store is unavailable, nothing is deleted and no error raised.
    """
    if store is None:
        return
    from sweep.store import remote

    remote.withdraw(folder, store)


def is_leased(store: ObjectStore | None) -> bool:
    """Return whether a process on any machine holds the lease of the sweep in ``store``; False if ``store`` is None.

    A lease that was not renewed for 60 s, or whose process is known to have ended, does not count. Raises
    `StoreError` if the store is unavailable or the lease is unreadable.
    """
    if store is None:
        return False
    from sweep.store import object_store

    return object_store.find_valid_lease(store) is not None


def send_request(store: ObjectStore | None, request: str) -> bool:
    """Put a request into the store for the process that runs the sweep; return whether ``store`` is not None.

    ``request`` is the name of the request. Nothing waits for a process to receive it. Raises `StoreError` if the store
    is unavailable.
    """
    if store is None:
        return False
    from sweep.store import remote

    remote.ask(store, request)
    return True


def withdraw_stored_request(store: ObjectStore | None, request: str) -> None:
    """Delete the request named ``request`` from the store; do nothing without a store, or if it is not there any more.

    A process that runs the sweep removes a request when it receives it. Raises `StoreError` if the store is
    unavailable.
    """
    if store is None:
        return
    from sweep.store import remote

    remote.withdraw_stored_request(store, request)
