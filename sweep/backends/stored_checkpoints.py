"""Uploads checkpoints to an object store while trials train, and downloads them to the machines that need them.

A checkpoint in the store is complete once its manifest is there, which is uploaded last. If all machines see the
results folder, this module is not imported (`features`).
"""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sweep.backends.checkpoints import (
    MANIFEST,
    Damaged,
    order_by_epoch,
    parse_loss,
    read_verified_manifest,
    select_kept,
)
from sweep.backends.job import CHECKPOINTS, Job, checkpoint_key
from sweep.errors import StoreAway, StoreError
from sweep.store.disk import get_process_name, removed_if_it_fails
from sweep.store.features import AWAY_S
from sweep.store.locks import waiting_for
from sweep.store.object_store import ObjectStore, StoredObject, call_patiently


@dataclass(frozen=True, slots=True)
class StoredCheckpoints:
    """The checkpoints of a sweep in an object store. All methods may raise `StoreAway`."""

    store: ObjectStore

    def list_names(self, trial: int) -> list[str]:
        """Return the names of a trial's complete checkpoints, that of the latest epoch first.

        Raises `StoreAway` if the store is unavailable.
        """
        return list(list_checkpoints(self.store, trial))

    def list_trials(self) -> set[int]:
        """Return the numbers of the trials that have any checkpoint files, even of an incomplete checkpoint.

        Raises `StoreAway` if the store is unavailable.
        """
        trials = set()
        for entry in self.store.entries(CHECKPOINTS):
            # checkpoints/TRIAL/CHECKPOINT/FILE, as in `checkpoint_key`
            _, *below = entry.key.split("/")
            # other objects do not count, such as those of a copy 00003-old, or an empty one for the folder
            if len(below) > 1 and below[0].isdecimal():
                trials.add(int(below[0]))
        return trials

    def fetch(self, folder: Path, trial: int, patience_s: float) -> Iterator[Path]:
        """Yield the local folders of a trial's checkpoints, that of the latest epoch first, each once it is copied.

        Only complete checkpoints are copied, below ``folder``, the local results folder. One that is there already and
        intact is yielded as it is, and one that was deleted from the store meanwhile is left out. Each time, an
        unavailable store is tried again for ``patience_s`` seconds; then `StoreAway` is raised. Raises OSError or
        `StoreError` if this machine's disk cannot be written.
        """
        here = folder / checkpoint_key(trial)
        stored = call_patiently(lambda: list_checkpoints(self.store, trial), patience_s)
        for name, files in stored.items():
            copy = partial(_copy_from_store, self.store, here / name, trial, files)
            if call_patiently(copy, patience_s):  # otherwise it was deleted meanwhile
                yield here / name

    def keep_best(self, trial: int) -> int:
        """Delete an ended trial's complete checkpoints except the last and the best; return the bytes of those kept.

        This is done in the object store only. The best one has the smallest loss in its manifest. Incomplete
        checkpoints are neither deleted nor counted. Raises `StoreAway` if the store is unavailable.
        """
        left = trim_in_store(self.store, trial, keep=1)
        return sum(entry.size for files in left.values() for entry in files)

    def delete(self, trial: int) -> None:
        """Delete all files of a trial's checkpoints in the store, also of incomplete ones.

        Raises `StoreAway` if the store is unavailable.
        """
        self.store.delete(entry.key for entry in self.store.entries(checkpoint_key(trial)))

    def upload(self, folder: Path, trial: int) -> None:
        """Upload a trial's checkpoints in ``folder``, its local one; raise `StoreError` if that fails for 300 s.

        Waits until they are uploaded. Those that the store has with the same manifest are not sent again, and no other
        checkpoint is deleted there.
        """
        sender = Sender(self.store, folder, trial, trim=lambda: None)
        sender.send()
        sender.settle()


def make_sender(job: Job, folder: Path, trial: int, unusable: Iterable[str]) -> Sender:
    """Return a `Sender` for a trial's checkpoints in ``folder``; it uploads nothing before its `send` is called.

    After each upload, it deletes all but the best and the `Job.checkpoint_keep` newest checkpoints in the store, and
    after the first upload also those with the names ``unusable``, which could not be restored.
    """
    store = ObjectStore(job.store or "")
    trim = partial(trim_in_store, store, trial, job.checkpoint_keep)
    return Sender(store, folder, trial, trim, {*unusable})


