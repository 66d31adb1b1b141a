"""A trial's checkpoints: when one is due, how it is written during the training, where it is, and which ones are kept.

The checkpoint of epoch n is the folder ``checkpoints/<trial>/epoch-<n>``. It is written under a temporary name, renamed
when it is complete, and verified when it is read. Besides the trainable's files, it has a manifest with the size and
checksum of each file and with the epochs that were trained in the step that wrote it. The log may lack these epochs, so
they are reported again when the checkpoint is restored. Only the best completed trials keep their checkpoints.
"""

from __future__ import annotations

import errno
import json
import math
import shutil
import time
import zlib
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sweep.backends import features
from sweep.backends.job import checkpoint_key
from sweep.contract import Trainable
from sweep.errors import StoreAway, StoreError, first_line, in_short
from sweep.events import EpochReported, Inputs, Role, Status, decode, encode
from sweep.store.disk import get_process_name, removed_if_it_fails
from sweep.store.features import store_of
from sweep.store.ledger import Change, Ended, Reopened

if TYPE_CHECKING:
    from sweep.backends.features import Sender
    from sweep.spec import Spec  # workers do not read sweep files

MANIFEST = "sweep_manifest.json"
_DELETED = ".deleted-"
_UNUSABLE = "unusable-"  # prefix of the folders of checkpoints that could not be restored


class Damaged(Exception):
    """A checkpoint differs from what was written: files are missing, changed or unreadable."""


class Unreadable(Damaged):
    """The disk cannot read a file of a checkpoint at present; the checkpoint may be undamaged."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What sweep stores about a checkpoint besides the trainable's files."""

    epoch: int
    accumulate: int = 1
    loss: float = math.inf  # by `Objective.ranking_loss`, at this epoch
    reports: tuple[EpochReported, ...] = ()  # epochs of the step that wrote it
    inputs: Inputs | None = None  # what the trial had read until then
    trained_s: float = 0.0  # seconds of its epochs until then, of a trial with minutes


def get_trial_folder(results_folder: Path, trial: int) -> Path:
    """Return the path of the folder of a trial's checkpoints on this machine, whether it exists or not."""
    return results_folder / checkpoint_key(trial)


def order_by_epoch(name: str) -> tuple[int, str]:
    """Return a sort key for names such as ``epoch-000007`` that orders them by epoch, the smallest first.

    Epochs have six digits or more, so longer names come later.
    """
    return len(name), name


def _sort_newest_first(folder: Path) -> list[Path]:
    """Return the folders of the complete checkpoints in a trial's folder, the latest epoch first; [] if none."""
    return sorted(folder.glob("epoch-*"), key=lambda path: order_by_epoch(path.name), reverse=True)


def list_newest_first(results_folder: Path, trial: int) -> list[Path]:
    """Return the folders of a trial's complete checkpoints on this machine, unverified, the latest epoch first."""
    return _sort_newest_first(get_trial_folder(results_folder, trial))


def fetch_checkpoints(results_folder: Path, trial: int, patience_s: float = 0.0) -> Iterator[Path]:
    """Yield the folders of a trial's checkpoints, unverified, that of the latest epoch first.

    If results are in an object store, only the checkpoints there count. Each one is copied into ``results_folder``
    before it is yielded, unless it is there already; one that was deleted meanwhile is left out. While iterating,
    `StoreError` is raised if the store is unavailable for longer than ``patience_s`` seconds, and OSError if this
    machine's disk cannot be written.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is None:
        return iter(list_newest_first(results_folder, trial))
    return stored.fetch(results_folder, trial, patience_s)


def ensure_local(results_folder: Path, checkpoint: Path) -> Path:
    """Return the folder of a checkpoint on this machine; copy it from the object store if this machine lacks it.

    ``checkpoint`` is the folder's path on the machine of rank 0, ``.../TRIAL/epoch-NUMBER``. It may differ from the
    path here, because results in an object store are copied to a temporary folder of each machine. Later checkpoints of
    the trial are copied too. The returned folder does not exist if there is no store or the store lacks the checkpoint.
    Raises `StoreError` at once if the store is unavailable, and OSError if this machine's disk cannot be written.
    """
    trial = int(checkpoint.parent.name)
    here = get_trial_folder(results_folder, trial) / checkpoint.name
    if not here.is_dir():
        # Each step of the iteration copies one checkpoint, later ones first, until this one was copied.
        next((path for path in fetch_checkpoints(results_folder, trial) if path == here), None)
    return here


def list_names(results_folder: Path, trial: int) -> list[str]:
    """Return the names of a trial's checkpoints, such as ``epoch-000007``, that of the latest epoch first.

    If results are in an object store, they are those in the store. Raises `StoreAway` if it is unavailable.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is None:
        return [path.name for path in list_newest_first(results_folder, trial)]
    return stored.list_names(trial)


