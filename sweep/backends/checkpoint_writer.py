"""When a trial's checkpoints are due, and writing them beside its training."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sweep.backends import checkpoint_folders
from sweep.backends.checkpoint_folders import Manifest
from sweep.contract import Trainable
from sweep.errors import first_line

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
        """Whether it is time for one, or the last of these epochs is the best so far and saving it is cheap."""
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
            write = checkpoint_folders.begin(self.folder, manifest, trainable.save, self.keep)
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
    """Whether an error says that a disk is full, broken or not to be written to."""
    known = isinstance(error, OSError) and error.errno in _DISK_ERRORS
    return known or "No space left on device" in str(error)
