"""Object stores (S3, Azure, Google Cloud) as bytes by key; the only module that uses obstore.

They cannot append or rename, but all support two conditional writes: only if the key is new, and only if the object is
unchanged since it was read. Credentials come from the environment or the machine's role, as with the provider's own
tools; processes pass a store to each other as its URL. The process that may write to a sweep in a store holds its
lease, an object that it renews every few seconds.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sweep import interruption
from sweep.errors import InputError, StoreAway, StoreError, first_line
from sweep.store.disk import replacing
from sweep.store.features import STAND_IN, store_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend


SCHEMES = ("s3", "gs", "az", "abfs", "abfss")

T = TypeVar("T")

_THREADS = 16  # concurrent requests of one call
_AGAIN_S = 1.0  # pause of `call_patiently` between two attempts
_RETRIES = 3  # of obstore, within `_RETRY_S` seconds
_RETRY_S = 10.0
_CONNECT_S, _ANSWER_S = 5.0, 60.0
_BLOCK = 4 << 20  # bytes of a download held in memory


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a store lists it: its key, size and tag."""

    key: str
    size: int  # bytes
    tag: str  # changes whenever the content changes


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The objects of a store whose keys begin with the path of ``url``. All methods may raise `StoreAway`.

    Keys are relative to that path.
    """

    url: str  # "s3://bucket/prefix"
    # obstore's client to use; None: the one that `_open_backend` returns for the bucket
    backend: Backend | None = None

    def below(self, name: str) -> ObjectStore:
        """Return the part of the store with the keys that begin with ``name/``; keys are then relative to it."""
        return ObjectStore(f"{self.url}/{name}", self.backend)

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Return the content and the tag of an object; None if there is none with this key.

        The tag is a text that changes with the content, for `swap`. Those in listings may lack its quotes: see
        `unquote_tag`. Raises `StoreAway` if the store is unavailable.
        """
        import obstore

        try:
            with self._raising_store_away(key):
                found = obstore.get(self._client, self._full_key(key))
                return bytes(found.bytes()), found.meta["e_tag"] or ""
        except FileNotFoundError:
            return None

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the contents of several objects in the order of ``keys``, read concurrently; None for missing ones.

        Raises `StoreAway` if the store is unavailable.
        """

        def get_content(key: str) -> bytes | None:
            found = self.get(key)
            if found is None:
                return None
            content, _tag = found
            return content

        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(get_content, keys))

    def put(self, key: str, data: bytes) -> None:
        """Write an object, replacing any earlier one as a whole. Raises `StoreAway` if the store is unavailable."""
        import obstore

        with self._raising_store_away(key):
            obstore.put(self._client, self._full_key(key), data)

    def swap(self, key: str, data: bytes, tag: str | None) -> str | None:
        """Write an object only if its tag is still ``tag``; if ``tag`` is None, only if there is no such object.

        Returns the new tag, in the form of `get`, or None if the condition does not hold. An object that already has
        the content ``data`` counts as written by an earlier attempt of this call, so ``data`` must differ from what
        other processes write. Raises `StoreAway` if the store is unavailable.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create"
        if tag is not None:
            mode = {"e_tag": tag}
        with self._raising_store_away(key):
            try:
                written = obstore.put(self._client, self._full_key(key), data, mode=mode)
                return written["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                pass  # another process was faster, or an earlier attempt of this call has written it, see above
        found = self.get(key)
        if found is None:
            return None
        content, new_tag = found
        if content != data:
            return None
        return new_tag

    def entries(self, prefix: str = "") -> list[StoredObject]:
        """Return all objects whose keys begin with ``prefix/``, at any depth, sorted by key.

        Without ``prefix``, return all objects of this store. Their keys are relative to this store, with ``prefix``.
        Raises `StoreAway` if the store is unavailable.
        """
        import obstore

        with self._raising_store_away(prefix):
            # Inside the block, because the pages are only requested when they are read.
            pages = obstore.list(self._client, self._full_key(prefix) or None)
            return sorted(
                (self._make_stored_object(one) for page in pages for one in page),
                key=lambda entry: entry.key,
            )

    def folder(self, prefix: str = "") -> tuple[list[str], list[StoredObject]]:
        """Return (names of the folders, objects), both of what is directly below ``prefix``.

        Both lists are empty if nothing is there. The names have no path before them; the keys of the objects are
        relative to this store, with ``prefix``. Raises `StoreAway` if the store is unavailable.
        """
        import obstore

        with self._raising_store_away(prefix):
            found = obstore.list_with_delimiter(self._client, self._full_key(prefix) or None)
        names = [key.rstrip("/").rpartition("/")[2] for key in found["common_prefixes"]]
        return names, [self._make_stored_object(one) for one in found["objects"]]

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are no error. Raises `StoreAway` if the store is unavailable."""
        import obstore

        full_keys = [self._full_key(key) for key in keys]
        if not full_keys:
            return
        with self._raising_store_away(full_keys[0]):
            try:
                obstore.delete(self._client, full_keys)
            except FileNotFoundError:  # some stores report this and stop there
                for key in full_keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._client, key)

    def upload(self, files: Iterable[tuple[Path, str]]) -> None:
        """Upload the (file, key) pairs, several at a time, each in place of the object under its key.

        Raises OSError if a file cannot be read, and `StoreAway` if the store is unavailable; others may have been
        uploaded by then.
        """
        import obstore

        def upload_one(given: tuple[Path, str]) -> None:
            path, key = given
            with self._raising_store_away(key):
                obstore.put(self._client, self._full_key(key), path)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(upload_one, files))  # `list` raises the errors of the threads

    def download(self, keys: Iterable[tuple[str, Path]]) -> None:
        """Download the (key, path) pairs, several at a time; folders are created and existing files overwritten.

        Raises FileNotFoundError if an object is missing, OSError if a file cannot be written, and `StoreAway` if the
        store is unavailable. After an error, the file of that object may be empty or incomplete, even if it existed
        before. Other files may have been written.
        """
        import obstore

        def download_one(given: tuple[str, Path]) -> None:
            key, path = given
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._raising_store_away(key), path.open("wb") as file:
                found = obstore.get(self._client, self._full_key(key))
                for block in found.stream(min_chunk_size=_BLOCK):
                    file.write(block)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(download_one, keys))  # `list` raises the errors of the threads

    @property
    def _client(self) -> Backend:
        """The obstore client for the bucket of this store, opened if necessary. Raises `StoreAway` if that fails."""
        if self.backend is not None:
            return self.backend
        bucket_url = "/".join(self.url.split("/")[:3])  # "s3:", "" and the bucket
        return _open_backend(bucket_url, _get_store_variables())

    def _full_key(self, key: str) -> str:
        """Return a key of this store as a key of its bucket; for ``""``, the path of this store in it."""
        parts = self.url.split("/")[3:]  # without the scheme and the bucket
        if key:
            parts.append(key)
        return "/".join(parts)

    def _make_stored_object(self, found: Any) -> StoredObject:
        """Return an entry of obstore's listing as a `StoredObject`, whose key is relative to this store."""
        # The path of this store with its slash is cut off: the full key of "-" is this and one character.
        key = found["path"][len(self._full_key("-")) - 1 :]
        return StoredObject(key, found["size"], unquote_tag(found["e_tag"] or ""))

    @contextmanager
    def _raising_store_away(self, key: str) -> Iterator[None]:
        """Raise `StoreAway` if the block fails because of the store; errors of local files or missing objects pass.

        A missing bucket counts as an error of the store. The message does not name ``key``.
        """
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            # Errors of local files have an errno, those of obstore have none.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if isinstance(error, FileNotFoundError) and not _is_without_bucket(error):
                raise  # an object is missing
            raise StoreAway(f"{self.url}: {_describe_store_error(error)}") from error


def call_patiently(
    ask: Callable[[], T], patience_s: float, look: Callable[[], object] = lambda: None
) -> T:
    """Return ``ask()``; if it raises `StoreAway`, try again every second for at most ``patience_s`` seconds.

    There is at least one attempt, and none is cut short when the time is over; then the last `StoreAway` is raised.
    Other exceptions of ``ask`` pass at once. ``look`` is called before each attempt; an exception that it raises ends
    the attempts.
    """
    began = time.monotonic()
    while True:
        look()
        try:
            return ask()
        except StoreAway:
            if time.monotonic() - began >= patience_s:
                raise
            time.sleep(_AGAIN_S)


def repeat(action: Callable[[], object], every_s: float, name: str) -> Callable[[], None]:
    """Call ``action`` every ``every_s`` seconds in a thread named ``name``; return a function that stops the thread.

    The first call comes after ``every_s`` seconds, each further one as long after the end of the last. The returned
    function waits for a call that is in progress. An exception of ``action`` ends the thread, and is not raised here.
    """
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            action()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop


def unquote_tag(tag: str) -> str:
    """Return an object's tag as listings have it: without the quotes around it that some stores add."""
    return tag.strip('"')


def check_url(where: str, url: str) -> str:
    """Return the URL of a place in a store in its normal form: a lowercase scheme and no empty parts of the path.

    ``where`` is the option or argument that an error names. Raises InputError for a kind of store other than `SCHEMES`,
    a URL without a bucket, and a URL with a part ``.`` or ``..``, a space, one of ``?#@`` or a backslash, or a
    character that is not printable.
    """
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise InputError.one(
            where, f"{url} is in no store that is known", f"known are {known}; or give a folder"
        )
    bucket, _, prefix = rest.partition("/")
    names = [name for name in prefix.split("/") if name]
    has_dots = not {".", ".."}.isdisjoint([bucket, *names])
    has_marks = not set("?#@\\ ").isdisjoint(url)
    if not bucket or has_dots or has_marks or not url.isprintable():
        raise InputError.one(
            where, f"{url} names no place in a store", "write it as in s3://bucket/prefix"
        )
    return "/".join([f"{scheme.lower()}://{bucket}", *names])


def mark_as_copy(folder: Path, store: ObjectStore) -> None:
    """Mark ``folder`` as the local copy of the place ``store``, in place of any other; safe while others read it.

    The mark is a file ``.store`` with the URL; it is not written again if it is there. The folder is created if
    necessary. Raises OSError if that fails, and `StoreError` if the mark cannot be written.
    """
    if store_of(folder) != store:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / STAND_IN) as path:
            path.write_text(store.url, encoding="utf-8")


