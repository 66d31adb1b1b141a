"""A sweep in Ray's dashboard and metrics: its page among the jobs, its figures, and the token for access.

The dashboard shows custom text only for submitted jobs: metadata and a status message, read from a record in Ray's
key-value store. A sweep that was not submitted as a job writes such a record and names it in its metadata. A submitted
sweep adds its text to the job's record. Ray's Prometheus endpoints publish the figures under ``ray_sweep_...``.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.metrics import Gauge

from sweep.backends import SweepStatus
from sweep.backends.ray_tune import ray_private_api
from sweep.errors import in_short
from sweep.text import counted, encodable, roughly, score, trials_named

POINTER = "job_submission_id"  # key in a job's metadata that names its record
SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # environment variable that Ray sets in submitted jobs
PREFIX, SPACE = "_ray_internal_job_info_", "job"  # of the records' keys
EVERY_S = 2.0  # between writes of a changed record
ANYWAY_S = 10.0  # between writes of any record: the dashboard may overwrite it
PATIENCE_S = 3.0  # for writing the last record

RUNNING, SUCCEEDED, STOPPED, FAILED = "RUNNING", "SUCCEEDED", "STOPPED", "FAILED"


def make_job_metadata(sweep: str, session: str, say: Callable[[str], None]) -> dict[str, str]:
    """Return the metadata with which to connect to Ray, so that the sweep has a page in the dashboard.

    The keys are ``job_submission_id``, which names the page's record, ``sweep`` and ``user``. It is empty if this Ray
    cannot show such a page; ``say`` then gets a line.
    """
    if not ray_private_api.is_usable(ray_private_api.JOB_PAGE, say):
        return {}
    # only for people: the session makes the record's name unique
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", sweep)[:60]
    return {POINTER: f"sweep-{name}-{session[:6]}", "sweep": sweep, "user": get_user()}


def get_user() -> str:
    """Return the user in whose name sweeps run: ``SWEEP_USER``, or else the name or the number of the account.

    It has at most 40 characters; those other than ASCII letters, digits, ``_``, ``.`` and ``-`` become ``-``.
    """
    try:
        name = os.environ.get("SWEEP_USER") or getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        name = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:40]


class JobPage:
    """The page of a sweep in Ray's dashboard. A thread writes it, because Ray may not respond."""

    def __init__(self, about: Mapping[str, str], *, shared: bool) -> None:
        """Write the page of a driver that is connected with the metadata ``about``, and start its thread.

        ``about`` is a result of `make_job_metadata` that is not empty. If other drivers use the same Ray (``shared``),
        the thread also marks lost sweeps as failed, once. Errors of Ray are written to the debug log.
        """
        submitted = _get_submitted_name()
        # a submitted job has a record of Ray's, to which this sweep only adds
        self._is_submitted_job = submitted is not None
        self._key = f"{PREFIX}{submitted or about[POINTER]}"
        self._about = {name: value for name, value in about.items() if name != POINTER}
        self._about["job_id"] = ray.get_runtime_context().get_job_id()
        self._began_ms = int(time.time() * 1000)
        self._record: dict[str, Any] = {}  # what the thread is to write
        self._last_change = 0.0  # when it was set, by the monotonic clock
        self._ended = False  # its status is an end
        self._due = threading.Event()  # it is still to be written
        self._is_closed = threading.Event()
        self.show(RUNNING, "the sweep begins", {})
        self._thread = threading.Thread(
            target=self._work, args=(shared,), name="sweep-job-page", daemon=True
        )
        with _ignoring_errors():
            self._write()  # now, because the dashboard already looks for the record that the driver's metadata names
            self._thread.start()

    def show(self, status: str, message: str, words: Mapping[str, str]) -> None:
        """Let the thread show a status on the page, within about two seconds; `close` writes the last one at once.

        ``status`` is one of the constants `RUNNING`, `SUCCEEDED`, `STOPPED` and `FAILED`, and ``words`` are added to
        the page's metadata. What was shown before is written again only every 10 s.
        """
        record = {
            "status": status,
            "message": message,
            "metadata": {**self._about, **words},
            "entrypoint": _describe_command(),
            "start_time": self._began_ms,
            "end_time": None if status == RUNNING else int(time.time() * 1000),
            "runtime_env_json": "{}",
        }
        now = time.monotonic()
        self._ended = status != RUNNING
        # An unchanged record is written again at times, because the dashboard may have overwritten it.
        if self._ended or record != self._record or now - self._last_change > ANYWAY_S:
            self._record, self._last_change = record, now
            self._due.set()

    def close(self) -> None:
        """Write the last status, wait up to 3 s for that, and end the thread.

        The status is "stopped" unless `show` was called with another end.
        """
        if not self._ended:
            self.show(STOPPED, "the sweep was stopped", {})
        self._is_closed.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)

    def _work(self, shared: bool) -> None:
        """Write the page whenever it has changed, at most every two seconds, until it is closed; runs in a thread.

        If the Ray is ``shared``, mark lost sweeps as failed before. The first error ends the thread.
        """
        with _ignoring_errors():
            if shared:
                mark_lost_sweeps_failed()
            while True:
                self._due.wait()
                self._due.clear()  # before the record is read, so that a change during the writing is written next
                self._write()
                if self._is_closed.wait(EVERY_S):
                    self._write()  # the last status may have come since
                    return

    def _write(self) -> None:
        """Write the record of the page; in a submitted job's record, only the message and metadata change.

        A submitted job that is not running keeps its message, and one without a record is left alone.
        """
        record = self._record
        if self._is_submitted_job:
            found = _read_record(self._key)
            if found is None:
                return
            theirs = found.get("metadata") or {}
            # Ray only says that it is running; later, Ray's message tells how the job has ended.
            message = record["message"] if found.get("status") == RUNNING else found.get("message")
            record = {**found, "message": message, "metadata": {**theirs, **record["metadata"]}}
        _put_record(self._key, record)


