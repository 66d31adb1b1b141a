"""Carries a session's stop and share files to machines that do not see its folder, by an object in the store.

The driver and the workers look at files of their own machine, as where all see one folder; here these are copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from sweep.backends.protocol import Job
from sweep.errors import StoreError
from sweep.store.object_store import ObjectStore, repeat

_SEND_S, _HEAR_S = 0.5, 2.0


@contextmanager
def sent(job: Job) -> Iterator[None]:
    """Let workers on all machines see what the driver leaves in its folder."""
    if job.store is None:
        yield
        return
    store, key, last = ObjectStore(job.store), _key(job), ""

    def send() -> None:
        nonlocal last
        now = json.dumps({"stop": job.stop_file.exists(), "shares": _shares(job)})
        if now != last:
            store.put(key, now.encode())
            last = now

    job.prepare()
    stop = repeat(partial(_if_it_can, send), _SEND_S, "messages to workers")
    try:
        yield
    finally:
        stop()
        with suppress(StoreError):
            store.delete([key])


def hear(job: Job) -> Callable[[], None]:
    """Let this worker see what the driver has left in its own folder; what is returned ends that."""
    if job.store is None:
        return lambda: None
    store, key = ObjectStore(job.store), _key(job)

    def look() -> None:
        found = store.get(key)
        if found is None:
            return
        told = json.loads(found[0])
        if told["stop"]:
            job.stop_file.touch()
        if told["shares"] != _shares(job):
            aside = job.share_file.with_suffix(".heard")
            aside.write_text(told["shares"])
            aside.replace(job.share_file)

    return repeat(partial(_if_it_can, look), _HEAR_S, "messages of the driver")


def _if_it_can(turn: Callable[[], None]) -> None:
    with suppress(StoreError, OSError, ValueError):  # the store is away, a disk full: the next turn may do
        turn()


def _key(job: Job) -> str:
    return f"messages/{job.session}"


def _shares(job: Job) -> str:
    try:
        return job.share_file.read_text()
    except OSError:
        return ""