def _get_store_variables() -> tuple[tuple[str, str], ...]:
    """Return the environment variables that configure stores, as sorted pairs (name, value).

    These are all that begin with ``AWS_``, ``AZURE_`` or ``GOOGLE_``. They are needed because a client keeps the values
    it was created with.
    """
    found = []
    for name, value in os.environ.items():
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            found.append((name, value))
    return tuple(sorted(found))


@lru_cache(maxsize=64)
def _open_backend(url: str, settings: tuple[tuple[str, str], ...]) -> Backend:
    """Return obstore's client for the bucket of ``url``; clients are kept by URL and settings.

    ``settings`` only tells clients apart: obstore reads the environment itself. Unencrypted connections are allowed if
    an endpoint in the environment begins with ``http://``, or for Azure's emulator. Raises `StoreAway` if obstore
    refuses the URL or the environment; the store itself is not asked.
    """
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    # An endpoint set by the user is used as written, even if it is not encrypted.
    is_unencrypted = any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS)
    is_emulator = os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true"
    options: Any = {"timeout": f"{_ANSWER_S:g}s", "connect_timeout": f"{_CONNECT_S:g}s"}
    if is_unencrypted or is_emulator:
        options["allow_http"] = True
    retries: Any = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    try:
        return from_url(url, client_options=options, retry_config=retries)
    except (BaseError, ValueError) as error:
        raise StoreAway(f"{url}: {_describe_store_error(error)}") from error