def describe_status(status: SweepStatus) -> tuple[str, dict[str, str]]:
    """Return the status of a sweep as (one line of text, metadata of its page by name).

    The metadata have ``objective``, ``progress``, ``trials`` and ``running``, and ``best`` and ``left`` if known.
    """
    if status.total is None:
        trials = counted(status.finished, "trial")
    else:
        trials = f"{status.finished} of {counted(status.total, 'trial')}"
    counts = [f"{count} {state}" for state, count in status.trials.items() if count]
    metadata = {
        "objective": f"{status.metric}, {status.goal}",
        "progress": f"{trials}, {counted(status.epochs, 'epoch')}",
        "trials": ", ".join(counts) or "none",
        "running": str(status.trials.get("running", 0)),
    }
    line = trials
    if status.best is not None:
        best = f"{status.metric} {score(status.best)} ({trials_named(status.best_trials)})"
        metadata["best"] = best
        line += f"; best {best}"
    if status.left_s is not None:
        metadata["left"] = roughly(status.left_s)
        line += f"; {metadata['left']} left"
    return line, metadata


@dataclass(frozen=True, slots=True)
class LiveSweep:
    """A sweep whose driver is alive."""

    user: str
    sweep: str
    job: str  # Ray's id of the driver
    running: int  # number of running trials


class LiveDrivers:
    """Lists the sweeps of a cluster whose drivers are alive; pages of ended sweeps are read only once."""

    def __init__(self) -> None:
        self._ended_keys: set[bytes] = set()  # of the pages of sweeps that have ended

    def look(self) -> tuple[LiveSweep, ...]:
        """Return the sweeps that run with a connected driver, this driver's own included, sorted by user and name."""
        found = []
        for key, record, is_connected in _list_job_records(self._ended_keys):
            about = record["metadata"]
            if record.get("status") != RUNNING or not is_connected:
                # An ended sweep stays ended, so its page is not read again.
                if "job_id" in about:  # otherwise its driver has not connected yet
                    self._ended_keys.add(key)
                continue
            running = int(about.get("running", 0))
            found.append(
                LiveSweep(
                    str(about.get("user", "")), str(about["sweep"]), str(about["job_id"]), running
                )
            )
        return tuple(sorted(found, key=lambda one: (one.user, one.sweep, one.job)))


