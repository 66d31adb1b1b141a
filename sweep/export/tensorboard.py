"""Exports a sweep as TensorBoard event files, which follow the log incrementally.

The files are determined by the log, byte for byte. ``written.json`` records how far they go. Anything that a killed
process wrote beyond that is truncated and written again, so that nothing is lost or duplicated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO

from sweep.analysis import studies
from sweep.analysis.numbering import Numbering, follow_numbering
from sweep.errors import RefusedError, StoreError
from sweep.events import Role, TrialStarted
from sweep.export import runs
from sweep.space.domains import Domain, configuration_key
from sweep.store import log
from sweep.store.disk import replacing, storing
from sweep.store.folder import ResultsFolder
from sweep.store.follower import Follower
from sweep.store.ledger import Change, Ended, Ledger, Reopened, Reported, Started, TrialState
from sweep.store.locks import HAS_LOCKS, lock

PERIOD_S = 2.0
FORMAT = 5
FLUSH_BYTES = 1_000_000  # the interval in bytes of the log at which the events are written out
_FILE = "events.out.tfevents.{:010d}.sweep"
_PATTERN = "events.out.tfevents.*.sweep"


def import_events() -> ModuleType:
    """Import and return `sweep.export.tensorboard_events`. Raises `InputError` if TensorBoard is not installed."""
    runs.import_extra("tensorboard.summary.writer.record_writer", "tensorboard", "tensorboard")
    return runs.import_extra("sweep.export.tensorboard_events", "tensorboard", "tensorboard")


@dataclass(slots=True)
class _EventFileState:
    """The size of one trial's event file, and where the record of its end begins."""

    size: int = 0
    # offset of the record of the trial's end, which is removed if the trial continues
    end: int | None = None


