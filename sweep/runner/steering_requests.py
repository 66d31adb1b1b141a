"""Passes the requests of `steering` to the process that runs a sweep, as files in its folder, and waits for the answer.

A request that is carried out is an event of the log; one that is refused is answered by a file. The request is deleted
afterwards. If the process is killed in between, the log tells the next one that the request was carried out. So none is
carried out twice, and none is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sweep.analysis.present_spec import Position, PresentSpec
from sweep.errors import (
    InputError,
    Problem,
    RefusedError,
    StoreAway,
    StoreError,
    SweepError,
    UnknownNameError,
)
from sweep.events import SteeringEvent
from sweep.runner import methods, resuming
from sweep.runner.steering import Act, Change, Request, make_event, make_request
from sweep.store import log as store_log
from sweep.store import remote
from sweep.store.disk import replacing, storing
from sweep.store.features import LogCopy
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger, naming
from sweep.store.log import Log

LOOK_S, LOOK_AFAR_S = 0.1, 1.0
_REQUESTS, _ANSWERS = remote.LASTING, "answer-"


class _Answer(msgspec.Struct, frozen=True):
    """The answer to a request that was refused."""

    exit_code: int
    problems: tuple[Problem, ...]


def steer(folder: ResultsFolder, act: Act) -> SteeringEvent:
    """Carry out a person's act on a sweep and return its event, which is in the log.

    If a process runs the sweep, leave a request for it and wait, without a time limit, until it has answered. If no
    process runs it, or none any more, append the event to the log here, and change sweep.json if the act changes the
    sweep file. If the wait is interrupted, the request is withdrawn.

    Raises:
        InputError: if the act is refused, or this version of sweep refuses the stored sweep file.
        StoreError: if the log or sweep.json cannot be read or written, the request cannot be left, or the object store
            is not available.
    """
    request = make_request(act)
    watched = _WatchedLog(folder)
    is_left = False  # whether the request was passed on to a process
    try:
        while True:
            if not folder.is_running():
                with suppress(_Taken):  # a process has begun to run it since: that is asked below
                    return _carry_out_here(folder, request)
            # at first, or once the process has taken the request: did anything come of it?
            if not is_left or not _is_pending(folder, request):
                event = watched.find(request)
                refusal = _find_answer(folder, request)
                if event is not None:
                    return event
                if refusal is not None:
                    raise refusal
                leave_request(folder, request)  # again, if it is gone and nothing has come of it
                is_left = True
            time.sleep(LOOK_S if folder.runs_here else LOOK_AFAR_S)
            with suppress(StoreAway):  # the next attempt may succeed
                folder.refresh()
    finally:
        withdraw_request(folder, request)


class _Taken(Exception):
    """Raised if another process has begun to run the sweep, which must carry out the request then."""


def _carry_out_here(folder: ResultsFolder, request: Request) -> SteeringEvent:
    """Append the event of a request to the log of a sweep that no process runs, and return the event.

    The lock of the sweep is held meanwhile; a process that only appends to the log is waited for, up to a minute.

    Raises:
        _Taken: if a process runs the sweep after all.
        InputError: if the request is refused.
        StoreError: if the log cannot be read or written.
    """
    try:
        with folder.lock(brief=True) as copy:
            return _append(folder, request, copy)
    # either another process holds the lock, or the request itself is refused
    except RefusedError as error:
        if folder.is_running():
            raise _Taken from error
        raise


def _append(folder: ResultsFolder, request: Request, copy: LogCopy | None) -> SteeringEvent:
    """Check a request, append its event to the log, and put a changed sweep file into sweep.json; return the event.

    If the log has the event already, return that and change nothing. ``copy`` uploads the log to the object store; None
    without one. Raises `InputError` if the request is refused. The caller must hold the lock of the sweep.
    """
    position, done = _read_position(folder, request)
    if done is not None:
        return done
    made = make_event(request, position)
    with Log(folder.log, copy=copy) as log:
        log.append([made])
    position.observe(made)
    resuming.write_present_spec(folder, position.present.spec)
    return made


def check_act(folder: ResultsFolder, act: Act) -> None:
    """Raise the error that `steer` would raise for an act, according to the log so far; change nothing.

    It is checked as if no process ran the sweep, so a change that a running process refuses passes here. Only reading
    is tried, so an error of writing the log is not found. Return None if the act would be carried out.
    """
    request = make_request(act)
    position, _ = _read_position(folder, request)
    make_event(request, position)


def _read_position(
    folder: ResultsFolder, request: Request
) -> tuple[Position, SteeringEvent | None]:
    """Return the state of a sweep according to its log, to check a request against, and the request's event.

    The event is None unless the log already has it, as when a process has carried out the request and ended since. The
    state says that no process runs the sweep, whether one does or not. Raises `InputError` if this version of sweep
    refuses the sweep file, and `StoreError` if the log or sweep.json is damaged.
    """
    sweep = resuming.open_sweep(folder)
    ledger = Ledger(keep_epochs=False)
    present = PresentSpec(sweep.first)
    done = None
    for change, _ in ledger.follow(folder.log):
        present.observe(change)
        event = change.event
        if isinstance(event, SteeringEvent) and event.request == request.id:
            done = event
    # whether the searcher can go on in another space; all of sweep's own methods that learn can
    method = sweep.first.search_method
    if (method.learns and not method.is_own) or not isinstance(request.act, Change):
        changes_space = True
    else:  # building the searcher takes a while, so it is done only where the answer matters
        searcher = methods.searcher(sweep.first, sweep.import_folders)
        changes_space = methods.can_change_space(searcher)
    return Position(folder.name, folder.address, ledger, present, changes_space), done


@dataclass(slots=True)
class _WatchedLog:
    """Looks for the event of a request in a log that grows, without reading anything twice."""

    folder: ResultsFolder
    offset: int = 0

    def find(self, request: Request) -> SteeringEvent | None:
        """Return the event of a request if it is in the part of the log that is new since the last call, else None.

        None also if there is no log. The first call reads the whole log. Raises `StoreError` if the log is damaged.
        """
        if not self.folder.log.exists():
            return None
        with naming(self.folder.log):
            for event, end in store_log.read_with_ends(self.folder.log, self.offset):
                self.offset = end
                if isinstance(event, SteeringEvent) and event.request == request.id:
                    return event
        return None


# ---- files


def _file_name(request: Request) -> str:
    """Return the name of the file by which a request is passed on, with its id."""
    return f"{_REQUESTS}{request.id}.json"


def leave_request(folder: ResultsFolder, request: Request) -> None:
    """Pass a request to the process that runs the sweep, as a file in the folder or the store.

    It is left in the object store only if the results are in one and no process of this machine runs the sweep. The
    folder for requests is created if necessary. Raises `StoreError` if the file cannot be written or the store is
    unavailable.
    """
    content = msgspec.json.encode(request)
    if (store := folder.store) is not None and not folder.runs_here:
        remote.ask(store, _file_name(request), content)
        return
    with storing(folder.requests):
        folder.requests.mkdir(exist_ok=True)
        with replacing(folder.requests / _file_name(request)) as aside:
            aside.write_bytes(content)


def _is_pending(folder: ResultsFolder, request: Request) -> bool:
    """Return whether a request still waits, in the results folder or, if the sweep runs elsewhere, in its object store.

    Return True if the store cannot be reached.
    """
    if (folder.requests / _file_name(request)).exists():
        return True
    if (store := folder.store) is None or folder.runs_here:
        return False
    try:
        return remote.is_asked(store, _file_name(request))
    except StoreAway:
        return True


def withdraw_request(folder: ResultsFolder, request: Request) -> None:
    """Delete the files of a request and its answer in the folder, and the request in the object store.

    Errors are ignored.
    """
    for name in (_file_name(request), f"{_ANSWERS}{request.id}.json"):
        with suppress(OSError):  # usually at least one of the two is not there
            (folder.requests / name).unlink()
    if (store := folder.store) is not None:
        with suppress(StoreError):
            remote.withdraw_stored_request(store, _file_name(request))


_ERRORS: dict[int, type[InputError]] = {
    kind.exit_code: kind for kind in (InputError, UnknownNameError, RefusedError)
}


def _find_answer(folder: ResultsFolder, request: Request) -> InputError | None:
    """Return the error with which a request was refused; None if no answer is there, at least not yet.

    An answer in the object store is deleted when it is read; one in the folder stays. None also if the store cannot be
    reached. The error has the problems and the class (`RefusedError`, for example) of the one that was raised there.
    """
    name = f"{_ANSWERS}{request.id}.json"
    content: bytes | None = None
    with suppress(OSError):
        content = (folder.requests / name).read_bytes()
    if content is None and (store := folder.store) is not None and not folder.runs_here:
        with suppress(StoreAway):
            content = remote.take_answer(store, name)
    if content is None:
        return None
    answer = msgspec.json.decode(content, type=_Answer)
    return _ERRORS[answer.exit_code](answer.problems)


# ---- in the process that runs the sweep


def carry_out_requests(folder: ResultsFolder, steer: Callable[[Request], bool]) -> None:
    """Call ``steer`` for each pending request in the folder, the oldest first, and delete the request.

    ``steer`` carries a request out and returns True. If it raises a `SweepError`, the request is refused: the error is
    written as the answer. If it returns False, the log cannot be written; this request and the later ones then stay for
    the next session. Files that are no valid requests are deleted. Raises `StoreError` if an answer cannot be written.
    """
    for path in _list_files(folder, _REQUESTS):
        request = _read(path)
        if request is None:
            continue
        try:
            if not steer(request):
                return
        except SweepError as error:  # also a mistake in an expression
            _answer(folder, request, error)
        # withdrawn; if it stays, its id keeps it from being carried out twice
        with suppress(OSError):
            path.unlink()


def forget_answers(folder: ResultsFolder) -> None:
    """Delete all answers in a folder, which earlier sessions have left and no command waits for; ignore errors."""
    for path in _list_files(folder, _ANSWERS):
        with suppress(OSError):
            path.unlink()


def _list_files(folder: ResultsFolder, prefix: str) -> Iterator[Path]:
    """Yield the paths of the files for requests or answers whose names begin with ``prefix``, the oldest first.

    The age is that of the last change, and files of the same age are ordered by name. Nothing is yielded if the folder
    for requests is missing.
    """
    found: list[tuple[int, str, Path]] = []  # time of the last change, name, path
    with suppress(OSError):  # no request was ever made
        for path in folder.requests.iterdir():
            if path.name.startswith(prefix) and path.suffix == ".json":
                with suppress(OSError):  # withdrawn
                    found.append((path.stat().st_mtime_ns, path.name, path))
    for _, _, path in sorted(found):
        yield path


def _read(path: Path) -> Request | None:
    """Return the request in a file; None if the file is gone, cannot be read, or is no valid request.

    A file that is no valid request is deleted.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Request)
    except OSError:
        return None
    # not written by this release; no later attempt would read it either
    except msgspec.DecodeError:
        with suppress(OSError):
            path.unlink()
        return None


def _answer(folder: ResultsFolder, request: Request, error: SweepError) -> None:
    """Write the error that refuses a request into a file of the folder and the store, for the command that waits.

    Raises `StoreError` if the file cannot be written. If the store is unavailable, the answer is not there, and the
    command asks again.
    """
    if isinstance(error, InputError):
        problems = error.problems
    else:
        problems = (Problem("", str(error)),)
    content = msgspec.json.encode(_Answer(error.exit_code, problems))
    name = f"{_ANSWERS}{request.id}.json"
    with storing(folder.requests), replacing(folder.requests / name) as aside:
        aside.write_bytes(content)
    if (store := folder.store) is not None:
        with suppress(StoreAway):  # whoever waits asks again
            remote.answer(store, name, content)
