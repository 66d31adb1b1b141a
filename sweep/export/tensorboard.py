"""Export a sweep as TensorBoard event files, made from the log and brought up to date again and again.

The files are a function of the log, byte for byte. ``written.json`` says how far they go; what a killed process wrote
beyond that is cut off and written again, so that nothing is lost and nothing is there twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import IO

from sweep.analysis import studies
from sweep.errors import InputError, StoreError
from sweep.events import EpochReported, Event, Params, Status, TrialEnded, TrialStarted
from sweep.export import runs
from sweep.space.domains import Domain
from sweep.store import HAS_LOCKS, Follower, lock, log, replacing, storing
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import TrialState

PERIOD_S = 2.0
FORMAT = 2
_FILE = "events.out.tfevents.{:010d}.sweep"
_PATTERN = "events.out.tfevents.*.sweep"


def require() -> ModuleType:
    """Return the module that makes events. Raises `InputError` where TensorBoard is not installed."""
    runs.extra("tensorboard.summary.writer.record_writer", "tensorboard", "tensorboard")
    return runs.extra("sweep.export.tensorboard_events", "tensorboard", "tensorboard")


def folder_of(sweep: ResultsFolder) -> Path:
    """Return where a sweep's event files lie."""
    return sweep.path / "tensorboard"


@dataclass(slots=True)
class _Written:
    """One trial's file."""

    size: int = 0
    epoch: int = 0  # the last one in it
    end: int | None = None  # where the record of its end begins, which goes when the trial goes on