def mark_lost_sweeps_failed() -> None:
    """Mark the pages of all running sweeps whose drivers are gone as failed, in Ray's key-value store.

    Sweeps submitted as jobs are left out: Ray marks them itself, and their drivers are also disconnected before they
    start.
    """
    for key, record, is_connected in _list_job_records():
        is_submitted = "file" in record["metadata"]  # only submitted jobs have this key
        if record.get("status") == RUNNING and not is_connected and not is_submitted:
            message = f"its driver was killed; before that: {record.get('message', '')}"
            _put_record(
                key,
                {
                    **record,
                    "status": FAILED,
                    "message": message,
                    "end_time": int(time.time() * 1000),
                },
            )


def _list_job_records(
    known: Collection[bytes] = (),
) -> Iterator[tuple[bytes, dict[str, Any], bool]]:
    """Yield (key, record, whether its driver is connected) for the job record of each sweep, running or ended.

    Records whose keys are in ``known``, and those without a ``sweep`` in their metadata, are left out.
    """
    connected = {
        job["JobID"]
        for job in ray_private_api.import_private("ray._private.state").jobs()
        if not job["IsDead"]
    }
    kv = ray_private_api.import_private("ray.experimental.internal_kv")
    for key in kv._internal_kv_list(f"{PREFIX}sweep-", namespace=SPACE):
        record = None if key in known else _read_record(key)  # None too if it was just deleted
        about = (record or {}).get("metadata") or {}
        if record and "sweep" in about:
            yield key, record, about.get("job_id") in connected


@contextmanager
def _ignoring_errors() -> Iterator[None]:
    """Write any error in the block to the debug log instead of raising it, because no trial needs the page."""
    try:
        yield
    # whatever fails in Ray: the page stays as it is, and no trial needs it
    except Exception as error:
        sys.stderr.write(f"Ray's job page is not kept: {in_short(error)}\n")


def _read_record(key: str | bytes) -> dict[str, Any] | None:
    """Return the record of a page in Ray's key-value store; None if there is none or it is no mapping.

    Raises ValueError if it is no JSON.
    """
    text = ray_private_api.import_private("ray.experimental.internal_kv")._internal_kv_get(
        key, namespace=SPACE
    )
    found = json.loads(text) if text else None
    return found if isinstance(found, dict) else None


def _put_record(key: str | bytes, record: Mapping[str, Any]) -> None:
    """Write the record of a page into Ray's key-value store."""
    kv = ray_private_api.import_private("ray.experimental.internal_kv")
    kv._internal_kv_put(key, json.dumps(record), namespace=SPACE)


def _get_submitted_name() -> str | None:
    """Return the id of the Ray job that this process was submitted as, by its environment; None if it was not."""
    try:
        config = json.loads(os.environ.get(SUBMITTED, "{}"))
    except ValueError:
        return None
    return config.get("metadata", {}).get(POINTER) if isinstance(config, dict) else None


def _describe_command() -> str:
    """Return the command line of this process, with ``python -m sweep`` or only the name of the program in front.

    Arguments are quoted as in a shell.
    """
    program, *given = sys.argv
    name = "python -m sweep" if Path(program).name == "__main__.py" else Path(program).name
    return " ".join([name, *map(shlex.quote, given)])


GAUGES = {
    "sweep_trials": ("trials in each state", ("state",)),
    "sweep_trials_planned": ("trials that there will be, where that is known", ()),
    "sweep_epochs_trained": ("epochs trained so far, in all sessions", ()),
    "sweep_epochs_per_second": ("epochs per second, over the last ten seconds", ()),
    "sweep_best_objective": (
        "the best value of the objective of all trials that completed",
        ("metric", "goal"),
    ),
    "sweep_seconds_left": ("an estimate of the seconds until the sweep ends", ()),
    "sweep_workers": ("trials that can run at once", ()),
    "sweep_workers_busy": ("trials that run", ()),
    "sweep_utilization": ("share of the workers that are busy, of 1", ()),
}
"""Description of each gauge, and its tags besides ``sweep`` and ``session``."""