class EventFiles:
    """The TensorBoard event files of one sweep. Only one thread and one process may use them at a time.

    After an error, the object must be closed and another one made, which continues from what was saved. The constructor
    locks the folder. It raises `RefusedError` if another process holds the lock, and `StoreError` if the log is
    missing, although tables or event files were made from it.
    """

    def __init__(self, sweep: ResultsFolder, target: Path) -> None:
        self._events = import_events()
        self._sweep = sweep
        self._target = target
        info = sweep.read_info()
        self._spec: Mapping[str, object] = info.spec
        self._domains = self._read_domains()
        self._folds = info.folds
        # trials of each configuration when the sweep began
        self._trials_each = info.first_repeats * (info.folds or 1)
        self._lock = _lock_target(target)
        try:
            self._require_log()
            self._reset_state()
            self._restore_state()
        except BaseException:
            self._lock.close()
            raise

    def _require_log(self) -> None:
        """Raise `StoreError` if the sweep has tables or event files, but no log, from which they are made.

        This is so in a copy without the log, and in a folder that was downloaded from an object store.
        """
        is_begun = self._sweep.trials.exists() or (self._target / "written.json").exists()
        if is_begun and not self._sweep.log.exists():
            raise StoreError(
                f"{self._sweep.log}: is missing, and event files are made from it; put the log back"
            )

    def _reset_state(self) -> None:
        """Set the state of this object to that of a log of which nothing was read; the files themselves stay."""
        # how much of the log was read, and the `log.mark` of that byte when the state was saved last
        self._bytes_read, self._saved_mark = 0, ""
        self._ledger = Ledger(keep_epochs=False)
        self._numbering = Numbering(trials_each=self._trials_each)
        self._file_states: dict[int, _EventFileState] = {}
        self._declared_metrics: list[str] = []  # those that the file of the HParams tab declares
        self._pending: dict[int, bytearray] = {}  # by trial: records that are not written yet
        # trials whose files end where they should, so that records can be appended
        self._truncated: set[int] = set()

    def close(self) -> None:
        """Release the lock on the event files; nothing is written."""
        self._lock.close()

    def update(self) -> int:
        """Write the events that were added to the log since the last update; return the number of all trials so far.

        If the log was replaced, or a person has changed the space, all event files are deleted and written anew. If
        there is no log, nothing is written. How far the files go is saved in written.json. Raises `StoreError` if the
        log is damaged, sweep.json cannot be read, or the disk cannot be written.
        """
        path = self._sweep.log
        if not path.exists():
            return len(self._file_states)
        is_space_other = self._follow_space()
        if is_space_other or log.was_replaced(path, self._bytes_read, self._saved_mark):
            self._start_over()
        for change, end in self._ledger.follow(path, self._bytes_read):
            self._follow_numbering(change)
            self._process_change(change)
            before = self._bytes_read
            self._bytes_read = end
            # whenever the log passes a multiple of this size, so that a long log does not pile up in memory
            if end // FLUSH_BYTES > before // FLUSH_BYTES:
                self._write_pending()
        self._write_pending()
        self._save_state()
        return len(self._file_states)

    def _read_domains(self) -> Mapping[str, Domain | None] | None:
        """Return the domains of the parameters that vary, by name, as the sweep file is now; None if they are unknown.

        They are unknown if sweep.json has no parameters, or this version of sweep refuses its file.
        """
        space = studies.read_space(self._sweep)
        return None if space is None else space.varying

    def _follow_space(self) -> bool:
        """Read the domains again if the sweep file has changed; return whether they are others than before.

        The caller must then write all files anew: the HParams tab shows only trials whose values are in the domains
        that were declared.
        """
        spec = self._sweep.read_info().spec
        if spec == self._spec:
            return False
        before = self._domains
        self._spec, self._domains = spec, self._read_domains()
        return self._domains != before

    def _restore_state(self) -> None:
        """Restore the state that written.json has of an earlier process, so that `update` continues there.

        What a killed process has written to event files beyond that state is truncated. If there is no such state, or
        if it is damaged or of another format, log or space, or an event file is missing or too short, all event files
        are deleted, and `update` starts over. Raises `StoreError` if the log is damaged or files cannot be deleted.
        """
        try:
            saved = json.loads((self._target / "written.json").read_bytes())
            if saved["format"] != FORMAT:
                raise ValueError("another format")
            self._bytes_read = int(saved["log_bytes"])
            self._saved_mark = str(saved["mark"])
            is_space_other = saved["parameters"] != repr(self._domains)
            if is_space_other or log.was_replaced(
                self._sweep.log, self._bytes_read, self._saved_mark
            ):
                raise ValueError("another log or space")
            self._declared_metrics = saved["metrics"]
            for number, (size, end) in saved["trials"].items():
                self._file_states[int(number)] = _EventFileState(size, end)
            self._cut_files_to_size()
            # The ledger and the numbers of configurations are not stored, but follow from the log up to there.
            if self._bytes_read:
                for change, end_in_log in self._ledger.follow(self._sweep.log):
                    self._follow_numbering(change)
                    if end_in_log >= self._bytes_read:
                        break
        except (OSError, KeyError, TypeError, ValueError):  # also those that are raised above
            self._start_over()

    def _cut_files_to_size(self) -> None:
        """Truncate each event file that is longer than `_file_states` says.

        Raises ValueError if a file is shorter, and OSError if it is missing.
        """
        for number, file_state in self._file_states.items():
            size_on_disk = self._get_path(number).stat().st_size
            if size_on_disk < file_state.size:
                raise ValueError("a file is shorter than it was")
            if size_on_disk > file_state.size:
                os.truncate(self._get_path(number), file_state.size)

    def _start_over(self) -> None:
        """Delete all event files and reset the state; written.json stays until `_save_state`.

        Raises `StoreError` if a file cannot be deleted.
        """
        self._reset_state()
        with storing(self._target):
            for path in [*self._target.glob(f"*/{_PATTERN}"), *self._target.glob(_PATTERN)]:
                path.unlink()

    def _save_state(self) -> None:
        """Write to written.json how far the event files follow the log, so that `_restore_state` can continue there.

        Call it after `_write_pending`, because the sizes of files that it records count what is pending. Nothing is
        written if nothing of the log was read since the last call. Raises `StoreError` if the log cannot be read or the
        disk cannot be written.
        """
        mark = log.mark(self._sweep.log, self._bytes_read)
        if mark == self._saved_mark:
            return
        self._saved_mark = mark
        known = {
            "format": FORMAT,
            "log_bytes": self._bytes_read,
            "mark": mark,
            "metrics": self._declared_metrics,
            "parameters": repr(self._domains),
            "trials": {number: (one.size, one.end) for number, one in self._file_states.items()},
        }
        with replacing(self._target / "written.json") as path:
            path.write_text(json.dumps(known), encoding="utf-8")

    def _follow_numbering(self, change: Change) -> None:
        """Note a change of ``repeats``, after which a configuration has another number of trials; ignore any other."""
        self._numbering = follow_numbering(
            self._numbering, change, self._ledger.trials.values(), self._folds
        )

    def _process_change(self, change: Change) -> None:
        """Add records for a start, an epoch or an end of a trial to the pending ones of its file.

        If a failed trial is tried again, all pending records are written, and the next write to its file removes the
        record of its end. An epoch may also replace the file of the HParams tab. Other changes have no effect.
        """
        match change:
            case Started(trial, start):
                self._file_states[trial.number] = _EventFileState()
                self._append_records(
                    trial.number,
                    self._events.encode_start(start, self._hparams, self._name_group(trial)),
                )
            case Reported(trial, report):
                self._append_records(trial.number, self._events.encode_epoch(report))
                self._announce_metrics([*report.metrics])
            case Ended(trial, end):
                self._file_states[trial.number].end = self._file_states[trial.number].size
                self._append_records(trial.number, self._events.encode_end(end, trial.epoch))
            case Reopened(trial):  # remove the record of its end
                self._write_pending()
                file_state = self._file_states[trial.number]
                if file_state.end is not None:
                    file_state.size = file_state.end
                file_state.end = None
                # so that the next write truncates the file to this size
                self._truncated.discard(trial.number)

    def _name_group(self, trial: TrialState) -> str:
        """Return the name of a trial's row in the HParams tab: trials of one configuration and role share a row.

        It is the number of the configuration for a trial of the search, such as ``00003``, the role and a number for a
        trial of a finalist, such as ``confirm-00000``, and the role alone for any other trial. Finalists are numbered
        in the order in which their first trials with a fresh seed started.
        """
        if trial.place is not None:  # a trial of the search
            return f"{self._numbering.find(trial.place).configuration:05d}"
        if trial.role is not Role.CONFIRM:
            return trial.role.value
        finalists: dict[str, None] = {}
        for one in self._ledger.trials.values():
            if one.role is Role.CONFIRM:
                finalists[configuration_key(one.params)] = None
        number = list(finalists).index(configuration_key(trial.params))
        return f"{trial.role.value}-{number:05d}"

    @property
    def _first_start(self) -> TrialStarted:
        """The start of the trial that started first; there must be one."""
        return next(iter(self._ledger.trials.values())).start

    @property
    def _hparams(self) -> Mapping[str, Domain | None]:
        """The parameters to show with their domains; if these are unknown, all of the first trial's, with None."""
        if self._domains is None:
            return dict.fromkeys(self._first_start.params)
        return self._domains

    def _announce_metrics(self, metrics: list[str]) -> None:
        """Write the file of the HParams tab anew if a metric is new to it, or if no metric was declared yet.

        The file declares the parameters and all metrics so far, with the objectives first. ``metrics`` are the names
        that a trial has reported. Raises `StoreError` if the disk cannot be written.
        """
        new = []
        for metric in metrics:
            if metric not in self._declared_metrics:
                new.append(metric)
        if not new and self._declared_metrics:
            return
        objectives = []
        for metric, _ in self._sweep.read_info().objectives:
            objectives.append(metric)
        self._declared_metrics = list(dict.fromkeys([*objectives, *self._declared_metrics, *new]))
        content = self._events.encode_experiment(
            self._hparams, self._first_start.params, self._declared_metrics, self._first_start.time
        )
        with replacing(self._target / _FILE.format(0)) as path:
            path.write_bytes(content)

    def _append_records(self, trial: int, content: bytes) -> None:
        """Add records to the pending ones of a trial, which `_write_pending` writes, and to the size of its file."""
        self._pending.setdefault(trial, bytearray()).extend(content)
        self._file_states[trial].size += len(content)

    def _write_pending(self) -> None:
        """Append the pending records to their files, creating these if necessary; then none are pending.

        A file that this process has not written yet, or whose trial was tried again, is first truncated to the size
        that it should have before them. Raises `StoreError` if the disk cannot be written.
        """
        for trial, content in self._pending.items():
            path = self._get_path(trial)
            with storing(path):
                if trial in self._truncated:
                    with path.open("ab") as file:
                        file.write(content)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                with path.open("r+b") as file:
                    # the recorded size counts what is pending
                    file.truncate(self._file_states[trial].size - len(content))
                    file.seek(0, os.SEEK_END)
                    file.write(content)
                self._truncated.add(trial)
        self._pending.clear()

    def _get_path(self, trial: int) -> Path:
        return self._target / f"{trial:05d}" / _FILE.format(1)