class EventFiles:
    """The event files of one sweep. Not for several threads or processes at once."""

    def __init__(self, sweep: ResultsFolder, target: Path) -> None:
        self._events = require()
        self._sweep = sweep
        self._target = target
        space = studies.space_of(sweep)
        self._domains: Mapping[str, Domain | None] | None = None if space is None else space.varying
        self._trials_each = sweep.read_info().trials_each
        self._lock = _locked(target)
        self._log_bytes, self._mark = 0, ""
        self._begin()
        self._load()

    def close(self) -> None:
        """Let others write these files."""
        self._lock.close()

    def update(self) -> int:
        """Bring the files up to the log; returns how many trials they hold. Raises `StoreError`."""
        path = self._sweep.log
        if path.exists():
            if log.is_another(path, self._log_bytes, self._mark):
                self._start_over()
            while True:
                events, end = log.read_from(path, self._log_bytes)
                if not events:
                    break
                for event in events:
                    self._take(event)
                self._flush()
                self._log_bytes = end
            self._save()
        return len(self._trials)

    def _begin(self) -> None:
        self._log_bytes, self._mark = 0, ""
        self._trials: dict[int, _Written] = {}
        self._metrics: list[str] = []
        self._seen: Params = {}  # the parameters of the first trial
        self._started = 0.0
        self._pending: dict[int, bytearray] = {}
        self._touched: set[int] = set()  # files that this process has cut to their size

    def _load(self) -> None:
        """Go on from where an earlier process has stopped, if the files are as it says."""
        state = self._target / "written.json"
        try:
            known = json.loads(state.read_bytes())
            if known["format"] != FORMAT:
                raise ValueError("another format")
            self._log_bytes, self._mark = int(known["log_bytes"]), str(known["mark"])
            self._metrics, self._seen, self._started = known["metrics"], known["seen"], float(known["started"])
            for number, (size, epoch, end) in known["trials"].items():
                self._trials[int(number)] = _Written(size, epoch, end)
            for number, one in self._trials.items():
                size = self._file(number).stat().st_size
                if size < one.size:
                    raise ValueError("a file is shorter than it was")
                if size > one.size:
                    os.truncate(self._file(number), one.size)
        except (OSError, KeyError, TypeError, ValueError):
            self._start_over()

    def _start_over(self) -> None:
        self._begin()
        with storing(self._target):
            for path in [*self._target.glob(f"*/{_PATTERN}"), *self._target.glob(_PATTERN)]:
                path.unlink()

    def _save(self) -> None:
        mark = log.mark(self._sweep.log, self._log_bytes)
        if mark == self._mark:
            return
        self._mark = mark
        known = {
            "format": FORMAT,
            "log_bytes": self._log_bytes,
            "mark": mark,
            "metrics": self._metrics,
            "seen": dict(self._seen),
            "started": self._started,
            "trials": {number: list(asdict(one).values()) for number, one in self._trials.items()},
        }
        with replacing(self._target / "written.json") as path:
            path.write_text(json.dumps(known), encoding="utf-8")

    def _take(self, event: Event) -> None:
        match event:
            case TrialStarted():
                if not self._trials:
                    self._seen, self._started = event.params, event.time
                self._trials[event.trial] = _Written()
                place = TrialState(event).place
                group = event.role.value if place is None else f"{place // self._trials_each:05d}"
                self._add(event.trial, self._events.begin(event, self._hparams, group))
            case EpochReported():
                one = self._known(event.trial)
                self._go_on(event.trial, one)
                one.epoch = event.epoch
                self._add(event.trial, self._events.epoch(event))
                self._name([*event.metrics])
            case TrialEnded():
                one = self._known(event.trial)
                self._go_on(event.trial, one)
                if event.status is not Status.INTERRUPTED:
                    one.end = one.size
                    self._add(event.trial, self._events.end(event, one.epoch))

    def _known(self, trial: int) -> _Written:
        if trial not in self._trials:
            raise StoreError(f"{self._sweep.log}: trial {trial} is reported but was never started")
        return self._trials[trial]

    def _go_on(self, trial: int, one: _Written) -> None:
        """Take back the end of a trial that has gone on."""
        if one.end is not None:
            self._flush()
            one.size, one.end = one.end, None
            self._touched.discard(trial)

    @property
    def _hparams(self) -> Mapping[str, Domain | None]:
        return dict.fromkeys(self._seen) if self._domains is None else self._domains

    def _name(self, metrics: list[str]) -> None:
        """Let the HParams tab know which metrics there are."""
        new = [metric for metric in metrics if metric not in self._metrics]
        if not new and self._metrics:
            return
        objectives = [metric for metric, _ in self._sweep.objectives()]
        self._metrics = list(dict.fromkeys([*objectives, *self._metrics, *new]))
        content = self._events.experiment(self._hparams, self._seen, self._metrics, self._started)
        with replacing(self._target / _FILE.format(0)) as path:
            path.write_bytes(content)

    def _add(self, trial: int, content: bytes) -> None:
        self._pending.setdefault(trial, bytearray()).extend(content)
        self._trials[trial].size += len(content)

    def _flush(self) -> None:
        """Write what is pending, a file at a time."""
        for trial, content in self._pending.items():
            path = self._file(trial)
            with storing(path):
                if trial in self._touched:
                    with path.open("ab") as file:
                        file.write(content)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                with path.open("r+b") as file:
                    file.truncate(self._trials[trial].size - len(content))
                    file.seek(0, 2)
                    file.write(content)
                self._touched.add(trial)
        self._pending.clear()

    def _file(self, trial: int) -> Path:
        return self._target / f"{trial:05d}" / _FILE.format(1)


class LiveEventFiles(Follower):
    """Keeps the event files of a running sweep fresh."""

    def __init__(self, sweep: ResultsFolder, *, period_s: float = PERIOD_S) -> None:
        self._sweep = sweep
        self._events: EventFiles | None = EventFiles(sweep, folder_of(sweep))
        super().__init__("event files", period_s)

    def update(self) -> None:
        if self._events is None:
            self._events = EventFiles(self._sweep, folder_of(self._sweep))
        self._events.update()

    def drop(self) -> None:
        if self._events is not None:
            self._events.close()
        self._events = None


def _locked(target: Path) -> IO[bytes]:
    """Return a file whose lock makes this process the only one that writes here; where there are no locks, a file."""
    with storing(target):
        target.mkdir(parents=True, exist_ok=True)
        file = (target / "lock").open("ab")
    if HAS_LOCKS and not lock(file.fileno()):
        file.close()
        hint = "a sweep that was started with --tensorboard keeps them fresh itself"
        raise InputError.one(str(target), "another process writes these event files", hint)
    return file
