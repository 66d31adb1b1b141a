"""Copies a session's stop and share files to its workers through the object store, if machines share no folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from sweep.backends.job import Job
from sweep.errors import StoreError
from sweep.store.disk import replacing
from sweep.store.object_store import ObjectStore, repeat

_SEND_S, _HEAR_S = 0.5, 2.0


@contextmanager
def sending_messages(job: Job, url: str) -> Iterator[None]:
    """Copy the driver's stop and share files into the object store at ``url`` for the workers, while the block runs.

    A thread does this every 0.5 s if they have changed. At the end, the copy in the store is deleted. Failures are
    ignored, so the copy may stay.
    """
    store, key, last = ObjectStore(url), _make_message_key(job), ""

    def send() -> None:
        nonlocal last
        now = json.dumps({"stop": job.stop_file.exists(), "shares": _read_granted_share(job)})
        if now != last:
            store.put(key, now.encode())
            last = now

    job.prepare()  # the driver writes both files into this folder
    stop = repeat(partial(_try_once, send), _SEND_S, "messages to workers")
    try:
        yield
    finally:
        stop()  # first, or the thread could write the copy again
        # the store is away: a copy that stays is read by no other session
        with suppress(StoreError):
            store.delete([key])


def start_receiving_messages(job: Job, url: str) -> Callable[[], None]:
    """Start a thread that copies the driver's stop and share files from the object store at ``url`` every 2 s.

    Returns a function that stops the thread and waits for it. Failures are ignored.
    """
    store, key = ObjectStore(url), _make_message_key(job)

    def look() -> None:
        stored = store.get(key)
        if stored is None:
            return
        message = json.loads(stored[0])
        if message["stop"]:  # this is never taken back: a stopped session ends
            job.stop_file.touch()
        if message["shares"] != _read_granted_share(job):
            with replacing(job.share_file) as aside:
                aside.write_text(message["shares"])

    return repeat(partial(_try_once, look), _HEAR_S, "messages of the driver")


def _try_once(turn: Callable[[], None]) -> None:
    """Call ``turn`` and ignore failures of the store or a disk, because it will be called again."""
    # the store is away or a disk full: the next attempt may succeed
    with suppress(StoreError, OSError, ValueError):
        turn()


def _make_message_key(job: Job) -> str:
    """Return the key of this session's messages in the store."""
    return f"messages/{job.session}"


def _read_granted_share(job: Job) -> str:
    """Return the content of the share file, JSON with the shares of all trials; ``""`` if it cannot be read."""
    try:
        return job.share_file.read_text()
    except OSError:
        return ""
