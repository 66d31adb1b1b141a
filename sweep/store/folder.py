"""The folder of one sweep: where each thing lies, how it comes into being, and who may write to it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sweep.errors import InputError
from sweep.events import plain
from sweep.store import (
    HAS_LOCKS,
    is_locked,
    lock,
    object_store,
    process,
    remote,
    removed_if_it_fails,
    replacing,
    storing,
    sweep_info,
)
from sweep.store.object_store import ObjectStore, is_url, stand_for, store_of
from sweep.store.sweep_info import Fields, SweepInfo
from sweep.text import counted, did_you_mean, moment

LOCK_ATTEMPTS = 3  # 50 ms apart: a look by `is_running` holds the lock for an instant


class _Inside:
    """The path of something in a sweep's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: ResultsFolder, kind: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """``results/<sweep>/``; only the writer of the log, under `lock`, changes what is in it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.absolute().name

    @property
    def called(self) -> str:
        """What opens it: the name, or the path where it is not in ``results/``."""
        return self.name if self.path.parent == Path("results") else self.place

    @property
    def address(self) -> str:
        """What to type after ``resume`` and its kin."""
        return shlex.quote(self.called)

    @property
    def to_resume(self) -> str:
        """What to type to go on with the sweep."""
        return f"python -m sweep resume {self.address}"

    def no_trial(self, trial: int, there: Collection[int]) -> InputError:
        """Return that no such trial is ``there``."""
        known = f"it has trials {min(there)} to {max(there)}" if there else "no trial was started yet"
        return InputError.one(self.name, f"has no trial {trial}", known)

    def none_completed(self) -> InputError:
        """Return that no trial has completed."""
        return InputError.one(self.name, "no trial has completed", f"see python -m sweep compare {self.address}")

    @property
    def place(self) -> str:
        """Where the results are, for people: the path, or the URL in an object store."""
        return str(self.path) if self.store is None else self.store.url

    @property
    def store(self) -> ObjectStore | None:
        """The place in an object store of which this folder is the copy on this machine, if it is one."""
        return store_of(self.path)

    spec = _Inside("spec.yaml")  # the sweep file, as given
    info = _Inside("sweep.json")  # what was resolved from it, and on what it ran
    log = _Inside("log.jsonl")
    trials = _Inside("trials.parquet")
    metrics = _Inside("metrics.parquet")
    configurations = _Inside("configurations.parquet")
    checkpoints = _Inside("checkpoints")
    tensorboard = _Inside("tensorboard")
    requests = _Inside("requests")  # what other processes ask of the one that runs the sweep
    report = _Inside("report.html")
    debug_log = _Inside("debug.log")  # where the start-up noise of Ray and TensorFlow goes

    @classmethod
    def create(cls, results_dir: Path, name: str, spec_text: str, info: Fields) -> ResultsFolder:
        """Make the folder of a new sweep, whole or not at all; ``info`` becomes sweep.json, after ``name``.

        Raises `InputError` for a name that is no folder name or is taken, and for an unwritable place.
        """
        _check_name(name)
        folder = cls(results_dir / name)
        root = store_of(results_dir)
        store = None if root is None else root.below(name)
        if store is not None:
            remote.pull(folder.path, store)
        aside = cls(results_dir / f".{name}.{process()}")
        try:
            results_dir.mkdir(parents=True, exist_ok=True)
            _check_free(folder)
            aside.path.mkdir()
        except OSError as error:
            is_file = results_dir.is_file()
            why = "is a file, expected a folder" if is_file else f"cannot be written ({error.strerror})"
            raise InputError.one(str(results_dir), why, "give another folder with --results DIR") from error
        try:
            with removed_if_it_fails(aside.path), storing(folder.path):
                aside.checkpoints.mkdir()
                aside.spec.write_text(spec_text, encoding="utf-8", newline="")
                aside.write_info(SweepInfo(folder.info, {"name": name, **info}))
                if store is None:
                    aside.path.rename(folder.path)
                    return folder
                stand_for(aside.path, store)
                with remote.alone(folder.path):
                    if claimed := remote.claim(aside.path, store):
                        aside.path.rename(folder.path)
                if not claimed:
                    remote.pull(folder.path, store)
                    raise InputError.one(store.url, "was made by another process just now", "use --name OTHER")
        except BaseException:
            _check_free(folder)  # the better message, where another process was faster
            raise
        return folder

    @classmethod
    def exists(cls, results_dir: Path, name: str) -> bool:
        """Return whether there is a sweep of this name, here or in the object store for which the folder stands."""
        root = store_of(results_dir)
        there = root is not None and remote.pull(results_dir / name, root.below(name))
        return there or cls(results_dir / name).info.is_file()

    @classmethod
    def open(cls, results_dir: Path, name_or_path: str | Path) -> ResultsFolder:
        """Return the folder of an existing sweep, by its name, its path or its URL in an object store.

        With a store it is the copy on this machine, brought up to date. Raises `InputError` if there is none.
        """
        if is_url(name_or_path):
            root, _, name_or_path = str(name_or_path).rstrip("/").rpartition("/")
            results_dir = remote.local(root, "SWEEP")
        given = Path(name_or_path)
        if (store := store_of(results_dir)) is not None and len(given.parts) == 1:
            if remote.pull(results_dir / given, store.below(given.name)):
                return cls(results_dir / given)
            siblings, _ = store.folder()
            hint = did_you_mean(given.name, siblings) or "start one: python -m sweep run FILE"
            raise InputError.one(str(given), f"no such sweep in {store.url}", hint)
        if (store := store_of(given)) is not None:
            remote.pull(given, store)
        for path in (results_dir / given, given) if len(given.parts) == 1 else (given,):
            if (path / "sweep.json").is_file():
                return cls(path)
        siblings = [folder.name for folder in folders(results_dir) if folder.info.is_file()]
        hint = did_you_mean(given.name, siblings) or "start one: python -m sweep run FILE"
        if (results_dir / given).is_dir():
            raise InputError.one(str(results_dir / given), "holds no sweep (no sweep.json in it)", hint)
        raise InputError.one(str(given), f"no such sweep in {results_dir}", hint)

    def read_info(self) -> SweepInfo:
        """Return what sweep.json holds. Raises `StoreError` if it cannot be read."""
        with storing(self.info):
            text = self.info.read_bytes()
        return sweep_info.parse(self.info, text)

    def write_info(self, info: SweepInfo) -> None:
        """Replace sweep.json; a reader sees the old or the new one, also after a loss of power."""
        text = json.dumps(plain(info.content), indent=2)
        with replacing(self.info) as path, path.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        if (store := self.store) is not None:
            store.put(self.info.name, self.info.read_bytes())

    def remove(self) -> None:
        """Delete a sweep of which nothing was trained, so that its name is free again."""
        if (store := self.store) is not None:
            remote.withdraw(self.path, store)
        shutil.rmtree(self.path)

    def refresh(self) -> None:
        """Bring the copy of a sweep in an object store up to date, as `open` does; of any other nothing."""
        if (store := self.store) is not None:
            remote.pull(self.path, store)

    @contextmanager
    def lock(self, sync_s: float = 2.0) -> Iterator[remote.Writer | None]:
        """Be the only process that runs this sweep; the lock ends with its owner, however that ends.

        With an object store, yield what sends the log there, at most ``sync_s`` behind. Raises `InputError` that names
        the process which holds the lock, or on a system without such locks.
        """
        require_locks()
        with storing(self.path / "lock"):
            file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            for attempt in range(LOCK_ATTEMPTS):
                if lock(file):
                    break
                if attempt + 1 == LOCK_ATTEMPTS:
                    raise InputError.one(
                        str(self.path), f"the sweep is being run by {self._owner()}", "stop that one first"
                    )
                time.sleep(0.05)
            with storing(self.path / "lock"):
                os.ftruncate(file, 0)
                os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            if (store := self.store) is None:
                yield None
            else:
                with remote.Writer(self.path, store, sync_s).open() as writer:
                    yield writer
        finally:
            os.close(file)

    def is_running(self) -> bool:
        """Return whether a living process runs the sweep, of this machine or, with a store, of any."""
        return self.runs_here or (self.store is not None and object_store.lease_holder(self.store) is not None)

    @property
    def runs_here(self) -> bool:
        """Whether a living process of this machine runs the sweep."""
        return is_locked(self.path / "lock")

    def _owner(self) -> str:
        return (self.path / "lock").read_text(errors="replace").strip() or "another process"