_ENDPOINTS = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
"""Environment variables with which a user sets the address of a store."""


def _is_without_bucket(error: BaseException) -> bool:
    """Return whether an error says that the whole bucket or container does not exist, rather than one object."""
    return "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error)


def _describe_store_error(error: BaseException) -> str:
    """Return the cause of an error of obstore in a few words; its own message lists every retry.

    If it is none of the known causes, the result is the HTTP status with the store's own word for it, or the first line
    of the message without a status.
    """
    whole = str(error)
    status = ""
    status_found = re.search(r"status code: (\d+[^,:]*)|status: (\d{3} [A-Za-z ]+)", whole)
    if status_found is not None:
        status = status_found[1] or status_found[2]
    cause = _find_known_cause(error, status)
    if cause is not None:
        return cause
    if not status:
        return first_line(error)
    # The store's own word for the error, such as SlowDown, explains the status.
    code = re.search(r"<Code>(\w+)</Code>", whole)
    if code is None:
        return status
    return f"{status} ({code[1]})"


def _find_known_cause(error: BaseException, status: str) -> str | None:
    """Return the cause of an error of obstore in a few words; None if it is none of the causes that are known here.

    These are a missing bucket, account or credentials, a refusal, and a store that cannot be reached. ``status``
    is the HTTP status in the message, such as "403 Forbidden"; "" if there is none.
    """
    whole = str(error)
    # Without addresses: they contain the key, which may have any word or number that is searched for below.
    first_line_said = re.sub(r"https?://\S+", "", whole.partition("\n")[0])
    refusals = {
        "UnauthenticatedError": "the credentials are refused",
        "PermissionDeniedError": "access is denied",
    }
    refusal = refusals.get(type(error).__name__)
    if refusal is None and status.startswith(("401", "403")):
        refusal = "access is denied"
    cause = None
    if _is_without_bucket(error):
        cause = "there is no such bucket"
    elif "Account must be specified" in first_line_said:
        cause = "no account is named: set AZURE_STORAGE_ACCOUNT_NAME"
    # where a cloud's machine asks for its role
    elif "instance metadata" in whole or "169.254.169.254" in whole:
        cause = "no credentials were found in the environment, and the machine has no role"
    elif refusal is not None:
        cause = f"{refusal} (credentials come from the environment or the machine's role)"
    elif "error sending request" in first_line_said or "connect" in first_line_said.lower():
        cause = "cannot be reached"
    return cause


