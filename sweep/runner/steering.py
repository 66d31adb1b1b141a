"""What a person does with a sweep: requests, and the events that they become.

The process that runs a sweep carries requests out (`steering_requests`). If there is none, the command itself does.
Both check a request against what the log says so far, so that it becomes the same event, or is refused.
"""

from __future__ import annotations

import getpass
import time
import uuid
from typing import TypeAlias

from msgspec import Struct

from sweep.errors import UnknownNameError
from sweep.events import NoteWritten, SteeringEvent, TrialStarred
from sweep.store.ledger import Ledger


class Note(Struct, frozen=True, tag=True):
    """Write a note on a trial, or on the sweep; an empty text removes it."""

    text: str
    trial: int | None = None


class Star(Struct, frozen=True, tag=True):
    """Give a trial a star, or take it away."""

    trial: int
    starred: bool = True


Act: TypeAlias = Note | Star
"""What a person may do."""


class Request(Struct, frozen=True):
    """An act of a person, identified so that it is carried out once."""

    id: str
    by: str  # name of the user
    act: Act


def make_request(act: Act) -> Request:
    """Return a new request by the present user."""
    return Request(uuid.uuid4().hex[:12], _find_user(), act)


def _find_user() -> str:
    """Return the name of the user; "" if the system does not know it, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def make_event(request: Request, sweep: str, ledger: Ledger) -> SteeringEvent:
    """Return the event that carries out a request on a sweep whose log is folded in ``ledger``.

    Raises:
        UnknownNameError: if the request is about a trial that has not started.
    """
    now = time.time()
    match request.act:
        case Note(text, trial):
            _check_trial(trial, sweep, ledger)
            return NoteWritten(trial=trial, text=text, request=request.id, by=request.by, time=now)
        case Star(trial, starred):
            _check_trial(trial, sweep, ledger)
            return TrialStarred(trial=trial, starred=starred, request=request.id, by=request.by, time=now)


def _check_trial(trial: int | None, sweep: str, ledger: Ledger) -> None:
    if trial is None or trial in ledger.trials:
        return
    known = "no trial was started yet"
    if ledger.trials:
        known = f"it has trials {min(ledger.trials)} to {max(ledger.trials)}"
    raise UnknownNameError.one(sweep, f"has no trial {trial}", known)