def list_trials(results_folder: Path) -> set[int]:
    """Return the numbers of the trials that have a complete checkpoint, which is not verified.

    In an object store, trials with only an incomplete checkpoint count too. Raises `StoreAway` if the store is
    unavailable.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is not None:
        return stored.list_trials()
    found = (path.parent.name for path in (results_folder / "checkpoints").glob("[0-9]*/epoch-*"))
    # not a copy that somebody has made, such as 00003-old
    return {int(name) for name in found if name.isdecimal()}


def list_trials_with_files(results_folder: Path) -> set[int]:
    """Return the numbers of the trials that have checkpoint files, even if only of an incomplete checkpoint.

    Without an object store, an empty folder counts too. Raises `StoreAway` if the store is unavailable.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is not None:
        return stored.list_trials()
    numbers = set()
    for path in (results_folder / "checkpoints").glob("[0-9]*"):
        if path.name.isdecimal():  # not a copy that somebody has made, such as 00003-old
            numbers.add(int(path.name))
    return numbers


def find_epoch_checkpoint(results_folder: Path, trial: int, epoch: int) -> str | None:
    """Return the path of the checkpoint of a trial's epoch, relative to the results folder; None if there is none.

    If results are in an object store, it may exist only there, and not on this machine. Raises `StoreAway` if the store
    is unavailable.
    """
    name = _name_checkpoint(epoch)
    if name not in list_names(results_folder, trial):
        return None
    return f"{checkpoint_key(trial)}/{name}"


def _name_checkpoint(epoch: int) -> str:
    """Return the name of the checkpoint of an epoch, such as ``epoch-000007``."""
    return f"epoch-{epoch:06d}"


def begin_checkpoint(
    folder: Path,
    manifest: Manifest,
    save: Callable[[Path], Callable[[], None] | None],
    keep: int,
    unusable: Iterable[str] = (),
) -> Callable[[], Path]:
    """Begin a checkpoint: call ``save`` with a temporary folder now, and return a function that completes it.

    The returned function may be called once, in any thread. It calls what ``save`` returned, unless that is None,
    writes the manifest, and renames the folder, which replaces an earlier checkpoint of the same epoch. Then it renames
    the checkpoints with the names ``unusable``, so that they no longer count as checkpoints. It deletes all others in
    ``folder``, the trial's folder, except the new one, the best and the ``keep`` newest, and returns the new one's
    folder. If ``save`` or the returned function raises, the temporary folder is deleted. This process must begin no
    other checkpoint in ``folder`` before the returned function has ended.
    """
    final = folder / _name_checkpoint(manifest.epoch)
    aside = folder / f"writing-{get_process_name()}"

    # called later, with what `save` has returned, perhaps in another thread
    def finish(write: Callable[[], None] | None) -> Path:
        with removed_if_it_fails(aside):
            if write is not None:
                write()
            _write_manifest(aside, manifest)
            # an earlier attempt may have left one of this epoch
            shutil.rmtree(final, ignore_errors=True)
            aside.rename(final)
        for name in unusable:
            if name != final.name:
                _set_aside(folder / name)
        trim(folder, keep, final.name)
        return final

    # left by a checkpoint that was begun and never completed
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with removed_if_it_fails(aside):
        return partial(finish, save(aside))


