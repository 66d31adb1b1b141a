"""Stops a sweep early: signals, ``sweep stop`` or a dead Ray request it, and the driver complies."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sweep import interruption
from sweep.errors import RefusedError, StoppedAtOnce, StoreAway, StoreError
from sweep.events import AT_ONCE_ON_REQUEST, ON_REQUEST
from sweep.runner import View, features
from sweep.runner.coordinator import Coordinator
from sweep.store.disk import storing
from sweep.store.features import send_request, withdraw_stored_request
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ended, Interrupted, Ledger

_LOOK_S, _LOOK_AFAR_S, _AGAIN_S = 0.1, 1.0, 2.0
_LEAVING_S = 10.0  # longer than a process takes to end or to create a folder


class Ending:
    """Ends the sessions of one command early, after the running epochs or at once.

    `first` and `second` are called by another thread; `look` and `obey` carry their requests out in the driver's
    thread.
    """

    def __init__(self, folder: ResultsFolder, *, embedded: bool) -> None:
        self._folder = folder
        self._embedded = embedded
        self._signals = interruption.Interruption(self.first, self.second)
        self._view: View | None = None
        self._stop_file: Path | None = None
        self._wanted = False
        self._is_failure_told = False  # that workers cannot be told to stop
        # held while the folder is made or removed, for a correct last message
        self.making = threading.Lock()
        self.lost = ""  # why the session must end at once

    @property
    def asked(self) -> bool:
        """Whether the user has asked to stop, by a signal or `sweep stop`; if so, the sweep counts as interrupted."""
        return self._wanted or self._signals.asked

    @contextmanager
    def heeded(self, before: str) -> Iterator[None]:
        """Handle signals inside the block: `first` is called at the first one, and `second` at each later one.

        They are called by another thread. If `leave` was called in the block, wait at its end, up to 10 s, for the
        process to end, unless it is the user's own. Raises `InterruptedByUser` with the message ``before`` if a signal
        came before the block.
        """
        with interruption.handle_signals(self.first, self.second, breaks=self._embedded) as signals:
            self._signals = signals
            signals.check(before)
            try:
                yield
            finally:
                # what the process prints if a signal ends it later; once the sweep exists, it can be resumed
                if self._folder.info.exists():
                    signals.last_words = f"interrupted; {self._again}"
                if self.lost and not self._embedded:  # another thread ends this process
                    time.sleep(_LEAVING_S)

    @contextmanager
    def of_session(self, view: View, stop_file: Path) -> Iterator[None]:
        """Show messages in ``view``, and stop workers by creating ``stop_file``, inside the block.

        Before and after it, signals show no message and stop no workers.
        """
        self._view, self._stop_file = view, stop_file
        try:
            yield
        finally:
            self._view = self._stop_file = None

    def first(self) -> None:
        """Make workers stop after the running epochs, and tell the user. Called by a thread at the first signal.

        Do nothing outside of `of_session`.
        """
        self.tell_workers()  # first, because a terminal may accept no output
        if self._view is not None:
            self._view.say("stopping after the running epochs; once more to stop at once")

    def tell_workers(self) -> bool:
        """Create the file that makes workers save and interrupt their trials after the present epoch.

        Return whether that worked; the first time that it does not, the user is told. Outside of `of_session`, do
        nothing and return True.
        """
        stop_file, view = self._stop_file, self._view  # another thread may end the session
        if stop_file is None:
            return True
        try:
            stop_file.touch()
        except OSError as error:  # the folder has become read-only, or the disk is full
            if view is not None and not self._is_failure_told:
                self._is_failure_told = True
                where = f"{stop_file.parent} cannot be written ({error.strerror})"
                view.say(
                    f"{where}: running trials stop without being saved, and go on later from their last checkpoints"
                )
            return False
        return True

    def second(self) -> None:
        """Stop the sweep at once, by `leave`. Called by a thread at the second signal and each later one."""
        self.leave("stopped at once")

    def leave(self, why: str) -> None:
        """End this process at once with the message ``why``, or the session if the process is the user's own.

        All reported epochs are logged, and a local Ray dies with its driver. The view is closed, the message also says
        how to go on, and the exit code is 130. If the folder is being made or removed, that is waited for, up to 10 s.
        In a user's own process, return; the driver's thread raises `StoppedAtOnce` when it next calls `obey`. Later
        calls have no effect.
        """
        if self.lost:
            return
        self.lost = why
        if self._embedded:  # this is the user's own process
            return
        # never released: until this process ends, the folder stays as it is
        self.making.acquire(timeout=_LEAVING_S)
        if self._folder.info.exists():
            again = self._again
        else:
            again = "start it again"
        interruption.exit_now(f"{why}; {again}", self._close_view)

    def _close_view(self) -> None:
        """Close the view of the session, if it has one."""
        if self._view:
            self._view.close()

    def check(self, before: str) -> None:
        """Raise `InterruptedByUser` with the message ``before`` if a signal has come; called before the session begins.

        Before that, install the handlers of signals again, since Ray replaces them when it starts.
        """
        self._signals.restore()
        self._signals.check(before)

    def look(self, coordinator: Coordinator) -> None:
        """Stop the coordinator if a signal has come; running trials are interrupted after their present epoch.

        Requests of other processes do not count here; `obey` carries them out.
        """
        if self._signals.asked:
            coordinator.stop("interrupted", asked=True)

    def obey(self, coordinator: Coordinator) -> None:
        """Carry out the requests of other processes: to stop the sweep or a trial, and the requests of `steering`.

        They are files in the folder, which are deleted. A request to stop the sweep at once ends this process, unless
        it is the user's own.

        Raises:
            StoppedAtOnce: in the user's own process, if such a request has come or `leave` was called before.
            StoreError: if the answer to a refused request cannot be written.
        """
        for request in take_requests(self._folder):
            if request.trial is not None:
                coordinator.stop_trial(request.trial, now=request.now)
            elif request.now:
                if not self.lost:  # the first request is enough; `sweep stop` repeats it
                    coordinator.leave(AT_ONCE_ON_REQUEST)  # which logs it
                self.leave("stopped at once")
            elif not coordinator.stopping:
                self._wanted = True  # the user has asked to stop, as by a signal
                if self._view is not None:
                    self._view.say("stopping after the running epochs, as `sweep stop` asks")
                coordinator.stop(ON_REQUEST, asked=True)
        features.carry_out_requests(self._folder, coordinator.steer)
        if self.lost and self._embedded:
            raise StoppedAtOnce(self.lost)

    @property
    def _again(self) -> str:
        """A line for the user that says how to resume the sweep."""
        return f"go on with: {self._folder.to_resume}"


def stop_sweep(results: Path, sweep: str, trial: int | None, *, now: bool) -> str:
    """Ask the process that runs a sweep to stop it or one of its trials; return the result in words.

    ``trial`` is the number of the trial, None for the whole sweep. Waits, without a time limit, until that has
    happened, or the sweep has ended. With ``now``, running trials stop at once instead of after their present epochs.
    A trial that has not started is waited for, if one with a higher number has.

    Raises:
        UnknownNameError: if there is no such sweep or trial.
        RefusedError: if no process runs the sweep, or the trial has ended already.
        StoreError: if the request cannot be written, the log cannot be read, or the object store is not available.
    """
    folder = ResultsFolder.open(results, sweep)
    if not folder.is_running():
        hint = f"see python -m sweep status {folder.address}"
        raise RefusedError.one(folder.name, "is not running, there is nothing to stop", hint)
    request = StopRequest(trial, now)
    if trial is None:
        with _repeating_request(folder, request) as ask:
            while folder.is_running():
                ask()
        return f"{folder.name} is stopped; go on with: {folder.to_resume}"
    ledger, offset = _read_trial_states(folder, trial)
    with _repeating_request(folder, request) as ask:
        while folder.is_running():
            # what the log says since the last turn
            for change, end_byte in ledger.follow(folder.log, offset):
                offset = end_byte
                match change:
                    # a trial that is retried or pauses goes on in this session, so the request still waits
                    case Interrupted(stopped, end) | Ended(stopped, end) if (
                        stopped.number == trial and not end.again and not end.pauses
                    ):
                        reason = f": {stopped.reason}" if stopped.reason else ""
                        return f"trial {trial} is {stopped.status.value}{reason}"
                    case _:
                        pass
            ask()
    return f"{folder.name} has ended, and trial {trial} with it"


@contextmanager
def _repeating_request(folder: ResultsFolder, request: StopRequest) -> Iterator[Callable[[], None]]:
    """Yield a function to call in a loop: it leaves the request, waits a moment and refreshes the folder.

    It leaves the request at the first call, and again every `_AGAIN_S` seconds, because a session that begins deletes
    earlier requests. It raises `StoreError` if the request cannot be left or the folder cannot be refreshed, but
    ignores a store that is not available at the refresh. The request is withdrawn after the block.
    """
    asked_at: float | None = None  # when the request was last left; None before

    def ask() -> None:
        nonlocal asked_at
        if asked_at is None or time.monotonic() - asked_at > _AGAIN_S:
            leave_request(folder, request)
            asked_at = time.monotonic()
        time.sleep(_LOOK_S if folder.runs_here else _LOOK_AFAR_S)
        with suppress(StoreAway):  # the next attempt may succeed
            folder.refresh()

    try:
        yield ask
    finally:
        withdraw_request(folder, request)


def _read_trial_states(folder: ResultsFolder, trial: int) -> tuple[Ledger, int]:
    """Return the state of all trials, and the byte at which the log ends, if ``trial`` can be stopped.

    That is also the case if ``trial`` has not started, but one with a higher number has.

    Raises:
        UnknownNameError: if ``trial`` is above the highest number that has started.
        RefusedError: if the trial has ended.
        StoreError: if the log is damaged.
    """
    ledger = Ledger(keep_epochs=False)
    offset = 0
    for _, end in ledger.follow(folder.log):
        offset = end
    # trials below the highest may start out of order, so it may still start
    if trial > max(ledger.trials, default=-1):
        raise folder.make_no_trial_error(trial, ledger.trials)
    if trial in ledger.trials and ledger.trials[trial].ended is not None:
        raise RefusedError.one(
            "--trial", f"trial {trial} has ended already: {ledger.trials[trial].status.value}"
        )
    return ledger, offset


_NAME = re.compile(r"stop(?:-trial-(\d+))?(-now)?")


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to end a sweep or one of its trials, after the present epoch or at once."""

    trial: int | None = None  # None: the whole sweep
    now: bool = False

    @property
    def file_name(self) -> str:
        """Name of the file that stands for the request in the folder or the store, such as ``stop-trial-3-now``."""
        if self.trial is None:
            which = ""
        else:
            which = f"-trial-{self.trial}"
        return f"stop{which}{'-now' if self.now else ''}"


