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

    A thread does this every 0.5 s if they have changed. At the end, the copy in the store is deleted. Failures of the
    store are ignored, so the copy may stay. Creates the job's folder on this machine, and raises `StoreError` or
    OSError if that fails.
    """
    store = ObjectStore(url)
    key = _make_message_key(job)
    sent = ""  # the message that is in the store

    def send() -> None:
        nonlocal sent
        message = json.dumps({"stop": job.stop_file.exists(), "shares": _read_shares(job)})
        if message != sent:
            store.put(key, message.encode())
            sent = message

    job.prepare()  # the driver writes both files into this folder
    stop_sending = repeat(partial(_try_once, send), _SEND_S, "messages to workers")
    try:
        yield
    finally:
        stop_sending()  # first, or the thread could write the copy again
        # if the store is unavailable, the copy stays; no other session reads it
        with suppress(StoreError):
            store.delete([key])


def start_receiving_messages(job: Job, url: str) -> Callable[[], None]:
    """Start a thread that copies the driver's stop and share files from the object store at ``url`` every 2 s.

    The files are written on this machine, in the job's folder, which must exist. Returns a function that stops the
    thread and waits for it. Failures are ignored.
    """
    store = ObjectStore(url)
    key = _make_message_key(job)

    def look() -> None:
        stored = store.get(key)
        if stored is None:  # nothing was sent yet, or the session has ended
            return
        content, _ = stored
        message = json.loads(content)
        if message["stop"]:  # this is never taken back: a stopped session ends
            job.stop_file.touch()
        if message["shares"] != _read_shares(job):
            with replacing(job.share_file) as aside:
                aside.write_text(message["shares"])

    return repeat(partial(_try_once, look), _HEAR_S, "messages of the driver")


def _try_once(turn: Callable[[], None]) -> None:
    """Call ``turn`` and ignore a StoreError, OSError or ValueError of it, because it will be called again."""
    # the store is unavailable or a disk full: the next attempt may succeed
    with suppress(StoreError, OSError, ValueError):
        turn()


def _make_message_key(job: Job) -> str:
    """Return the key of this session's messages in the store."""
    return f"messages/{job.session}"


def _read_shares(job: Job) -> str:
    """Return the content of the share file, JSON with new GPU shares by trial; ``""`` if there is none to be read."""
    try:
        return job.share_file.read_text()
    except OSError:
        return ""