def _set_aside(checkpoint: Path) -> None:
    """Rename an unusable checkpoint, so that it no longer counts as one; do nothing if it does not exist.

    It is not deleted yet: it can be used again if the author corrects the code that failed to restore it. One of the
    same epoch that was renamed before is deleted. Errors are ignored.
    """
    aside = checkpoint.with_name(f"{_UNUSABLE}{checkpoint.name}")
    shutil.rmtree(aside, ignore_errors=True)
    with suppress(OSError):
        checkpoint.rename(aside)


def read_verified_manifest(checkpoint: Path) -> Manifest:
    """Return the manifest of the checkpoint in the folder ``checkpoint``.

    Raises:
        Damaged: if the manifest is missing or unreadable, or a file that it names is missing or has changed.
        Unreadable: a subclass of `Damaged`, if the disk cannot read one of these files at present.
    """
    try:
        about = json.loads((checkpoint / MANIFEST).read_bytes())
        found = _list_file_checksums(checkpoint)
        for name, expected in about["files"].items():
            if found.get(name) != expected:
                raise Damaged(f"{name} is damaged" if name in found else f"{name} is missing")
        return _parse_manifest(about)
    except (ValueError, KeyError, TypeError, AttributeError, StoreError) as error:
        raise Damaged(f"{MANIFEST} is unreadable ({in_short(error)})") from error
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        error_class = Damaged if is_missing else Unreadable
        raise error_class(f"{MANIFEST} is unreadable ({in_short(error)})") from error


def trim(folder: Path, keep: int, written: str = "") -> None:
    """Delete a trial's local checkpoints except the ``keep`` newest, the one with the smallest loss, and ``written``.

    ``written`` is the name of the one just written; an earlier attempt may have left checkpoints of later epochs. The
    loss is that in the manifest, infinity if it is damaged; of equal losses, that of the latest epoch counts as the
    smallest. Incomplete checkpoints are deleted too, so none may be being written. What cannot be deleted is left.
    """
    newest = _sort_newest_first(folder)
    losses = {path.name: _read_loss(path) for path in newest}
    spared = {written, *select_kept([path.name for path in newest], losses, keep)}
    for path in (*newest, *folder.glob("writing-*")):
        if path.name not in spared:
            shutil.rmtree(path, ignore_errors=True)


def select_kept(newest: Sequence[str], losses: Mapping[str, float], keep: int) -> set[str]:
    """Return the names of the checkpoint with the smallest loss and of the first ``keep`` in ``newest``.

    ``newest`` has all names, the latest epoch first, and ``losses`` has the loss of each. Of equal losses, the first in
    this order counts as the smallest.
    """
    spared = set(newest[:keep])
    if newest:
        spared.add(min(newest, key=lambda name: losses[name]))
    return spared


def keep_best(results_folder: Path, trial: int) -> int:
    """Delete an ended trial's checkpoints except the last and the best; return the total bytes that are left.

    Incomplete ones, and unusable ones, which `begin_checkpoint` has renamed, are deleted too. If results are in an
    object store, this is done only there, and incomplete ones stay. Raises `StoreAway` if the store is unavailable.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is not None:
        return stored.keep_best(trial)
    folder = get_trial_folder(results_folder, trial)
    trim(folder, keep=1)
    for path in folder.glob(f"{_UNUSABLE}*"):
        shutil.rmtree(path, ignore_errors=True)
    return measure_folder(folder)


def delete_checkpoints(results_folder: Path, trial: int) -> None:
    """Delete all checkpoints of a trial in the object store and on this machine.

    This is safe even while a worker that is considered lost still writes them. Never raises. What cannot be deleted now
    is left to `finish_deletions` or the next session's `CheckpointKeeper`.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is not None:
        with suppress(StoreAway):
            stored.delete(trial)
    folder = get_trial_folder(results_folder, trial)
    aside = folder.with_name(f"{_DELETED}{trial:05d}-{get_process_name()}-{time.monotonic_ns()}")
    with suppress(OSError):  # also if the trial has no folder
        folder.rename(aside)  # at once, so that whoever writes there writes into the deleted folder
        shutil.rmtree(aside, ignore_errors=True)


def finish_deletions(results_folder: Path) -> None:
    """Delete what `delete_checkpoints` has marked as deleted on this machine but could not delete; ignore errors."""
    for path in (results_folder / "checkpoints").glob(f"{_DELETED}*"):
        shutil.rmtree(path, ignore_errors=True)


