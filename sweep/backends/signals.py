"""Carries a session's stop and share files to machines that do not see its folder, by an object in the store.

The driver and the workers look at files of their own machine, as where all see one folder; here these are copied.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sweep.backends.protocol import Job
from sweep.errors import StoreError
from sweep.store.object_store import ObjectStore

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
    stop = _repeat(send, _SEND_S, "signals to workers")
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

    return _repeat(look, _HEAR_S, "signals from the driver")


def _key(job: Job) -> str:
    return f"signals/{job.session}"


def _shares(job: Job) -> str:
    try:
        return job.share_file.read_text()
    except OSError:
        return ""


def _repeat(turn: Callable[[], None], every_s: float, name: str) -> Callable[[], None]:
    """Call it now and then in a thread of its own, until what is returned is called."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            with suppress(StoreError, OSError, ValueError):  # the store is away, a disk full: the next turn may do
                turn()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop
