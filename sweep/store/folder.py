"""The results folder of a sweep: the paths in it, its creation, and who may write to it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import InputError, RefusedError, StoreError, UnknownNameError
from sweep.events import convert_to_json_types
from sweep.store import features, sweep_info
from sweep.store.disk import get_process_name, removed_if_it_fails, replacing, storing
from sweep.store.features import LogCopy, is_url, store_of
from sweep.store.locks import HAS_LOCKS, is_locked, lock
from sweep.store.sweep_info import Fields, Submission, SweepInfo
from sweep.text import counted, did_you_mean, moment

if TYPE_CHECKING:
    from sweep.store.features import ObjectStore

LOCK_ATTEMPTS = 3  # 50 ms apart, because `is_running` holds the lock for a moment
BRIEF_LOCK_S = 60.0  # longer than a command takes that only appends an event to the log
# beginning of the lock file's text if its holder will release the lock soon
_BRIEF = "a command of "


class _Inside:
    """Descriptor for the path of a file or folder with this name in a sweep's results folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: ResultsFolder, kind: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """The folder ``results/<sweep>/``. Only the writer of the log, holding `lock`, changes its content."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the sweep, which is the name of its folder."""
        return self.path.absolute().name

    @property
    def called(self) -> str:
        """Argument that names the sweep in commands: its name if it is in ``results``, otherwise its path or URL.

        An absolute path of the folder ``results`` is not recognized.
        """
        if self.path.parent == Path("results"):
            return self.name
        return self.place

    @property
    def address(self) -> str:
        """`called`, quoted for a shell."""
        return shlex.quote(self.called)

    @property
    def to_resume(self) -> str:
        """Command line that resumes the sweep, on the cluster if its latest session was submitted to one.

        Reads sweep.json for that. If that cannot be read, it is the command line for this machine.
        """
        submission = self.submission
        if submission is None:
            return f"python -m sweep resume {self.address}"
        name = shlex.quote(f"{submission.user}/{self.name}")
        return f"python -m sweep resume {name} --address {shlex.quote(submission.address)}"

    @property
    def submission(self) -> Submission | None:
        """The cluster to which the latest session of the sweep was submitted.

        None if it was not submitted, or if sweep.json cannot be read.
        """
        try:
            return self.read_info().submission
        except StoreError:  # whoever needs the file says what is wrong with it
            return None

    def make_no_trial_error(self, trial: int, there: Collection[int]) -> UnknownNameError:
        """Return the error that the sweep has no trial ``trial``; ``there`` has the numbers of its trials.

        Of these, the message only says the smallest and the largest. ``there`` may be empty.
        """
        if there:
            known = f"it has trials {min(there)} to {max(there)}"
        else:
            known = "no trial was started yet"
        return UnknownNameError.one(self.name, f"has no trial {trial}", known)

    def make_none_completed_error(self) -> RefusedError:
        """Return the error that no trial of the sweep has completed."""
        return RefusedError.one(
            self.name, "no trial has completed", f"see python -m sweep compare {self.address}"
        )

    @property
    def place(self) -> str:
        """Location of the results in messages: the path as given, or the URL in an object store."""
        if self.store is None:
            return str(self.path)
        return self.store.url

    @property
    def store(self) -> ObjectStore | None:
        """The sweep's place in an object store, if this folder is its local copy; otherwise None."""
        return store_of(self.path)

    spec = _Inside("spec.yaml")  # the sweep file as given
    info = _Inside("sweep.json")  # see `sweep_info`
    log = _Inside("log.jsonl")
    trials = _Inside("trials.parquet")
    metrics = _Inside("metrics.parquet")
    configurations = _Inside("configurations.parquet")
    checkpoints = _Inside("checkpoints")
    tensorboard = _Inside("tensorboard")
    requests = _Inside("requests")  # requests of other processes to the one that runs the sweep
    report = _Inside("report.html")
    debug_log = _Inside("debug.log")  # start-up output of Ray and TensorFlow

    @classmethod
    def create(cls, results_dir: Path, name: str, spec_text: str, info: Fields) -> ResultsFolder:
        """Create the folder of a new sweep, completely or not at all, and return it.

        It gets the file spec.yaml with ``spec_text``, sweep.json with ``name`` and the fields of ``info``, and an empty
        folder for checkpoints. If ``results_dir``, which is created if necessary, is the local copy of an object store,
        the sweep is created in the store too. If the store has a sweep of this name already, that one is downloaded.

        Raises:
            InputError: for an invalid name or an unwritable location.
            RefusedError: if the name is taken, even if only by a folder with other files. An empty folder is used.
            StoreError: if the disk is full or the store is unavailable.
        """
        _check_folder_name(name)
        folder = cls(results_dir / name)
        root = store_of(results_dir)
        if root is None:
            store = None
        else:
            store = root.below(name)
        # so that `_check_free` sees a sweep of another machine
        features.update_copy(folder.path, store)
        # The folder is filled under a hidden name, so that nobody finds an incomplete sweep.
        aside = cls(results_dir / f".{name}.{get_process_name()}")
        try:
            results_dir.mkdir(parents=True, exist_ok=True)
            _check_free(folder)
            aside.path.mkdir()
        except OSError as error:  # `_check_free` raises another error if it refuses the folder
            if results_dir.is_file():
                why = "is a file, expected a folder"
            else:
                why = f"cannot be written ({error.strerror})"
            raise InputError.one(
                str(results_dir), why, "give another folder with --results DIR"
            ) from error
        try:
            with removed_if_it_fails(aside.path), storing(folder.path):
                aside.checkpoints.mkdir()
                # its line ends as given
                aside.spec.write_text(spec_text, encoding="utf-8", newline="")
                aside.write_info(SweepInfo(folder.info, {"name": name, **info}))
                features.publish_sweep(aside.path, folder.path, store)
        except BaseException:
            _check_free(folder)  # raises the better message if another process was faster
            raise
        return folder

    @classmethod
    def exists(cls, results_dir: Path, name: str) -> bool:
        """Return whether a sweep named ``name`` is in the folder or, if that is a local copy, in its object store.

        A folder without a sweep.json does not count. If the sweep is in the store, its local copy is updated. A copy of
        a sweep that the store no longer has is renamed. Raises `StoreError` if the store is unavailable.
        """
        root = store_of(results_dir)
        if root is not None and features.update_copy(results_dir / name, root.below(name)):
            return True
        return is_any_file(cls(results_dir / name).info)

    @classmethod
    def open(cls, results_dir: Path, name_or_path: str | Path) -> ResultsFolder:
        """Return the folder of an existing sweep, given by its name, its path or its URL in an object store.

        A name is looked for in ``results_dir``, and then as a folder in the current folder. If ``results_dir`` is the
        local copy of a store, it is looked for only in that store. A text of several parts is a path. Paths and URLs do
        not depend on ``results_dir``. If the sweep is in a store, its local copy is updated. Raises `UnknownNameError`
        if there is no such sweep, or its folder has no sweep.json, `InputError` for an invalid URL, and `StoreError` if
        the store is unavailable or this user may not look into the folder.
        """
        if is_url(name_or_path):
            root, _, name = str(name_or_path).rstrip("/").rpartition("/")
            if not is_url(root):
                hint = "write it as in s3://bucket/prefix/sweep"
                raise UnknownNameError.one(
                    str(name_or_path), "is a bucket, expected a sweep in one", hint
                )
            results_dir = features.find_local_folder(root, "SWEEP")
            name_or_path = name
        given = Path(name_or_path)
        is_name = len(given.parts) == 1  # any other text is a path
        if is_name and (store := store_of(results_dir)) is not None:
            if features.update_copy(results_dir / given, store.below(given.name)):
                return cls(results_dir / given)
            siblings, _ = store.folder()
            hint = did_you_mean(given.name, siblings) or "start one: python -m sweep run FILE"
            raise UnknownNameError.one(str(given), f"no such sweep in {store.url}", hint)
        features.update_copy(given, store_of(given))  # a path may lead to a local copy
        candidates = [given]
        if is_name:
            candidates.insert(0, results_dir / given)
        for path in candidates:
            if _is_sweep(path):
                return cls(path)
        raise _make_unknown_sweep_error(results_dir, given)

    def read_info(self) -> SweepInfo:
        """Return the content of sweep.json. Raises `StoreError` if it is missing, unreadable or damaged."""
        with storing(self.info):
            text = self.info.read_bytes()
        return sweep_info.parse_sweep_info(self.info, text)

    def write_info(self, info: SweepInfo) -> None:
        """Replace sweep.json, also in the object store; readers see the old or the new one, even after a loss of power.

        Raises `StoreError` if it cannot be written or uploaded. If only the upload fails, the local file is the new
        one.
        """
        text = json.dumps(convert_to_json_types(info.content), indent=2)
        with replacing(self.info) as path, path.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        if (store := self.store) is not None:
            store.put(self.info.name, self.info.read_bytes())

    def remove(self) -> None:
        """Delete the folder with all results without any check, so that its name is free again.

        The caller must have checked that nothing was trained. The sweep stays in its object store, without an error, if
        its log has events there, a process runs it or the store is unavailable. Raises `OSError` if the folder cannot
        be deleted.
        """
        features.withdraw_sweep(self.path, self.store)
        shutil.rmtree(self.path)

    def refresh(self) -> None:
        """Update this folder from the object store that it is a copy of; do nothing for an ordinary folder.

        Nothing is updated while a process of this machine runs the sweep. The folder is renamed if the store no longer
        has the sweep. Raises `StoreError` if the update fails.
        """
        features.update_copy(self.path, self.store)

    @contextmanager
    def lock(self, sync_s: float = 2.0, *, brief: bool = False) -> Iterator[LogCopy | None]:
        """Hold the lock of the sweep inside the block, and its lease in the store, so that no other process runs it.

        The lock ends with the process. A second `lock` is refused in this process too. Yields the object that uploads
        the log to the object store, every ``sync_s`` seconds; None if there is no store. A local copy is updated first.
        ``brief`` says that the block only appends to the log, so that other processes that want the lock wait for it up
        to a minute instead of giving up.

        Raises RefusedError naming the process that holds the lock, InputError on a system without locks, and StoreError
        if the file system has no locks, the log is missing but not the tables that were made of it, or the store is
        unavailable, at the beginning or at the end of the block.
        """
        require_locks()
        with storing(self.path / "lock"):
            # Not truncated yet: until the lock is held, the text names the process that holds it.
            file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._await_lock(file)
            with storing(self.path / "lock"):
                holder = f"process {os.getpid()} on {socket.gethostname()}\n"
                if brief:
                    holder = _BRIEF + holder
                os.ftruncate(file, 0)
                os.pwrite(file, holder.encode(), 0)
            with features.copying_log(self.path, self.store, sync_s) as copy:
                self._require_log_of_tables()
                yield copy
        finally:
            os.close(file)  # which releases the lock

    def _require_log_of_tables(self) -> None:
        """Raise `StoreError` if the folder has tables but no log.

        A new log would be begun, and its tables would replace these. Such a folder is a copy without the log, or was
        downloaded from an object store; it can be read.
        """
        if self.trials.exists() and not self.log.exists():
            what = f"is missing, without which {self.trials.name} would be replaced by that of a sweep begun anew"
            hint = "put the log back, or remove the tables to begin anew"
            if (self.path / "log").is_dir():  # a store has the log in segments in such a folder
                hint = "the folder comes from an object store: go on with it there"
            raise StoreError(f"{self.log}: {what}; {hint}")

    def _await_lock(self, file: int) -> None:
        """Lock the open lock file ``file``, waiting up to a minute for a process that only appends to the log.

        Raises RefusedError naming the process that still has the lock then, or after three attempts, in a tenth of a
        second, if that process runs the sweep. Raises `StoreError` if the file system has no locks.
        """
        since = time.monotonic()
        attempts = 0
        while not lock(file):
            attempts += 1
            is_worth_waiting = (
                self._owner().startswith(_BRIEF) and time.monotonic() - since < BRIEF_LOCK_S
            )
            if attempts >= LOCK_ATTEMPTS and not is_worth_waiting:
                what = f"the sweep is being run by {self._owner()}"
                raise RefusedError.one(str(self.path), what, "stop that one first")
            time.sleep(0.05)

    def is_running(self) -> bool:
        """Return whether a living process holds the sweep's lock, on this machine or, with a store, on any.

        It may be this process, or a command that only appends to the log. A process of another machine counts until
        60 s after it renewed the lease in the store. Raises `StoreError` if the store is unavailable or the lock cannot
        be tested.
        """
        return self.runs_here or features.is_leased(self.store)

    @property
    def driven_since(self) -> float | None:
        """Time at which the process of this machine that runs the sweep took its lock, in seconds since 1970.

        None if no process of this machine holds the lock.
        """
        if not self.runs_here:
            return None
        return (self.path / "lock").stat().st_mtime

    @property
    def runs_here(self) -> bool:
        """True if a living process of this machine, perhaps this one, holds the lock of the sweep."""
        return is_locked(self.path / "lock")

    def _owner(self) -> str:
        """Return the text of the lock file, which names the holder of the lock; ``another process`` if it is empty."""
        return (self.path / "lock").read_text(errors="replace").strip() or "another process"


def _make_unknown_sweep_error(results_dir: Path, given: Path) -> UnknownNameError:
    """Return the error that there is no sweep ``given``, a name or path, with the most similar name in ``results_dir``.

    It says so if ``given`` is a folder without a sweep.json. Raises `StoreError` if ``results_dir`` cannot be read.
    """
    names = []
    for folder in folders(results_dir):
        if is_any_file(folder.info):
            names.append(folder.name)
    hint = did_you_mean(given.name, names) or "start one: python -m sweep run FILE"
    path = results_dir / given
    if path.is_dir():
        return UnknownNameError.one(str(path), "holds no sweep (no sweep.json in it)", hint)
    return UnknownNameError.one(str(given), f"no such sweep in {results_dir}", hint)


def require_locks() -> None:
    """Raise `InputError` on systems without file locks, such as Windows, where sweeps can only be looked at."""
    if not HAS_LOCKS:
        raise InputError.one(
            "run", "this system cannot run sweeps, only look at them", "use Linux, macOS or WSL"
        )


def folders(results_dir: Path) -> list[ResultsFolder]:
    """Return the folders of all sweeps in ``results_dir``, sorted by name; empty if it does not exist.

    A sweep's folder has a sweep.json, a log or trials.parquet, so that damaged ones are found too; hidden folders, and
    those that this user may not look into, are left out. If ``results_dir`` is the local copy of an object store, it is
    updated first. Raises `StoreError` if that fails or the folder cannot be read.
    """
    if not results_dir.is_dir():
        return []
    features.update_copies(results_dir)
    with storing(results_dir):
        sweeps = []
        for path in sorted(results_dir.iterdir()):
            folder = ResultsFolder(path)
            is_hidden = path.name[0] == "."
            if not is_hidden and is_any_file(folder.info, folder.log, folder.trials):
                sweeps.append(folder)
        return sweeps


def is_any_file(*files: Path) -> bool:
    """Return whether at least one of the paths is a file; False if this user may not look into their folder."""
    with suppress(PermissionError):  # a folder of another user may be closed to this one
        return any(file.is_file() for file in files)
    return False


def _is_sweep(folder: Path) -> bool:
    """Return whether a folder has a sweep.json. Raises `StoreError` if this user may not look into the folder."""
    try:
        return (folder / "sweep.json").is_file()
    except PermissionError as error:
        raise StoreError(f"{folder}: may not be read by this user") from error


def name_uniquely(found: Iterable[ResultsFolder]) -> dict[str, ResultsFolder]:
    """Return sweeps by unique names: the sweep's name, or its path or URL if several have that name.

    They keep the order of ``found``. A folder that occurs there several times, or by several paths, occurs once in the
    result, by its last path.
    """
    distinct = {folder.path.resolve(): folder for folder in found}.values()
    counts = Counter(folder.name for folder in distinct)
    named: dict[str, ResultsFolder] = {}
    for folder in distinct:
        if counts[folder.name] > 1:
            name = folder.place
        else:
            name = folder.name
        named[name] = folder
    return named


def _check_folder_name(name: str) -> None:
    """Raise `InputError` unless ``name`` can be the name of a sweep, and so of its results folder.

    It must be printable, of 1 to 200 bytes, without slashes and backslashes, without spaces at its ends, and not begin
    with ``.`` or ``-``.
    """
    # Most file systems allow 255 bytes; `ResultsFolder.create` and others add to the name for hidden folders.
    expected = "expected a plain folder name: no / or \\, not begun with . or -, at most 200 bytes"
    if (
        not name
        or name[0] in ".-"
        or name != name.strip()
        or not name.isprintable()
        or set(name) & {"/", "\\"}
        or len(name.encode(errors="replace")) > 200
    ):
        raise InputError.one(
            "name", f"{name!r} cannot name a results folder, {expected}", "use --name OTHER"
        )


def list_begun_sweeps(results_dir: Path) -> list[ResultsFolder]:
    """Return the sweeps in a folder that have a log and a sweep.json, by the last change of the log, latest first.

    The list is empty if ``results_dir`` does not exist. If ``results_dir`` is the local copy of an object store, it is
    updated first. Raises `StoreError` if that fails.
    """
    logged = []
    for folder in folders(results_dir):
        if folder.log.exists() and folder.info.exists():
            logged.append(folder)
    return sorted(logged, key=lambda folder: folder.log.stat().st_mtime, reverse=True)


def free_name(results_dir: Path, name: str) -> str:
    """Return ``name``, or the first of ``NAME-2``, ``NAME-3`` and so on that is free, here and in the store.

    A file or folder of that name takes it, even if it is no sweep. The name is not reserved. Local copies of sweeps
    that have one of these names in the store are updated. Raises `StoreError` if the store is unavailable.
    """
    candidate = name
    number = 1
    while (results_dir / candidate).exists() or ResultsFolder.exists(results_dir, candidate):
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _check_free(folder: ResultsFolder) -> None:
    """Raise `RefusedError` unless ``folder`` is absent or an empty folder, so that a new sweep can use it.

    Raises OSError if the folder cannot be read.
    """
    other = "choose another name with --name OTHER"
    try:
        content = sorted(item.name for item in folder.path.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise RefusedError.one(
            str(folder.path), "is a file, expected a new folder", other
        ) from error
    if folder.info.exists():
        hint = f"{other}, or go on with it: {folder.to_resume}"
        raise RefusedError.one(
            str(folder.path), f"holds a sweep already ({_summarize_folder(folder)})", hint
        )
    if content:
        raise RefusedError.one(
            str(folder.path), f"exists and holds other files ({content[0]} ...)", other
        )


def _summarize_folder(folder: ResultsFolder) -> str:
    """Return in words how many trials the log of a folder has and when it was last written, without decoding it.

    If there is no log, it is 0 trials and the time of sweep.json, which must exist.
    """
    if folder.log.exists():
        last_written = folder.log
    else:
        last_written = folder.info  # the sweep was made, but has not begun
    trials = 0
    if folder.log.exists():
        with folder.log.open("rb") as lines:
            trials = sum(line.startswith(b'{"event":"trial_started"') for line in lines)
    return f"{counted(trials, 'trial')}, last run {moment(last_written.stat().st_mtime)}"