def measure_folder(folder: Path) -> int:
    """Return the total bytes of all files in a folder and below it; 0 if there is no such folder.

    Files that vanish or cannot be looked at count as 0.
    """
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # just deleted by its writer
            if path.is_file():
                total += path.stat().st_size
    return total


def upload(results_folder: Path, trial: int) -> None:
    """Upload a trial's checkpoints to the object store and delete the local files; do nothing without a store.

    An unavailable store is tried again for up to 300 s. If that fails, `StoreError` is raised and nothing is deleted.
    """
    stored = features.find_stored_checkpoints(results_folder)
    if stored is not None:
        stored.upload(get_trial_folder(results_folder, trial), trial)
        delete_local_copy(results_folder, trial)


def delete_local_copy(results_folder: Path, trial: int) -> None:
    """Delete a trial's local checkpoints, uploaded or not; do nothing if the results are not in an object store."""
    if store_of(results_folder) is not None:
        shutil.rmtree(get_trial_folder(results_folder, trial), ignore_errors=True)


def _read_loss(checkpoint: Path) -> float:
    """Return the loss in a checkpoint's manifest; infinity if the manifest is missing or damaged, or has none."""
    try:
        return parse_loss((checkpoint / MANIFEST).read_bytes())
    except OSError:
        return math.inf


def parse_loss(manifest: bytes | None) -> float:
    """Return the loss in the text of a manifest; infinity if ``manifest`` is None or damaged, or its loss is null."""
    try:
        return _parse_manifest(json.loads(manifest or b"")).loss
    except (ValueError, KeyError, TypeError, AttributeError, StoreError):
        return math.inf  # a damaged checkpoint is never the best


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a checkpoint, with the checksums of all files that are in its folder now.

    Raises OSError if a file cannot be read or written, and `StoreError` if a report is no valid event.
    """
    about = {
        "epoch": manifest.epoch,
        "accumulate": manifest.accumulate,
        "loss": manifest.loss if math.isfinite(manifest.loss) else None,
        "reports": [encode(report).decode() for report in manifest.reports],
        "inputs": None if manifest.inputs is None else msgspec.to_builtins(manifest.inputs),
        "files": _list_file_checksums(folder),
        **({"trained_s": manifest.trained_s} if manifest.trained_s else {}),
    }
    (folder / MANIFEST).write_text(json.dumps(about))


def _parse_manifest(about: dict[str, object]) -> Manifest:
    """Convert the parsed JSON of a manifest's file to a `Manifest`.

    A loss that is no float, such as null, becomes infinity. ``inputs`` and ``trained_s`` may be missing. Raises
    KeyError if the epoch, the number of micro-batches, the reports or the loss are missing, or one of the first three
    has another type. Raises `StoreError` or ValueError if a report is unreadable, and ValueError if the inputs are.
    """
    match about:
        case {
            "epoch": int(epoch),
            "accumulate": int(accumulate),
            "reports": list(lines),
            "loss": loss,
        }:
            events = [decode(str(line).encode()) for line in lines]
            reports = tuple(event for event in events if isinstance(event, EpochReported))
            inputs = about.get("inputs")  # releases before 0.1 kept none
            trained_s = about.get("trained_s", 0.0)  # written only for trials with minutes
            return Manifest(
                epoch,
                accumulate,
                # JSON has no infinity, `_write_manifest` writes null
                loss if isinstance(loss, float) else math.inf,
                reports,
                None if inputs is None else msgspec.convert(inputs, Inputs),
                trained_s if isinstance(trained_s, float) else 0.0,
            )
    raise KeyError("epoch, accumulate, loss, reports")


def _list_file_checksums(folder: Path) -> dict[str, list[int]]:
    """Return [size, CRC-32] of every file in a folder and below it except manifests, by path relative to the folder.

    Raises OSError if a file cannot be read.
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    checksums = {}
    for path in paths:
        checksums[path.relative_to(folder).as_posix()] = _compute_checksum(path)
    return checksums


def _compute_checksum(path: Path) -> list[int]:
    """Return [size in bytes, CRC-32] of a file. Raises OSError if it cannot be read."""
    size = total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size += len(block)
            total = zlib.crc32(block, total)
    return [size, total]


