"""Functions for workers that import what results in an object store need, only if the results are in one.

| feature | takes part | module |
| --- | --- | --- |
| checkpoints in a store | the results folder is the copy of a place in a store | `stored_checkpoints` |
| the driver's messages | the same | `messages` |

See `sweep.runner.features` for the other features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.backends.job import Job
from sweep.store.features import store_of

if TYPE_CHECKING:
    from sweep.backends.stored_checkpoints import Sender as Sender
    from sweep.backends.stored_checkpoints import StoredCheckpoints


def find_stored_checkpoints(results_folder: Path) -> StoredCheckpoints | None:
    """Return the checkpoints in the store of which ``results_folder`` is the local copy; None for an ordinary folder.

    The store is not accessed yet.
    """
    store = store_of(results_folder)
    if store is None:
        return None
    from sweep.backends.stored_checkpoints import StoredCheckpoints

    return StoredCheckpoints(store)


def make_sender(job: Job, folder: Path, trial: int, unusable: Iterable[str]) -> Sender | None:
    """Return a `Sender` for the checkpoints in ``folder``, a trial's local folder; None if results are in no store.

    It uploads in a thread when its `send` is called. After the first upload, the checkpoints with the names
    ``unusable``, which could not be restored, are deleted in the store.
    """
    if job.store is None:
        return None
    from sweep.backends import stored_checkpoints

    return stored_checkpoints.make_sender(job, folder, trial, unusable)


def start_receiving_messages(job: Job) -> Callable[[], None]:
    """Start a thread that receives the driver's messages through an object store; return a function that stops it.

    The messages become the stop file and the share file of the job on this machine. If the results are in no store,
    nothing is started, and the returned function does nothing.
    """
    if job.store is None:
        return lambda: None
    from sweep.backends import messages

    return messages.start_receiving_messages(job, job.store)