def require_locks() -> None:
    """Raise `InputError` on a system on which sweeps cannot be run."""
    if not HAS_LOCKS:
        raise InputError.one("run", "this system cannot run sweeps, only look at them", "use Linux, macOS or WSL")


def folders(results_dir: Path) -> list[ResultsFolder]:
    """Everything in ``results_dir`` that is or was meant to be a sweep, by name; none if it is absent.

    Where it stands for an object store, what is in that, brought up to date.
    """
    if not results_dir.is_dir():
        return []
    if (store := store_of(results_dir)) is not None:
        remote.pull_all(results_dir, store)
    with storing(results_dir):
        found = [ResultsFolder(path) for path in sorted(results_dir.iterdir()) if path.name[0] != "."]
        return [item for item in found if item.info.exists() or item.log.exists() or item.trials.exists()]


def told_apart(found: Iterable[ResultsFolder]) -> dict[str, ResultsFolder]:
    """Return sweeps by name, or by their places where several have one name.

    Each is there once, however often and by whichever paths it was given.
    """
    each = {folder.path.resolve(): folder for folder in found}.values()
    names = Counter(folder.name for folder in each)
    return {folder.place if names[folder.name] > 1 else folder.name: folder for folder in each}


def _check_name(name: str) -> None:
    expected = "expected a plain folder name: no / or \\, not begun with . or -, at most 200 bytes"
    if (
        not name
        or name[0] in ".-"
        or name != name.strip()
        or not name.isprintable()
        or set(name) & {"/", "\\"}
        or len(name.encode(errors="replace")) > 200
    ):
        raise InputError.one("name", f"{name!r} cannot name a results folder, {expected}", "use --name OTHER")