SAVING_SHARE = 0.1  # largest share of the time that checkpoints of better epochs may take
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})


class DiskFault(Exception):
    """A checkpoint cannot be written because of a disk or an object store; the trial is not at fault."""


@dataclass(slots=True)
class Saver:
    """Saves the checkpoints of one trial into ``folder``, one at a time.

    ``save``, ``settle`` and ``finish`` raise DiskFault, and any exception of the trainable's own ``save``. A ``sender``
    uploads complete checkpoints to an object store. Those with the names ``unusable``, of an earlier attempt of the
    trial, are renamed once this attempt has completed a checkpoint, so that they do not count as the newest or best.
    """

    folder: Path
    every_s: float
    keep: int
    pause_s: float  # minimum seconds between two checkpoints of a better epoch
    best: float = math.inf  # smallest loss of all epochs so far
    epoch: int = 0  # of the checkpoint that was last saved or restored; 0 if there is none
    sender: Sender | None = None
    unusable: tuple[str, ...] = ()  # names of checkpoints that could not be restored
    blocked_s: float = 0.0  # total seconds that training waited for checkpoints
    # when the last checkpoint was begun or, before the first, this object was created; by the monotonic clock
    _last_began: float = field(default_factory=time.monotonic)
    _last_took_s: float = 0.0  # seconds that the last complete checkpoint took
    # the checkpoint that a thread completes, whose result is the seconds that it took
    _writing: Future[float] | None = None

    def is_due(self, losses: Sequence[float]) -> bool:
        """Return whether a checkpoint is due, and update `best` from ``losses``.

        ``losses`` are those of the epochs in this step, at least one. A checkpoint is due `every_s` seconds after the
        last one was begun or, before the first, after this object was created. After a shorter time, it is due only if
        the last epoch has the smallest loss so far; the time must then be at least `pause_s` seconds and ten times as
        long as the last saving took.
        """
        since_s = time.monotonic() - self._last_began
        before = self.best
        self.best = min([self.best, *losses])
        if since_s >= self.every_s:
            return True
        # only the state after the last epoch can be saved
        is_better = losses[-1] == self.best < before
        cheap_after_s = max(self.pause_s, self._last_took_s / SAVING_SHARE)
        return is_better and since_s >= cheap_after_s

    def save(self, trainable: Trainable, manifest: Manifest, *, beside: bool) -> None:
        """Save the trainable, unless the epoch of ``manifest`` is saved already; wait for an earlier checkpoint first.

        The checkpoints in `unusable` are then renamed. With ``beside``, the files are completed in a thread while
        training continues, and errors are raised by the next call of `save`, `settle` or `finish`. The time that
        training waits here is added to `blocked_s`. Raises DiskFault, and any exception of the trainable's own
        ``save``.
        """
        self.settle()
        if self.epoch == manifest.epoch:
            return
        began = time.monotonic()
        # `self.unusable` is emptied: they are renamed only once, because this attempt may save the same epochs
        unusable, self.unusable = self.unusable, ()
        with raising_disk_faults():
            write = self._make_uploading_write(
                begin_checkpoint(self.folder, manifest, trainable.save, self.keep, unusable)
            )
            self.epoch = manifest.epoch
            self._last_began = time.monotonic()
            if beside:
                pool = ThreadPoolExecutor(1, "checkpoint")
                self._writing = pool.submit(_time_writing, write, began)
                pool.shutdown(wait=False)  # does not wait: its thread ends after this task
            else:
                self._last_took_s = _time_writing(write, began)
        self.blocked_s += time.monotonic() - began

    def find_last_checkpoint(self) -> Path | None:
        """Return the folder of the checkpoint that was last saved or restored; None if there is none or it is gone.

        One that a thread is still writing does not exist yet.
        """
        path = self.folder / _name_checkpoint(self.epoch)
        return path if path.is_dir() else None

    def settle(self) -> None:
        """Wait until the checkpoint that a thread is writing is complete; do nothing if none is being written.

        Raises DiskFault if it could not be written or an earlier upload has failed, and any exception of the
        trainable's own ``save``.
        """
        if self._writing is None:
            return
        began = time.monotonic()
        writing = self._writing
        self._writing = None  # before its error is raised, which must be raised only once
        with raising_disk_faults():
            self._last_took_s = writing.result()
        self.blocked_s += time.monotonic() - began

    def settle_uploads(self) -> None:
        """Wait until all complete checkpoints are uploaded; do nothing without an object store.

        Raises DiskFault if one could not be uploaded.
        """
        if self.sender is None:
            return
        began = time.monotonic()
        with raising_disk_faults():
            self.sender.settle()
        self.blocked_s += time.monotonic() - began

    def finish(self, *, kept: bool = True) -> None:
        """Wait until the last checkpoint is complete and, if it will be ``kept``, uploaded; then end the uploads.

        The uploads are ended even if an error is raised: those that have not begun are dropped. With a `sender`, no
        checkpoint can be saved afterwards. Raises DiskFault, and any exception of the trainable's own ``save``.
        """
        try:
            self.settle()
            if kept:
                self.settle_uploads()
        finally:
            if self.sender is not None:
                self.sender.close()

    def _make_uploading_write(self, write: Callable[[], Path]) -> Callable[[], Path]:
        """Return a function that calls ``write``, then starts the upload if there is a sender.

        It returns the result of ``write``.
        """

        def written() -> Path:
            path = write()
            if self.sender is not None:
                self.sender.send()
            return path

        return written


