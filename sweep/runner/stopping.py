"""``sweep stop``: what it asks of the process that runs a sweep, and what that process makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.errors import InputError
from sweep.events import Status, TrialEnded, TrialStarted
from sweep.runner.coordinator import UNWANTED, Coordinator
from sweep.store import log, requests
from sweep.store.folder import ResultsFolder
from sweep.store.requests import StopRequest

_LOOK_S, _AGAIN_S = 0.1, 2.0


def obey(folder: ResultsFolder, coordinator: Coordinator, asked: Callable[[], None], leave: Callable[[], None]) -> None:
    """Do what others ask; ``asked`` is told that the sweep ends, ``leave`` ends it at once."""
    for request in requests.take(folder):
        if request.trial is not None:
            coordinator.stop_trial(request.trial, now=request.now)
        elif request.now:
            leave()
        elif not coordinator.stopping:
            asked()
            coordinator.stop(UNWANTED)


def stop(results: Path, sweep: str, trial: int | None, *, now: bool) -> str:
    """Stop a sweep or one of its trials, and wait until it is; what became of it.

    Raises `InputError` where there is nothing to stop.
    """
    folder = ResultsFolder.open(results, sweep)
    if not folder.is_running():
        hint = f"see python -m sweep status {folder.address}"
        raise InputError.one(folder.name, "is not running, there is nothing to stop", hint)
    request = StopRequest(trial, now)
    if trial is None:
        with _asking(folder, request) as ask:
            while folder.is_running():
                ask()
        return f"{folder.name} is stopped; go on with: python -m sweep resume {folder.address}"
    offset = _position(folder, trial)
    with _asking(folder, request) as ask:
        while folder.is_running():
            events, offset = log.read_from(folder.log, offset)
            for event in events:
                if isinstance(event, TrialEnded) and event.trial == trial and not event.again:
                    return f"trial {trial} is {event.status.value}{f': {event.reason}' if event.reason else ''}"
            ask()
    return f"{folder.name} has ended, and trial {trial} with it"


@contextmanager
def _asking(folder: ResultsFolder, request: StopRequest) -> Iterator[Callable[[], None]]:
    """A function that asks again now and then: a session that begins forgets what was asked before it."""
    asked_at: float | None = None

    def ask() -> None:
        nonlocal asked_at
        if asked_at is None or time.monotonic() - asked_at > _AGAIN_S:
            requests.ask(folder, request)
            asked_at = time.monotonic()
        time.sleep(_LOOK_S)

    try:
        yield ask
    finally:
        requests.withdraw(folder, request)


def _position(folder: ResultsFolder, trial: int) -> int:
    """The end of the log, in which the trial has begun and not ended. Raises `InputError` if it is not so."""
    started, ended, offset = -1, None, 0
    for event, end in log.read_with_ends(folder.log) if folder.log.exists() else ():
        offset = end
        match event:
            case TrialStarted():
                started = max(started, event.trial)
            case TrialEnded(status=status) if event.trial == trial:
                ended = None if status is Status.INTERRUPTED else status
    if trial > started:
        raise InputError.one("--trial", f"there is no trial {trial} yet", f"trials so far: {started + 1}, from 0")
    if ended is not None:
        raise InputError.one("--trial", f"trial {trial} has ended already: {ended.value}")
    return offset