class LiveEventFiles(Follower):
    """Keeps the event files of a running sweep up to date."""

    def __init__(self, sweep: ResultsFolder, *, period_s: float = PERIOD_S) -> None:
        self._sweep = sweep
        self._events: EventFiles | None = EventFiles(sweep, sweep.tensorboard)
        super().__init__("event files", period_s)

    def update(self) -> None:
        if self._events is None:
            self._events = EventFiles(self._sweep, self._sweep.tensorboard)
        self._events.update()

    def drop(self) -> None:
        """Release the event files after an error; the next update opens them again."""
        if self._events is not None:
            self._events.close()
        self._events = None


def _lock_target(target: Path) -> IO[bytes]:
    """Create the folder ``target`` and the file ``lock`` in it if necessary; return the file, open and locked.

    The lock makes this process the only writer, until the file is closed. On operating systems without locks, the file
    is only opened. Raises `RefusedError` if another process holds the lock, and `StoreError` if the folder or the file
    cannot be created or opened, or if the file system supports no locks.
    """
    with storing(target):
        target.mkdir(parents=True, exist_ok=True)
        file = (target / "lock").open("ab")
    if HAS_LOCKS and not lock(file.fileno()):
        file.close()
        hint = "a sweep that was started with --tensorboard keeps them fresh itself"
        raise RefusedError.one(str(target), "another process writes these event files", hint)
    return file