@contextmanager
def raising_disk_faults() -> Iterator[None]:
    """Raise `DiskFault` instead if the block raises a `StoreError` or an error of a full, broken or read-only disk.

    Other exceptions pass unchanged.
    """
    try:
        yield
    except Exception as error:
        if is_disk_fault(error) or isinstance(error, StoreError):
            raise DiskFault(f"a checkpoint cannot be written: {first_line(error)}") from error
        raise


def _time_writing(write: Callable[[], Path], began: float) -> float:
    """Complete a checkpoint by calling ``write``; return the seconds since ``began``, a time of the monotonic clock."""
    write()
    return time.monotonic() - began


def is_disk_fault(error: BaseException) -> bool:
    """Return whether an error says that a disk is full, broken or read-only.

    That is decided by the code of an OSError or, for a full disk only, by the message of any error.
    """
    known = isinstance(error, OSError) and error.errno in _DISK_ERRORS
    return known or "No space left on device" in str(error)


GB = 1_000_000_000


@dataclass(frozen=True, slots=True, order=True)
class _KeptCheckpoints:
    """The checkpoints that a completed trial keeps, ordered by how long it keeps them: the first are deleted last."""

    # False for the fresh seeds of a confirmation, which are all needed for the test
    is_outside_confirmation: bool
    loss: float
    trial: int
    size: int = field(compare=False)  # bytes