def leave_request(folder: ResultsFolder, request: StopRequest) -> None:
    """Pass a request to the process that runs the sweep, as an empty file in the folder or the store.

    It is left in the object store only if the results are in one and no process of this machine runs the sweep. Raises
    `StoreError` if the file cannot be written or the store is unavailable.
    """
    if not folder.runs_here and send_request(folder.store, request.file_name):
        return
    with storing(folder.requests):
        folder.requests.mkdir(exist_ok=True)
        (folder.requests / request.file_name).touch()


def withdraw_request(folder: ResultsFolder, request: StopRequest) -> None:
    """Delete a request in the folder and the object store if no process has taken it yet; errors are ignored."""
    with suppress(OSError):
        (folder.requests / request.file_name).unlink()
    with suppress(StoreError):
        withdraw_stored_request(folder.store, request.file_name)


def take_requests(folder: ResultsFolder) -> list[StopRequest]:
    """Return the pending requests in the folder to stop the sweep or a trial, and delete their files.

    They are in the order of the file names. Other requests in the folder stay. Return [] if the folder for requests is
    missing. A request whose file cannot be deleted, as when it was withdrawn meanwhile, is left out.
    """
    found: list[StopRequest] = []
    try:
        paths = sorted(folder.requests.iterdir())
    except OSError:  # no request was ever made
        return found
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        try:
            path.unlink()
        except OSError:  # it was withdrawn meanwhile
            continue
        number, now = match.groups()  # None where the name lacks the number or "-now"
        found.append(StopRequest(int(number) if number else None, now is not None))
    return found