def list_checkpoints(store: ObjectStore, trial: int) -> dict[str, list[StoredObject]]:
    """Return the files of each complete checkpoint of a trial by its name, that of the latest epoch first.

    A checkpoint is complete if its manifest is in the store. Raises `StoreAway` if the store is unavailable.
    """
    checkpoint_files: dict[str, list[StoredObject]] = defaultdict(list)
    for entry in store.entries(checkpoint_key(trial)):
        # checkpoints/TRIAL/CHECKPOINT/FILE, as in `checkpoint_key`
        _, _, name, *rest = entry.key.split("/")
        if rest:  # otherwise it is an object directly below the trial, which sweep has not stored
            checkpoint_files[name].append(entry)
    complete = []
    for name, files in checkpoint_files.items():
        manifest = f"/{name}/{MANIFEST}"
        if any(file.key.endswith(manifest) for file in files):
            complete.append(name)
    return {
        name: checkpoint_files[name] for name in sorted(complete, key=order_by_epoch, reverse=True)
    }


def _copy_from_store(
    store: ObjectStore, final: Path, trial: int, files: Sequence[StoredObject]
) -> bool:
    """Copy a checkpoint from the store to the folder ``final``; return False if it was deleted meanwhile.

    ``files`` are its objects in the store. If the folder has the same manifest and is intact, nothing is copied, and
    True is returned; otherwise it is replaced. Waits while another process copies a checkpoint of this trial, by a lock
    file beside the folder. Raises `StoreAway` if the store is unavailable, and OSError or `StoreError` if the disk
    cannot be written.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    # several processes of a trial may want the same one
    with waiting_for(final.parent / ".fetching"):
        if _is_same_checkpoint(store, trial, final) and _is_intact(final):
            return True
        aside = final.with_name(f"fetching-{get_process_name()}")
        shutil.rmtree(aside, ignore_errors=True)
        prefix = f"{checkpoint_key(trial)}/{final.name}/"
        with (
            suppress(FileNotFoundError),  # a file was deleted in the store meanwhile
            removed_if_it_fails(aside),
        ):
            # Beside the final folder, so that an interrupted download never looks like a checkpoint.
            store.download((file.key, aside / file.key.removeprefix(prefix)) for file in files)
            shutil.rmtree(final, ignore_errors=True)
            aside.rename(final)
            return True
    return False  # after a suppressed error


def trim_in_store(store: ObjectStore, trial: int, keep: int) -> dict[str, list[StoredObject]]:
    """Delete a trial's checkpoints except the best and the ``keep`` newest; return the files left, by checkpoint name.

    The best one has the smallest loss in its manifest. Incomplete checkpoints are neither deleted nor returned. Raises
    `StoreAway` if the store is unavailable.
    """
    there = list_checkpoints(store, trial)
    if len(there) > keep:  # otherwise all are spared, and no manifest has to be read
        keys = []
        for name in there:
            keys.append(f"{checkpoint_key(trial)}/{name}/{MANIFEST}")
        losses = {}
        for name, data in zip(there, store.get_all(keys), strict=True):
            losses[name] = parse_loss(data)
        spared = select_kept([*there], losses, keep)
        delete_epochs(store, trial, [name for name in there if name not in spared])
        there = {name: there[name] for name in there if name in spared}
    return there


def delete_epochs(store: ObjectStore, trial: int, names: Iterable[str]) -> None:
    """Delete checkpoints of a trial by their names, manifest first, so that no incomplete one looks complete.

    Names without files in the store are ignored. Raises `StoreAway` if the store is unavailable.
    """
    for name in names:
        keys = []
        for entry in store.entries(f"{checkpoint_key(trial)}/{name}"):
            keys.append(entry.key)
        store.delete(key for key in keys if key.endswith(f"/{MANIFEST}"))
        store.delete(key for key in keys if not key.endswith(f"/{MANIFEST}"))


def _is_same_checkpoint(store: ObjectStore, trial: int, path: Path) -> bool:
    """Return whether the local checkpoint at ``path`` has the same manifest as that of this name in the store.

    It has not if either is missing.
    """
    try:
        mine = (path / MANIFEST).read_bytes()
    except OSError:
        return False
    theirs = store.get(f"{checkpoint_key(trial)}/{path.name}/{MANIFEST}")  # (content, tag)
    return theirs is not None and theirs[0] == mine


def _is_intact(checkpoint: Path) -> bool:
    """Return whether all files of a local checkpoint are as its manifest says."""
    try:
        read_verified_manifest(checkpoint)
    except Damaged:
        return False
    return True


class _NoLongerNeeded(Exception):
    """The upload is no longer needed, because the trial has ended."""


@dataclass(slots=True)
class Sender:
    """Uploads a trial's checkpoints to an object store in a thread."""

    store: ObjectStore
    folder: Path  # local folder of the trial's checkpoints
    trial: int
    trim: Callable[[], object]  # deletes superseded checkpoints in the store
    # names of checkpoints in the store that could not be restored; they are deleted after the next upload
    unusable: set[str] = field(default_factory=set)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "checkpoint-sender")
    )
    _uploads: list[Future[None]] = field(default_factory=list)
    _sent: set[str] = field(default_factory=set)
    _is_closed: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        """Start to upload the local checkpoints that the store lacks or has with another manifest, in a thread.

        Superseded checkpoints in the store are deleted afterwards. Raises `StoreError` if an earlier upload has failed,
        and RuntimeError after `close`; then none is started.
        """
        done = [upload for upload in self._uploads if upload.done()]
        # `done()` is not asked again: an upload that fails just now would be removed without raising its error.
        self._uploads = [upload for upload in self._uploads if upload not in done]
        for upload in done:
            upload.result()  # raises the error of a failed upload
        self._uploads.append(self._pool.submit(self._upload_patiently))

    def settle(self) -> None:
        """Wait for all uploads that were started and not waited for yet.

        Raises the `StoreError` of the first that has failed, without waiting for those after it.
        """
        uploads, self._uploads = self._uploads, []  # emptied before: each error is raised only once
        for upload in uploads:
            upload.result()

    def close(self) -> None:
        """End the uploads without waiting; nothing can be sent afterwards.

        Those that have not started are dropped, failed ones are not retried, and one that runs ends after its
        checkpoint.
        """
        self._is_closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _upload_patiently(self) -> None:
        """Upload the checkpoints; raise `StoreError` if the store is unavailable for `AWAY_S` seconds.

        Return, with the upload incomplete, if the sender is closed meanwhile.
        """
        try:
            call_patiently(self._upload, AWAY_S, self._check_needed)
        except _NoLongerNeeded:  # raised by `_check_needed`, to end the attempts early
            pass
        except StoreAway as error:
            raise StoreError(
                f"checkpoints of trial {self.trial} cannot be stored: {error}"
            ) from error

    def _check_needed(self) -> None:
        """Raise `_NoLongerNeeded` if the sender is closed."""
        if self._is_closed.is_set():
            raise _NoLongerNeeded

    def _upload(self) -> None:
        """Upload the checkpoints that the store lacks, oldest first, and delete superseded and unusable ones there.

        One that the store has with another manifest is replaced, and one that was deleted here meanwhile is left out.
        If the sender is closed meanwhile, return after the present checkpoint, and delete none. Raises `StoreAway` if
        the store is unavailable.
        """
        here = {}
        for path in self.folder.glob("epoch-*"):
            here[path.name] = path
        there = list_checkpoints(self.store, self.trial)
        for name, path in sorted(here.items(), key=lambda item: order_by_epoch(item[0])):
            if name in self._sent:  # by an earlier call
                continue
            # One of the same name in the store may be of an earlier attempt of the trial; then it is replaced.
            if name in there and _is_same_checkpoint(self.store, self.trial, path):
                continue
            files = []
            for file in path.rglob("*"):
                if file.is_file() and file != path / MANIFEST:
                    files.append(file)
            prefix = f"{checkpoint_key(self.trial)}/{name}"
            try:
                self.store.upload(
                    (file, f"{prefix}/{file.relative_to(path).as_posix()}") for file in files
                )
                # Last, because a checkpoint with a manifest counts as complete.
                self.store.upload([(path / MANIFEST, f"{prefix}/{MANIFEST}")])
            except FileNotFoundError:  # deleted meanwhile: without a manifest, it does not count
                continue
            self._sent.add(name)
            if self._is_closed.is_set():
                return  # whoever trains or ends the trial next deletes what is superseded
        # Not before another checkpoint is there, from which the trial can continue.
        if self._sent and self.unusable:
            delete_epochs(self.store, self.trial, sorted(self.unusable - self._sent))
            self.unusable.clear()  # once is enough
        self.trim()