class CheckpointKeeper:
    """Deletes the checkpoints of ended trials, except the last and best ones of the best completed trials.

    The fresh seeds of a confirmation come before all other trials: a finalist is tested only if all of its seeds have a
    checkpoint. How many trials and bytes are kept is limited by ``checkpoint`` in the sweep file.
    """

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._folder = folder
        self._objective = spec.objectives[0]
        self._most_trials = spec.checkpoint.trials
        self._most_bytes = spec.checkpoint.space_gb * GB
        self._kept: list[_KeptCheckpoints] = []  # in their order
        self._deleted_trials: set[int] = set()  # ended trials whose checkpoints were deleted
        # trials that had checkpoints before this session
        self._earlier_trials = list_trials_with_files(folder)
        self._recalled: dict[int, Ended] = {}  # by trial in `_earlier_trials`: its last logged end
        # completed trials for which the store was unavailable, as arguments of `_keep`: trial, loss, and whether it is
        # outside the confirmation
        self._to_retry: list[tuple[int, float, bool]] = []
        self._kept_bytes = 0  # bytes of all in `_kept`
        self._full = False  # whether a further trial is kept only in place of a worse one

    def to_beat(self) -> float | None:
        """Return the loss below which a completing trial must be for its checkpoints to be kept; None if there is room.

        It is minus infinity while only trials of a confirmation are kept, because they come before those of the search.
        Checkpoints of a trial below it may still be too large to be kept.
        """
        if not self._full:
            return None
        last = self._kept[-1]
        # -inf: all are fresh seeds, which are kept before trials of the search
        return last.loss if last.is_outside_confirmation else -math.inf

    def recall(self, change: Change) -> None:
        """Remember how a trial ended in an earlier session, until `begin` keeps or deletes its checkpoints.

        Only trials that had checkpoint files when this object was created count. If the trial was reopened, its end is
        forgotten; other changes are ignored.
        """
        match change:
            case Ended(trial) if trial.number in self._earlier_trials:
                self._recalled[trial.number] = change
            case Reopened(trial):  # it resumes from its checkpoint
                self._recalled.pop(trial.number, None)
            case _:
                pass

    def begin(self) -> None:
        """Keep or delete the checkpoints of trials that ended in earlier sessions, as last passed to `recall`."""
        for change in self._recalled.values():
            self.on(change)
        self._recalled.clear()

    def close(self) -> None:
        """Delete checkpoints that workers wrote after the driver had deleted those of their trials.

        Trials for which the object store was unavailable are tried once more. Raises nothing if it still is.
        """
        self._retry_later_ones()
        with suppress(StoreAway):
            for trial in list_trials_with_files(self._folder) & self._deleted_trials:
                delete_checkpoints(self._folder, trial)

    def on(self, change: Change) -> None:
        """Keep or delete the checkpoints of a trial when it ends permanently; other changes delete none.

        The last and best checkpoints of a trial that has completed with a finite loss and was saved are kept. If there
        are then too many trials or bytes, those of the last trials in the order of `_KeptCheckpoints` are deleted,
        perhaps of this one, but never those of the first: the best fresh seed of a confirmation or, without one, the
        best trial. The checkpoints of a trial that has ended otherwise are deleted.
        """
        if isinstance(change, Reopened):
            # it will write checkpoints again, which `close` must not delete
            self._deleted_trials.discard(change.trial.number)
        if not isinstance(change, Ended):
            return
        self._retry_later_ones()
        trial = change.trial
        loss = self._objective.constrained_loss(trial.last)  # None if it is not finite
        saved = trial.status is Status.COMPLETED and trial.facts.checkpoint is not None
        if not saved or loss is None:
            self._delete(trial.number)
        else:
            self._keep(trial.number, loss, is_outside_confirmation=trial.role is not Role.CONFIRM)

    def _delete(self, trial: int) -> None:
        """Delete the checkpoints of an ended trial, and remember the trial, so that `close` deletes later ones."""
        self._deleted_trials.add(trial)
        delete_checkpoints(self._folder, trial)

    def _retry_later_ones(self) -> None:
        """Try again to keep checkpoints for which the object store was unavailable; they stay noted if it still is."""
        waiting, self._to_retry = self._to_retry, []
        for trial, loss, is_outside_confirmation in waiting:
            self._keep(trial, loss, is_outside_confirmation=is_outside_confirmation)

    def _keep(self, trial: int, loss: float, *, is_outside_confirmation: bool) -> None:
        """Keep the last and best checkpoints of a completed trial, unless enough other trials come before it.

        While there are too many trials or bytes, the checkpoints of the last trial in the order of `_KeptCheckpoints`
        are deleted, which may be this one; the first trial always keeps its own. If the object store is unavailable,
        the trial is noted for `_retry_later_ones`.
        """
        self._deleted_trials.discard(trial)
        try:
            kept = _KeptCheckpoints(
                is_outside_confirmation, loss, trial, keep_best(self._folder, trial)
            )
        except StoreAway:
            self._to_retry.append((trial, loss, is_outside_confirmation))
            return
        if not kept.size:  # somebody has deleted the checkpoints
            return
        insort(self._kept, kept)  # in its order, so that the last one is the first to be deleted
        self._kept_bytes += kept.size
        while len(self._kept) > 1 and (
            len(self._kept) > self._most_trials or self._kept_bytes > self._most_bytes
        ):
            worst = self._kept.pop()
            self._kept_bytes -= worst.size
            self._delete(worst.trial)
            self._full = True
        # With as many trials as allowed, the next one is kept only in place of a worse one.
        self._full = self._full or len(self._kept) >= self._most_trials
