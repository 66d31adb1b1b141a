"""A sweep with results in an object store, and its copy on this machine, which commands read and write.

In the store, below the sweep's name, are its files and ``log/``: the log in numbered segments, each written once. A
segment begins with a line that gives the byte of the log at which it begins. From time to time, many segments are
replaced by a single object, a part. Only the process that holds the sweep's lease writes to the store; the lease is an
object that its holder renews every few seconds, unless another process has replaced it. A segment is created only if
none has its number, so if two writers believe that they hold the lease, one is refused before anything acts on what it
wrote.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from sweep.errors import InputError, RefusedError, StoreAway, StoreError
from sweep.store.disk import find_cache_folder, replacing, storing
from sweep.store.features import AWAY_S, is_url
from sweep.store.locks import is_locked, waiting_for
from sweep.store.object_store import (
    LEASE,
    LEASE_S,
    Lease,
    ObjectStore,
    StoredObject,
    call_patiently,
    check_url,
    mark_as_copy,
    now,
    repeat,
    unquote_tag,
)

SEGMENTS_PER_PART = 64
"""Number of segments that one part replaces while a session runs."""

_RENEW_S = 5.0  # between renewals of the lease
_LOOK_S = 2.0  # between checks for requests
_TRIES = 20  # attempts of `pull` to read a sweep that changes meanwhile
_CLOSE_S = 60.0  # for the last upload of the log when a session ends
_SYNC_S = 2.0  # between uploads of the log
_AT_ONCE = 64  # objects read at once
_SEGMENT = re.compile(r"log/(\d{8})(?:-(\d{8}))?")
_FIRST = "log/00000000"
_LOG, _KNOWN = "log.jsonl", ".known.json"
_HERE = frozenset({_LOG, "lock"})  # files of a results folder that are not uploaded
_FOLDERS = ("tensorboard", "profile")  # folders that are uploaded too


def local(results: str | Path, where: str = "--results") -> Path:
    """Return the results folder ``results`` as a path; for a URL, the folder of its local copy.

    The folder of a copy is created and marked if necessary, but not updated. ``where`` names the option or argument in
    errors. Raises InputError for an invalid URL or if no folder for copies is known, and `StoreError` if the folder
    cannot be created.
    """
    if not is_url(results):
        return Path(results)
    url = check_url(where, str(results))
    # The name of the folder says what it is, and the digest tells apart URLs with the same name.
    readable = re.sub(r"[^a-zA-Z0-9.]+", "-", url)[:100]
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    folder = _cache() / f"{readable}-{digest}"
    with storing(folder):
        mark_as_copy(folder, ObjectStore(url))
    return folder


def _cache() -> Path:
    """Return the folder for local copies of results: ``SWEEP_CACHE``, or ``sweep`` in the user's cache folder.

    It may not exist. Raises InputError if the variable is not set and no home folder is known.
    """
    folder = find_cache_folder()
    if folder is None:
        raise InputError.one(
            "HOME", "no home folder is known, for the copies of results", "set SWEEP_CACHE"
        )
    return folder


@dataclass(slots=True)
class _CopyState:
    """How much of what is in the store a local copy has. This state is kept in a file of the copy."""

    # tag of the log's first segment, which identifies the sweep among those of the same name
    first: str | None = None
    segments: int = 0  # number of segments in the copy, and number of the next one
    bytes: int = 0  # bytes of the log in the store
    files: dict[str, str] = field(default_factory=dict)  # tags by name

    @classmethod
    def read(cls, folder: Path) -> _CopyState:
        """Return the state in the file ``.known.json`` of a folder; an empty one if that is missing or unreadable."""
        try:
            return cls(**json.loads((folder / _KNOWN).read_bytes()))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, folder: Path) -> None:
        """Keep this state in the file ``.known.json`` of a folder. Raises `StoreError` if it cannot be written."""
        with replacing(folder / _KNOWN) as path:
            path.write_text(json.dumps(asdict(self)))


def pull(folder: Path, store: ObjectStore, *, mine: bool = False) -> bool:
    """Update the local copy of a sweep; return whether the store has the sweep. Raises `StoreError` if that fails.

    If the store does not have it, its copy is renamed. If it has, the changed files and the new bytes of the log are
    downloaded to ``folder``, which is created if necessary. While a process of this machine runs the sweep, nothing is
    downloaded and True is returned, because the copy is current then. ``mine`` says that it is this process that has
    locked the sweep; the copy is then updated all the same. Waits while another process updates the copy.
    """
    # so that no lock file is left behind for a mistyped name
    if not folder.exists() and not _has_sweep_file(store.folder()[1]):
        return False
    with lock_copy(folder):
        if not mine and is_locked(folder / "lock"):
            return True
        for _ in range(_TRIES):
            _, files = store.folder()
            if not _has_sweep_file(files):
                _set_copy_aside(folder)
                return False
            try:
                _download_changes(folder, store, files, store.entries("log"))
            except _Replaced:  # the listing is outdated
                continue
            return True
        raise StoreError(f"{store.url}: changes faster than it can be read; try again")


def _has_sweep_file(files: Iterable[StoredObject]) -> bool:
    """Return whether a sweep.json is among the objects of a folder, which makes that a sweep."""
    return any(entry.key == "sweep.json" for entry in files)


@contextmanager
def lock_copy(folder: Path) -> Iterator[None]:
    """Wait for the lock of a stored sweep's local copy: nobody else on this machine updates the copy inside the block.

    It is not the lock of the sweep, so the process that runs the sweep still writes to the copy. The lock excludes this
    process as well: `pull` inside the block would wait for ever. The lock file ``.NAME.pull`` is made next to the
    folder and stays. Raises `StoreError` if it cannot be opened or locked.
    """
    with waiting_for(folder.with_name(f".{folder.name}.pull")):
        yield


class _Replaced(Exception):
    """Objects that were listed have disappeared, because a part has replaced them meanwhile."""


def pull_all(results: Path, store: ObjectStore) -> None:
    """Update the local copies of all sweeps in a store, and rename copies of sweeps that are no longer there.

    Sweeps without a copy get one, in the folder ``results``. Copies of sweeps that run on this machine are left as they
    are. Raises `StoreError` if the store is unavailable or a copy cannot be written.
    """
    from concurrent.futures import ThreadPoolExecutor

    names, _ = store.folder()
    with ThreadPoolExecutor(8) as pool:
        is_stored = list(pool.map(lambda name: pull(results / name, store.below(name)), names))
    present = set()
    for name, is_present in zip(names, is_stored, strict=True):
        if is_present:
            present.add(name)
    for path in sorted(results.iterdir()):
        # `pull` lists the store again, which may have got the sweep meanwhile, and renames the copy if it has not
        if (path / _KNOWN).exists() and path.name[0] != "." and path.name not in present:
            pull(path, store.below(path.name))


def _download_changes(
    folder: Path, store: ObjectStore, files: Sequence[StoredObject], log: Sequence[StoredObject]
) -> None:
    """Download the changed ones of ``files`` and the new bytes of the log to ``folder``; call it inside `lock_copy`.

    ``files`` and ``log`` are the objects of the sweep and of its log, as the store lists them. If the copy is of an
    earlier sweep of this name, it is renamed before. What was downloaded is noted in the copy's state. Raises
    `_Replaced` if an object is gone, and `StoreError` if the store is unavailable, bytes of the log are missing there,
    or a file cannot be written.
    """
    known = _CopyState.read(folder)
    first = next((entry.tag for entry in log if entry.key == _FIRST), None)
    if known.first is not None and known.first != first:
        _set_copy_aside(folder)
        known = _CopyState()
    known.first = first  # None until the sweep's first session has begun
    mark_as_copy(folder, store)
    (folder / "checkpoints").mkdir(exist_ok=True)
    changed = []
    # without the lease, which is renewed every few seconds and only read in the store
    for entry in files:
        if entry.key != LEASE and known.files.get(entry.key) != entry.tag:
            changed.append(entry)
    with ExitStack() as stack:  # which replaces the files after all were downloaded, or none
        places = []
        for entry in changed:
            places.append((entry.key, stack.enter_context(replacing(folder / entry.key))))
        try:
            store.download(places)
        except FileNotFoundError as error:
            raise _Replaced from error
    known.files |= {entry.key: entry.tag for entry in changed}
    _bring_log(folder / _LOG, store, log, known)
    known.write(folder)


def _find_segments(entries: Sequence[StoredObject]) -> list[tuple[int, int, str]]:
    """Return (first number, last number, key) for each segment or part of the log among ``entries``, in order.

    The numbers are those of the segments that it has; for a single segment, both are the same. Other objects are left
    out.
    """
    segments = []
    for entry in entries:
        found = _SEGMENT.fullmatch(entry.key)
        if found:
            first = int(found[1])
            last = int(found[2] or first)  # a single segment has only one number in its key
            segments.append((first, last, entry.key))
    return sorted(segments)


def _bring_log(
    path: Path, store: ObjectStore, entries: Sequence[StoredObject], known: _CopyState
) -> None:
    """Download the segments of the log that the copy lacks to ``path``, and record them in ``known``.

    ``entries`` are the objects of the log in the store, and ``known`` is the state of the copy, which is not written to
    its file here. Where bytes of the copy differ from these segments, the copy is cut off and continued with theirs. If
    there are no new segments, the copy is left as it is, even if it has more bytes. Raises `_Replaced` if a segment has
    disappeared meanwhile, and `StoreError` if the store is unavailable or lacks bytes of the log, or the copy cannot be
    written.
    """
    segments = _find_segments(entries)
    if path.exists():
        size = path.stat().st_size
    else:
        size = 0
    if size < known.bytes:  # the copy has lost something, as in a loss of power: all is read again
        known.segments = known.bytes = 0
    new = [key for _, last, key in segments if last >= known.segments]
    if not new:  # a driver that died here may have written more than it sent; nothing has continued from that
        return
    with storing(path), path.open("r+b" if path.exists() else "w+b") as file:
        for start in range(0, len(new), _AT_ONCE):
            for data in store.get_all(new[start : start + _AT_ONCE]):
                if data is None:
                    raise _Replaced
                start_byte, content = _parse_segment(data, store)
                if start_byte > known.bytes:
                    missing = f"bytes {known.bytes} to {start_byte} are missing"
                    raise StoreError(f"{store.url}/log: {missing}")
                # a part may begin with segments that the copy has
                more = content[known.bytes - start_byte :]
                file.seek(known.bytes)
                # It may have them: a driver that died here may have uploaded them without noting it.
                if file.read(len(more)) != more:  # the copy has another driver's bytes, or fewer
                    file.truncate(known.bytes)
                    file.seek(known.bytes)
                    file.write(more)
                known.bytes += len(more)
    known.segments = max(last for _, last, _ in segments) + 1


def _parse_segment(data: bytes, store: ObjectStore) -> tuple[int, bytes]:
    """Return the byte of the log at which a downloaded segment or part begins, and its content without the first line.

    Raises `StoreError`, which names the ``store``, if the first line does not give that byte.
    """
    head, _, content = data.partition(b"\n")
    try:
        return int(json.loads(head)["at"]), content
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{store.url}/log: damaged, a part of it has no place") from None


def _set_copy_aside(folder: Path) -> None:
    """Rename the copy of a sweep that the store no longer has; it may contain results that were never uploaded.

    Does nothing if ``folder`` is missing or was never updated from a store. The new name begins with ``.gone-``.
    """
    if (folder / _KNOWN).exists():
        folder.rename(folder.with_name(f".gone-{folder.name}-{secrets.token_hex(4)}"))


def claim(folder: Path, store: ObjectStore) -> bool:
    """Create a new sweep in the store from its local folder; return False if its name is taken there.

    Only ``sweep.json`` and ``spec.yaml`` are uploaded. The tag of ``sweep.json`` is kept in the file ``.known.json`` of
    the folder. Raises OSError if one of the two cannot be read, and `StoreError` if the store is unavailable.
    """
    known = _CopyState()
    info = (folder / "sweep.json").read_bytes()
    # before the other file: the process that creates it has the name
    tag = store.swap("sweep.json", info, None)
    if tag is None:
        return False
    store.put("spec.yaml", (folder / "spec.yaml").read_bytes())
    known.files["sweep.json"] = unquote_tag(tag)
    known.write(folder)
    return True


def publish_sweep(aside: Path, folder: Path, store: ObjectStore) -> None:
    """Create a new sweep in the store from its complete folder ``aside``, which becomes the copy as ``folder``.

    If another process has taken the name in the store, its sweep is downloaded to ``folder``, ``aside`` stays, and
    RefusedError is raised. Raises `StoreError` if the store is unavailable, and OSError if ``folder`` is not empty; the
    new sweep is then in the store all the same.
    """
    mark_as_copy(aside, store)
    # no other process here downloads the new sweep to `folder` before it is renamed
    with lock_copy(folder):
        claimed = claim(aside, store)
        if claimed:
            aside.rename(folder)
    if not claimed:
        pull(folder, store)
        raise RefusedError.one(
            store.url, "was made by another process just now", "use --name OTHER"
        )


def withdraw(folder: Path, store: ObjectStore) -> None:
    """Delete a sweep from the store, unless it is running, its log has events, or the store is unavailable.

    No error is raised in these cases. All its objects are deleted, with the lease; the local copy ``folder`` stays. It
    may wait for 20 s for the lease of a process that has ended.
    """
    writer = Writer(folder, store)
    # for a running sweep, it raises `RefusedError`
    with (
        suppress(InputError, StoreError),
        writer.held(),
    ):
        segments = store.get_all([entry.key for entry in store.entries("log")])
        # A segment may have no content: each session begins with such a one.
        if not any(data and _parse_segment(data, store)[1] for data in segments):
            # also the lease, which is then not written again
            store.delete(entry.key for entry in store.entries())


LASTING = "steer-"
"""Prefix of requests that the next process carries out if the present one does not; others are then deleted."""


def ask(store: ObjectStore, request: str, content: bytes = b"") -> None:
    """Put the request named ``request`` into the store for the process that runs the sweep, on any machine.

    ``content`` is that of the file which this process finds. Raises `StoreError` if the store is unavailable.
    """
    store.put(f"requests/{request}", content)


def is_asked(store: ObjectStore, request: str) -> bool:
    """Return whether the request named ``request`` is still in the store, because no process has received it.

    Raises `StoreError` if the store is unavailable.
    """
    return store.get(f"requests/{request}") is not None


def answer(store: ObjectStore, name: str, content: bytes) -> None:
    """Put the answer named ``name`` to a request of another machine into the store, in place of an earlier one.

    Raises `StoreError` if the store is unavailable.
    """
    store.put(f"answers/{name}", content)


def take_answer(store: ObjectStore, name: str) -> bytes | None:
    """Return the answer named ``name`` and delete it from the store; None if there is none.

    Raises `StoreError` if the store is unavailable.
    """
    found = store.get(f"answers/{name}")
    if found is None:
        return None
    store.delete([f"answers/{name}"])
    return found[0]


def withdraw_stored_request(store: ObjectStore, request: str) -> None:
    """Delete the request named ``request`` from the store; do nothing if a process has received it already.

    Raises `StoreError` if the store is unavailable.
    """
    store.delete([f"requests/{request}"])


def _is_lasting(key: str) -> bool:
    """Return whether the next process carries the request under ``key`` out if the present one does not.

    That is so if the last part of the key begins with `LASTING`.
    """
    return key.rpartition("/")[2].startswith(LASTING)


class Writer:
    """Holds the lease of a sweep, uploads its log in a thread, and uploads its other files at the end."""

    def __init__(self, folder: Path, store: ObjectStore, sync_s: float = _SYNC_S) -> None:
        self._folder = folder
        self._store = store
        self._sync_s = sync_s
        self._token = secrets.token_hex(8)
        self._lease_tag = ""  # of the lease as this process has last written it
        self._renewed = 0.0  # when that was, by `now`
        self._lease_lock = threading.Lock()  # held while the lease is written
        self._stored = _CopyState()  # what the store has
        self._end = 0  # byte up to which the log must be sent
        self._unmerged = 0  # number of the first segment that is in no part
        self._unmerged_byte = 0  # byte of the log at which it begins
        self._away_since: float | None = None  # time of the first failure of those in a row
        self._fault: str | None = None  # why nothing more may be written
        self._fault_reported = False  # the driver knows of the fault
        self._sending_lock = threading.Lock()  # held while segments are written
        self._stop_functions: list[Callable[[], None]] = []  # functions that stop its threads

    @contextmanager
    def open(self) -> Iterator[Writer]:
        """Hold the lease and upload the log inside the block, as the only writer of the sweep in the store.

        The caller must hold the sweep's lock on this machine. The local copy is updated first, and requests to an
        earlier process are deleted. At the end, the rest of the log and the other files are uploaded.

        Raises:
            RefusedError: naming the process that is writing.
            StoreError: if the store does not answer at the beginning or at the end, or another process has taken over
                the sweep. If the block raises, errors of the last upload are ignored.
        """
        with self.held():
            self._fence()
            for name, action, every_s in (
                ("log", self.send, self._sync_s),
                ("lease", self._look_after, _LOOK_S),
            ):
                # a thread of this name, which the function that `repeat` returns stops
                stop = repeat(partial(self._call_guarded, action), every_s, f"object store: {name}")
                self._stop_functions.append(stop)
            try:
                yield self
            except BaseException:  # the first error is the important one
                with suppress(StoreError):
                    self._close()
                raise
            self._close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the sweep's lease inside the block, waiting up to 20 s for a lease that is not renewed to expire.

        In a block of more than 20 s, something must call `renew_lease`, as the threads of `open` do. At the end the
        lease is released; errors of that are ignored. Raises `RefusedError` that names the process that renews the
        lease, and `StoreError` if the store is unavailable.
        """
        self._take_lease()
        try:
            yield
        finally:
            with suppress(StoreError):  # the lease will expire instead
                self._write_lease(self._lease_tag, released=True)

    def check(self) -> None:
        """Raise `StoreError` if nothing more may be written, because of an error of the uploads or of the lease.

        After the machine slept, another process may have taken over, so an old lease is renewed first.
        """
        if not self._fault and now() - self._renewed > LEASE_S:
            self._call_guarded(self.renew_lease)
        if self._fault:
            self._fault_reported = True
            raise StoreError(self._fault)

    def appended(self, end: int, *, wait: bool) -> None:
        """Set the byte ``end`` up to which the log is to be uploaded; with ``wait``, upload it now.

        It then waits up to 5 minutes for a store that is unavailable. Raises `StoreError` if that fails.
        """
        self._end = end
        if wait:
            self._send_surely()

    def _call_guarded(self, action: Callable[[], None]) -> None:
        """Call ``action`` and record its error as a fault, after which nothing more is written; nothing is raised.

        An unavailable store counts as a fault only after `AWAY_S` seconds of failures in a row. Exceptions other than
        `StoreError` and `OSError` pass.
        """
        try:
            action()
            self._away_since = None
        except StoreAway as error:
            # a local, because another thread may set the attribute to None meanwhile
            since = self._away_since or time.monotonic()
            self._away_since = since
            if time.monotonic() - since > AWAY_S:
                self._fault = f"{error}; nothing could be stored for {AWAY_S / 60:g} minutes"
        except (StoreError, OSError) as error:
            self._fault = str(error)

    def _look_after(self) -> None:
        """Renew the lease if that is due, after 5 s, and receive requests.

        Raises `StoreError` if another process has taken the sweep over or the store is unavailable.
        """
        if now() - self._renewed >= _RENEW_S:
            self.renew_lease()
        self._receive_requests()

    def _send_surely(self, most_s: float = AWAY_S) -> None:
        """Upload the log; if the store is unavailable, try again every second for ``most_s`` seconds.

        Raises `StoreError` if that fails, and records it as a fault, after which nothing more is written.
        """
        try:
            # `check` is called before each attempt: it ends them by raising a fault that another thread has recorded
            call_patiently(self.send, most_s, look=self.check)
        except StoreError as error:
            self._fault = str(error)
            raise

    def send(self) -> None:
        """Upload the records of the log that are not in the store yet, up to the byte passed to `appended`.

        Waits for an upload of another thread. After many uploads, the segments are merged into a part. Raises
        `StoreError` if another process has taken over the sweep or the store is unavailable, and OSError if the log
        cannot be read.
        """
        with self._sending_lock:
            # more may have been appended during an upload
            while (end := self._end) > self._stored.bytes:
                with (self._folder / _LOG).open("rb") as file:
                    file.seek(self._stored.bytes)
                    content = file.read(end - self._stored.bytes)
                self._create(content)
                self._stored.write(self._folder)
                if self._stored.segments - self._unmerged >= SEGMENTS_PER_PART:
                    self._merge_segments()

    def _create(self, content: bytes) -> None:
        """Write ``content`` as the next segment of the log and count it as uploaded.

        If an earlier attempt of this session has written the segment with less content, only that counts. Raises
        `StoreError` if another process has written it, or the store is unavailable. The caller must hold
        `_sending_lock`, unless the threads have not been started.
        """
        known = self._stored
        key = f"log/{known.segments:08d}"
        head = json.dumps({"at": known.bytes, "by": self._token}).encode()
        tag = self._store.swap(key, head + b"\n" + content, None)
        if tag is None:  # the segment exists, perhaps by an earlier attempt whose answer was lost
            there = self._store.get(key)
            if there is None or not there[0].startswith(head + b"\n"):
                taken = "another process has taken the sweep over, nothing more is written"
                raise StoreError(f"{self._store.url}: {taken}")
            _, content = _parse_segment(there[0], self._store)
            tag = there[1]
        if not known.segments:  # the first one, which identifies the sweep: see `_CopyState`
            known.first = unquote_tag(tag)
        known.segments += 1
        known.bytes += len(content)

    def _merge_segments(self) -> None:
        """Replace all segments that this session has written since its last part by a new part in the store.

        Does nothing for fewer than two segments. Raises `StoreError` if the store is unavailable, and OSError if the
        log cannot be read. The caller must hold `_sending_lock`.
        """
        known = self._stored
        first = self._unmerged
        last = known.segments - 1
        if last <= first:
            return
        with (self._folder / _LOG).open("rb") as file:
            file.seek(self._unmerged_byte)
            content = file.read(known.bytes - self._unmerged_byte)
        head = json.dumps({"at": self._unmerged_byte, "by": self._token})
        segment = head.encode() + b"\n" + content
        # The part is written before its segments are deleted, so that the store has the whole log at any time. They
        # stay if it exists with other content.
        if self._store.swap(f"log/{first:08d}-{last:08d}", segment, None) is not None:
            self._store.delete(f"log/{number:08d}" for number in range(first, last + 1))
        self._unmerged = known.segments
        self._unmerged_byte = known.bytes

    def _fence(self) -> None:
        """Write an empty segment, so that a former holder of the lease, which would use its number next, is refused.

        The local copy is updated before. No part ever replaces this segment, so its number stays taken. Requests to the
        former holder are deleted, except those that the next process carries out. Raises `StoreError` if the store is
        unavailable.
        """
        while True:
            pull(self._folder, self._store, mine=True)
            self._stored = _CopyState.read(self._folder)
            # bytes beyond may be torn; `Log` calls `appended` when it has checked
            self._end = self._stored.bytes
            try:
                self._create(b"")
            except StoreAway:  # it is a `StoreError`, too, but not one to try again after
                raise
            except StoreError:  # the former holder wrote a last segment in between
                continue
            break
        self._stored.write(self._folder)
        self._unmerged = self._stored.segments
        self._unmerged_byte = self._stored.bytes
        for_former_holder = []
        for entry in self._store.entries("requests"):
            if not _is_lasting(entry.key):
                for_former_holder.append(entry.key)
        self._store.delete(for_former_holder)

    def _take_lease(self) -> None:
        """Take the lease; wait until it has expired if another process holds it.

        That is after `LEASE_S` seconds in which its tag has not changed. Raises `RefusedError` if the other process
        renews it meanwhile, and `StoreError` if the lease is unreadable or the store is unavailable.
        """
        seen_tag = ""  # tag of the other process's lease; "" until such a lease was seen
        seen_since = time.monotonic()  # when it was seen first
        while True:
            found = self._store.get(LEASE)
            tag: str | None = None  # there is no lease
            if found is not None:
                content, tag = found
                lease = Lease.parse(content, self._store)
                if not (lease.is_over or lease.is_own):
                    # it was renewed meanwhile, so its holder is alive
                    if seen_tag and seen_tag != tag:
                        what = f"the sweep is being run by {lease.holder}"
                        raise RefusedError.one(self._store.url, what, "stop that one first")
                    if not seen_tag:
                        seen_tag = tag
                        seen_since = time.monotonic()
                    if time.monotonic() - seen_since < LEASE_S:
                        time.sleep(1.0)
                        continue
            if self._write_lease(tag):  # otherwise it has changed since it was read: look again
                return

    def renew_lease(self) -> None:
        """Renew the lease.

        Raises `StoreError` if the store is unavailable, or another process has taken the sweep over, which it names.
        """
        if self._write_lease(self._lease_tag):
            return
        by = "another process"
        found = self._store.get(LEASE)
        if found is not None:
            content, tag = found
            lease = Lease.parse(content, self._store)
            # With this session's token, it is a renewal whose answer was lost, so that only its tag was unknown here.
            if lease.token == self._token and self._write_lease(tag):
                return
            by = lease.holder
        raise StoreError(
            f"{self._store.url}: {by} has taken the sweep over, nothing more is written"
        )

    def _write_lease(self, tag: str | None, *, released: bool = False) -> bool:
        """Replace the lease with the tag ``tag`` (None: there is none) by this process's own; False if it has changed.

        Returns True if the lease was written; its tag and time are kept then. With ``released``, the new lease says
        that it was released. Raises `StoreError` if the store is unavailable.
        """
        with self._lease_lock:  # a thread and the driver may both renew it
            new = self._store.swap(LEASE, Lease.own(self._token, released=released).encode(), tag)
            if new is None:
                return False
            self._lease_tag = new
            self._renewed = now()
            return True

    def _receive_requests(self) -> None:
        """Move the requests in the store into the local folder ``requests``, where the driver looks for them.

        Raises `StoreError` if the store is unavailable or a file cannot be written.
        """
        for entry in self._store.entries("requests"):
            found = self._store.get(entry.key)
            if found is None:  # withdrawn
                continue
            requests = self._folder / "requests"
            requests.mkdir(exist_ok=True)
            with replacing(requests / entry.key.rpartition("/")[2]) as path:
                path.write_bytes(found[0])
            # only now: a request may be received twice, but is not lost
            self._store.delete([entry.key])

    def stop_threads(self) -> None:
        """Stop uploading and renewing the lease, after waiting for what is in progress.

        What was not uploaded stays on this machine. May be called several times.
        """
        for stop in self._stop_functions:
            stop()

    def _close(self) -> None:
        """Stop the threads, upload the rest of the log and the other files, and merge this session's segments.

        Nothing is uploaded if `check` has raised a fault. An unavailable store is tried for a minute. Raises
        `StoreError`, which says where the rest is, if the upload fails. The state of the copy is then written to its
        file as well.
        """
        self.stop_threads()
        if self._fault_reported:  # the driver has told it, and nothing more may be written
            return
        try:
            self._send_surely(_CLOSE_S)
            with self._sending_lock:
                self._merge_segments()
            self._send_files()
        except (StoreError, OSError) as error:
            raise StoreError(
                f"{error}; what was not uploaded is in {self._folder}; resume on this machine"
            ) from error
        finally:
            with suppress(StoreError, OSError):
                self._stored.write(self._folder)

    def _send_files(self) -> None:
        """Upload the tables and the other files of the folder, but not the log, the lock, checkpoints and hidden files.

        Of folders, only ``tensorboard`` and ``profile`` are uploaded, with the hidden files in them. The tags of the
        objects are noted, so that the next `pull` does not download them. Raises `StoreError` if the store is
        unavailable, and OSError if a file cannot be read.
        """
        candidates = [path for path in self._folder.iterdir() if path.name[0] != "."]
        for name in _FOLDERS:
            candidates += (self._folder / name).rglob("*")
        sent = []
        for path in candidates:
            if path.is_file() and path.name not in _HERE:
                sent.append((path, path.relative_to(self._folder).as_posix()))
        self._store.upload(sent)
        _, entries = self._store.folder()
        self._stored.files |= {entry.key: entry.tag for entry in entries if entry.key != LEASE}