LEASE = "lease"
LEASE_S = 20.0
"""Seconds without renewal after which another process may take a lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a sweep's lease: which process may write to the sweep, and when it last renewed the lease."""

    host: str
    process: int
    space: str  # namespace in which the process id is valid
    token: str  # identifies the session that took the lease
    renewed: float  # seconds since 1970, by the holder's clock
    released: bool = False
    once: str = ""  # makes the bytes of each lease unique

    @classmethod
    def own(cls, token: str, *, released: bool = False) -> Lease:
        """Return the content of a lease of this process that is renewed now, without writing it to a store.

        ``token`` identifies the session that takes the lease. With ``released``, the content says that its holder has
        given it up.
        """
        return cls(
            socket.gethostname(),
            os.getpid(),
            _space(),
            token,
            time.time(),
            released,
            secrets.token_hex(4),
        )

    @classmethod
    def parse(cls, data: bytes, store: ObjectStore) -> Lease:
        """Return the lease in the bytes of an object; ``store`` is only named in the error.

        Raises `StoreError` if the bytes are unreadable.
        """
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise StoreError(f"{store.url}/{LEASE}: unreadable ({error})") from error

    def encode(self) -> bytes:
        """Return the lease as the bytes of an object."""
        return json.dumps(asdict(self)).encode()

    @property
    def holder(self) -> str:
        """The process and the machine that hold the lease, in words."""
        return f"process {self.process} on {self.host}"

    @property
    def is_over(self) -> bool:
        """True if the lease was released or its process has ended, as far as this machine can tell.

        It cannot tell whether a process of another machine or container has ended; then this is False. When the lease
        was last renewed does not matter.
        """
        if self.released:
            return True
        return self.space == _space() and not interruption.is_running(self.process)

    @property
    def is_own(self) -> bool:
        """True if this process took the lease, perhaps in an earlier session of the sweep."""
        return self.space == _space() and self.process == os.getpid()


def find_valid_lease(store: ObjectStore) -> Lease | None:
    """Return the lease of the process that runs a sweep, on any machine; None if no process runs it.

    A released lease does not count, nor one whose process is known to have ended or has not renewed it for 60 s. Raises
    `StoreError` if the lease is unreadable or the store is unavailable.
    """
    found = store.get(LEASE)
    if found is None:
        return None
    content, _tag = found
    lease = Lease.parse(content, store)
    # Three times as long as it is valid, because its time is by the clock of another machine.
    if lease.is_over or time.time() - lease.renewed > 3 * LEASE_S:
        return None
    return lease


def _space() -> str:
    """Return a name of this machine's boot and process namespace, within which a process id is unique.

    Where these are unknown, as on macOS, it is the host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def now() -> float:
    """Return the seconds of a clock that also runs while the machine sleeps, if the system has one.

    Only differences of these times have a meaning.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