class DashboardGauges:
    """Sets the gauges of a sweep's session in Ray's metrics."""

    def __init__(self, sweep: str, session: str) -> None:
        self._tags = {"sweep": convert_to_ascii(sweep), "session": convert_to_ascii(session)}
        self._gauges: dict[str, Any] = {
            name: Gauge(name, description, tag_keys=(*self._tags, *more))
            for name, (description, more) in GAUGES.items()
        }

    def set(self, status: SweepStatus, busy: int, slots: int) -> None:
        """Publish the status of the sweep; ``busy`` trials run and ``slots`` can run at once.

        Gauges whose value is not known now keep their last one.
        """
        for state, count in status.trials.items():
            self._set("sweep_trials", count, state=state)
        self._set("sweep_trials_planned", status.total)
        self._set("sweep_epochs_trained", status.epochs)
        self._set("sweep_epochs_per_second", status.epochs_per_s)
        self._set(
            "sweep_best_objective",
            status.best,
            metric=convert_to_ascii(status.metric),
            goal=status.goal,
        )
        self._set("sweep_seconds_left", status.left_s)
        self._set("sweep_workers", slots)
        self._set("sweep_workers_busy", busy)
        self._set("sweep_utilization", min(busy / slots, 1.0) if slots else None)

    def _set(self, name: str, value: float | None, **tags: str) -> None:
        """Set a gauge, unless its value is not known."""
        if value is not None:
            self._gauges[name].set(value, {**self._tags, **tags})


def convert_to_ascii(text: str) -> str:
    """Return a text with each non-ASCII character as an escape sequence, because Ray refuses others in tags."""
    return encodable(text, "ascii")


_MODE, _OTHERS = 0o600, 0o077
_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # where Ray looks first, before the file


def protect_token(folder: Path | None = None) -> None:
    """Make Ray use a token file that only its owner can read; Ray itself writes one that everybody can read.

    The file is ``auth_token`` in ``folder``, by default ``.ray`` in the home folder. Does nothing if the environment
    names a token. If the file cannot be written or read, as in a container, a new token is set in the environment of
    this process.
    """
    if any(name in os.environ for name in _TOKENS):
        return
    try:
        _write_token((folder or Path.home() / ".ray") / "auth_token")
    except (OSError, RuntimeError):  # RuntimeError: the home folder is unknown
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _write_token(path: Path) -> None:
    """Write a token to the file ``path`` that only its owner can read; keep an existing one.

    The mode of an existing file is restricted to its owner if that is possible.

    Raises OSError if the file cannot be written or read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with suppress(OSError):  # in a read-only folder
            if path.stat().st_mode & _OTHERS:
                path.chmod(_MODE)
        path.read_bytes()  # only to raise the error if it cannot be read
        return
    # Written aside and then linked, so that no other process ever reads half a token.
    aside = path.with_name(f".auth_token.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):  # another Ray was faster: use its token
            path.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)


def describe_address(url: str) -> str:
    """Return the line that says where the dashboard is, at ``url`` without ``http://``.

    If ``RAY_AUTH_MODE`` is ``token``, it also says how to get the token for access.
    """
    line = f"Ray dashboard: http://{url}"
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return line
    if "RAY_AUTH_TOKEN" in os.environ:
        return f"{line} (it asks for a token: RAY_AUTH_TOKEN in the environment of this process)"
    # the path of the program if it is not on the search path, as in an environment that is not activated
    program = "ray" if shutil.which("ray") else str(Path(sys.executable).with_name("ray"))
    return f"{line} (it asks for a token: {program} get-auth-token)"