def newest(results_dir: Path) -> list[ResultsFolder]:
    """Return the sweeps in a folder that have begun, the one that was last written first."""
    logged = [folder for folder in folders(results_dir) if folder.log.exists() and folder.info.exists()]
    return sorted(logged, key=lambda folder: folder.log.stat().st_mtime, reverse=True)


def free_name(results_dir: Path, name: str) -> str:
    """Return a name, or the first of ``NAME-2``, ``NAME-3`` and so on that is not taken, here or in the store."""
    numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(n for n in numbered if not (results_dir / n).exists() and not ResultsFolder.exists(results_dir, n))


def _check_free(folder: ResultsFolder) -> None:
    """Raise `InputError` unless a new sweep can have this folder: it is absent or empty."""
    other = "choose another name with --name OTHER"
    try:
        content = sorted(item.name for item in folder.path.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise InputError.one(str(folder.path), "is a file, expected a new folder", other) from error
    if folder.info.exists():
        hint = f"{other}, or go on with it: {folder.to_resume}"
        raise InputError.one(str(folder.path), f"holds a sweep already ({_summary(folder)})", hint)
    if content:
        raise InputError.one(str(folder.path), f"exists and holds other files ({content[0]} ...)", other)


def _summary(folder: ResultsFolder) -> str:
    """Return what a taken folder holds, cheaply: how many trials, and when it last ran."""
    last = folder.log if folder.log.exists() else folder.info
    trials = 0
    if folder.log.exists():
        with folder.log.open("rb") as lines:
            trials = sum(line.startswith(b'{"event":"trial_started"') for line in lines)
    return f"{counted(trials, 'trial')}, last run {moment(last.stat().st_mtime)}"
