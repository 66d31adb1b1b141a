"""A trial's checkpoints: when one is due, how it is written beside the training, and where it lies.

They lie in ``checkpoints/<trial>/epoch-<n>``, written aside, renamed, and verified when read. Beside what the trainable
writes lies a manifest: size and checksum of each file, and the epochs that were trained in the step that wrote it.
They may never have reached the log; whoever restores the checkpoint reports them again.
"""

from __future__ import annotations

import errno
import json
import math
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sweep.contract import Trainable
from sweep.errors import StoreError, first_line
from sweep.events import EpochReported
from sweep.store.disk import process
from sweep.store.records import decode, encode

MANIFEST = "sweep_manifest.json"
_DELETED = ".deleted-"


class Damaged(Exception):
    """A checkpoint is not what was written."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What sweep itself knows of a checkpoint."""

    epoch: int
    accumulate: int = 1
    loss: float = math.inf  # the objective at this epoch, as something to minimise
    reports: tuple[EpochReported, ...] = ()  # of the step that wrote it


def of_trial(results_folder: Path, trial: int) -> Path:
    """Return the folder of one trial's checkpoints."""
    return results_folder / "checkpoints" / f"{trial:05d}"


def newest_first(results_folder: Path, trial: int) -> list[Path]:
    """Return a trial's checkpoints."""
    return sorted(of_trial(results_folder, trial).glob("epoch-*"), reverse=True)


def of_epoch(results_folder: Path, trial: int, epoch: int) -> str | None:
    """Return the checkpoint of a trial's epoch, relative to the results folder; None where there is none."""
    path = of_trial(results_folder, trial) / f"epoch-{epoch:06d}"
    return str(path.relative_to(results_folder)) if path.is_dir() else None


def begin(
    folder: Path, manifest: Manifest, save: Callable[[Path], Callable[[], None] | None], keep: int
) -> Callable[[], Path]:
    """Let ``save`` fill a folder aside.

    What is returned does the rest, in whatever thread: it calls what ``save`` returned, renames the folder into place
    and keeps the best and the ``keep`` newest.
    """
    final = folder / f"epoch-{manifest.epoch:06d}"
    aside = folder / f"writing-{process()}"

    def finish(write: Callable[[], None] | None) -> Path:
        with _removed_if_it_fails(aside):
            if write is not None:
                write()
            _write_manifest(aside, manifest)
            shutil.rmtree(final, ignore_errors=True)  # one that could not be restored
            aside.rename(final)
        trim(folder, keep)
        return final

    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with _removed_if_it_fails(aside):
        return partial(finish, save(aside))


@contextmanager
def _removed_if_it_fails(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # a full disk needs the room
        raise


def verify(checkpoint: Path) -> Manifest:
    """Return its manifest, after a look at every byte. Raises `Damaged`."""
    try:
        about = json.loads((checkpoint / MANIFEST).read_bytes())
        found = _files(checkpoint)
        for name, expected in about["files"].items():
            if found.get(name) != expected:
                raise Damaged(f"{name} is damaged" if name in found else f"{name} is missing")
        return _manifest(about)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError) as error:
        raise Damaged(f"{MANIFEST} is unreadable ({type(error).__name__}: {error})") from error


def trim(folder: Path, keep: int) -> None:
    """Delete a trial's checkpoints but for the best and the ``keep`` newest, and what killed writers left."""
    newest = sorted(folder.glob("epoch-*"), reverse=True)
    spared = {*newest[:keep], *([min(newest, key=_loss)] if newest else [])}
    for path in (*newest, *folder.glob("writing-*")):
        if path not in spared:
            shutil.rmtree(path, ignore_errors=True)


def delete(results_folder: Path, trial: int) -> None:
    """Free the space of a trial's checkpoints, for good though a worker that was given up may still write there.

    Never raises: what cannot be deleted now, `clean` tries again in the next session.
    """
    doomed = of_trial(results_folder, trial)
    aside = doomed.with_name(f"{_DELETED}{trial:05d}-{process()}-{time.monotonic_ns()}")
    with suppress(OSError):
        doomed.rename(aside)  # at once: whoever writes into it writes into what is being deleted
        shutil.rmtree(aside, ignore_errors=True)


def clean(results_folder: Path) -> None:
    """Delete what `delete` could not."""
    for path in (results_folder / "checkpoints").glob(f"{_DELETED}*"):
        shutil.rmtree(path, ignore_errors=True)


def size(folder: Path) -> int:
    """Return the bytes of all files of a trial's checkpoints."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # deleted by its writer just now
            total += path.stat().st_size if path.is_file() else 0
    return total


def _loss(checkpoint: Path) -> float:
    try:
        return _manifest(json.loads((checkpoint / MANIFEST).read_bytes())).loss
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError):
        return math.inf  # damaged: no best one


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    about = {
        "epoch": manifest.epoch,
        "accumulate": manifest.accumulate,
        "loss": manifest.loss if math.isfinite(manifest.loss) else None,
        "reports": [encode(report).decode() for report in manifest.reports],
        "files": _files(folder),
    }
    (folder / MANIFEST).write_text(json.dumps(about))


def _manifest(about: dict[str, object]) -> Manifest:
    match about:
        case {"epoch": int(epoch), "accumulate": int(accumulate), "reports": list(lines), "loss": loss}:
            return Manifest(
                epoch, accumulate, loss if isinstance(loss, float) else math.inf, _reports([str(x) for x in lines])
            )
    raise KeyError("epoch, accumulate, loss, reports")


def _reports(lines: Sequence[str]) -> tuple[EpochReported, ...]:
    events = [decode(line.encode()) for line in lines]
    return tuple(event for event in events if isinstance(event, EpochReported))


def _files(folder: Path) -> dict[str, list[int]]:
    """Size and CRC-32 of every file by its relative path."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): _sum(path) for path in paths}


def _sum(path: Path) -> list[int]:
    size = total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size += len(block)
            total = zlib.crc32(block, total)
    return [size, total]


SAVING_SHARE = 0.1  # of the time, at most, goes into checkpoints of a better epoch
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG})


class DiskFault(Exception):
    """A checkpoint cannot be written, for a reason that is no trial's fault."""


@dataclass(slots=True)
class Saver:
    """Saves one trial into ``folder``; one checkpoint is written at a time.

    ``save`` and ``settle`` raise DiskFault, and whatever else the trainable's own ``save`` raises.
    """

    folder: Path
    every_s: float
    keep: int
    pause_s: float  # at least between two checkpoints of a better epoch
    best: float = math.inf  # the least loss of all epochs heard of
    epoch: int = 0  # the last one saved
    blocked_s: float = 0.0  # training waited for checkpoints, all in all
    _at: float = field(default_factory=time.monotonic)
    _took_s: float = 0.0
    _writing: Future[float] | None = None

    def is_due(self, losses: Sequence[float]) -> bool:
        """Return whether it is time for one, or the last of these epochs is the best so far and saving it is cheap."""
        since_s = time.monotonic() - self._at
        before, self.best = self.best, min([self.best, *losses])
        better = losses[-1] == self.best < before
        return since_s >= self.every_s or (better and since_s >= max(self.pause_s, self._took_s / SAVING_SHARE))

    def save(self, trainable: Trainable, manifest: Manifest, *, beside: bool) -> None:
        """Save the present epoch, unless it is saved; ``beside``: let training go on while it is written."""
        self.settle()
        if self.epoch == manifest.epoch:
            return
        began = time.monotonic()
        with _disk_faults():
            write = begin(self.folder, manifest, trainable.save, self.keep)
            self.epoch, self._at = manifest.epoch, time.monotonic()
            if beside:
                pool = ThreadPoolExecutor(1, "checkpoint")
                self._writing = pool.submit(_timed, write, began)
                pool.shutdown(wait=False)
            else:
                self._took_s = _timed(write, began)
        self.blocked_s += time.monotonic() - began

    def settle(self) -> None:
        """Wait until what is being written is whole."""
        if self._writing is None:
            return
        began, writing, self._writing = time.monotonic(), self._writing, None
        with _disk_faults():
            self._took_s = writing.result()
        self.blocked_s += time.monotonic() - began


@contextmanager
def _disk_faults() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if is_disk_fault(error):
            raise DiskFault(f"a checkpoint cannot be written: {first_line(error)}") from error
        raise


def _timed(write: Callable[[], Path], began: float) -> float:
    write()
    return time.monotonic() - began


def is_disk_fault(error: BaseException) -> bool:
    """Return whether an error says that a disk is full, broken or not to be written to."""
    known = isinstance(error, OSError) and error.errno in _DISK_ERRORS
    return known or "No space left on device" in str(error)
