"""Lists the sweeps of a results folder; sweeps that have not changed are not read again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.analysis.report_data import list_question_lines
from sweep.analysis.verdict import SweepSummary, summarize_sweep
from sweep.errors import InputError, StoreError, SweepError
from sweep.render import as_plain
from sweep.runner import resuming
from sweep.store.folder import ResultsFolder, folders
from sweep.ui.following import FollowedSweep

REST = 5  # least pause before a sweep is summarized again, as a multiple of the time that it took
QUESTION = 200  # maximum number of characters
BEGINNING = 10_000  # number of characters of a sweep file that are read to find its question
LOOKS = 8  # maximum number of looks at a running sweep's log for each list; a look reads about a megabyte


@dataclass(frozen=True, kw_only=True)
class ShelfRow:
    """The fields of a sweep in the page's list that are not in ``list --json``."""

    total: int | None = None  # number of trials; null if it is not fixed
    question: str = ""  # the first line of its question
    written: float | None = None  # when its log was last written
    left_s: float | None = None
    share: float | None = None
    to_resume: str = ""  # the command line that resumes it


@dataclass(slots=True)
class _Known:
    """The row of a sweep as last made, and the state of its files at that time."""

    stamp: tuple[object, ...]
    row: dict[str, Any]
    again: float = 0.0  # earliest time of the next summary, by the monotonic clock


class Shelf:
    """The list of the sweeps in a results folder."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._known: dict[str, _Known] = {}  # rows as last made, by name
        self._running: dict[str, FollowedSweep] = {}  # running sweeps by name, for their time left

    def list_rows(self) -> list[dict[str, Any]]:
        """Return a row for each sweep: first those that run, and otherwise those whose log was written last.

        A row has the keys of ``list --json`` and of `ShelfRow`; a sweep that cannot be read has the state "damaged".
        A row may be the same object as in the last call, and some seconds old. Raises `StoreError` if the folder cannot
        be read or its object store is unavailable.
        """
        found = folders(self.results)
        rows = [self._get_row(folder) for folder in found]
        # forgets the sweeps that are not there any more
        for name in self._known.keys() - {folder.name for folder in found}:
            del self._known[name]
            self._running.pop(name, None)
        return sorted(
            rows, key=lambda row: (row["state"] != "running", -(row["written"] or 0.0), row["name"])
        )

    def _get_row(self, folder: ResultsFolder) -> dict[str, Any]:
        """Return the row of a sweep; it is made again only if the sweep has changed or its log was not read to the end.

        Even then, the old row is returned for 5 times as long as it took to make it. A running sweep has its number of
        trials, share and time left from its log; if the log is damaged there, the row has the reason instead.
        """
        # before the row is made: what changes meanwhile is seen next time
        stamp = _fingerprint_sweep(folder)
        known = self._known.get(folder.name)
        now = time.monotonic()
        if known is not None and (known.stamp == stamp or now < known.again):
            return known.row
        row = _make_row(folder)
        if row["state"] == "running":
            try:
                progress = self._estimate_progress(folder)
            # the damage is in a part of its log that its tables already cover
            except StoreError as error:
                row["reason"] = str(error).partition("\n")[0]
            else:
                row |= progress
                if not progress:
                    # No sweep has this stamp: the rest of its log is read next time, even if nothing is added to it.
                    stamp = ()
        else:
            self._running.pop(folder.name, None)
        took_s = time.monotonic() - now
        self._known[folder.name] = _Known(stamp, row, time.monotonic() + REST * took_s)
        return row

    def _estimate_progress(self, folder: ResultsFolder) -> dict[str, float | None]:
        """Return ``total``, ``share`` and ``left_s`` of a running sweep, as its page shows them.

        Each call reads at most about 8 megabytes of its log; returns {} until all has been read. Raises `StoreError` if
        the log is damaged or sweep.json cannot be read.
        """
        if folder.name not in self._running:
            self._running[folder.name] = FollowedSweep(folder)
        followed = self._running[folder.name]
        for _ in range(LOOKS):  # a long log is read over several lists, so that none takes long
            if not followed.read_on():  # nothing was left to read
                break
        if followed.is_behind:
            return {}
        facts = followed.describe()
        return {"total": facts.total, "share": facts.share, "left_s": facts.left_s}


def _fingerprint_sweep(folder: ResultsFolder) -> tuple[object, ...]:
    """Return a value that changes when a sweep's log is written, or when the sweep starts or stops running.

    Without a log, it changes when sweep.json appears. Raises `StoreError` if its object store is unavailable.
    """
    try:
        log = folder.log.stat()
        return folder.is_running(), log.st_size, log.st_mtime_ns
    except OSError:
        return folder.is_running(), folder.info.exists()


def _make_row(folder: ResultsFolder) -> dict[str, Any]:
    """Return the row of a sweep as a new dictionary; one with the state "damaged" and the reason if it cannot be read.

    Its ``left_s`` is None, and its ``share`` counts whole trials.
    """
    try:
        summary = summarize_sweep(folder)
    except SweepError as error:
        summary = SweepSummary(
            name=folder.name,
            path=folder.place,
            state="damaged",
            trials={},
            reason=str(error).partition("\n")[0],
        )
    more = ShelfRow() if summary.state == "damaged" else _describe_file(folder, summary)
    row = as_plain(summary)
    if not isinstance(row, dict):  # never, of a record, but its type allows it
        raise TypeError(f"{row!r} is no object")
    return row | {"version": 1} | _convert_fields_to_json(more)


def _convert_fields_to_json(row: ShelfRow) -> dict[str, Any]:
    """Return the fields of a row as JSON types."""
    found = as_plain(row)
    return found if isinstance(found, dict) else {}


def _describe_file(folder: ResultsFolder, summary: SweepSummary) -> ShelfRow:
    """Return the fields of a row that come from the sweep file and the log; ``left_s`` is None.

    ``summary`` is that of the sweep. ``share`` is the fraction of all its trials that have ended, at most 1, so neither
    running nor interrupted ones count. It and the number of trials are None if the sweep file cannot be read or does
    not fix the number. ``written`` is in seconds since 1970; None without a log.
    """
    total = None
    try:
        spec = resuming.reopen(folder.path.parent, folder.name).spec
        if spec.all_trials is not None:
            # `all_trials` has neither a confirmation nor configurations that were added to a finite space, and there
            # may have been more trials before the file was changed.
            started = sum(summary.trials.values())
            to_come = summary.queued * spec.trials_each
            total = max(spec.all_trials + summary.fresh, started + to_come)
    except (InputError, StoreError):
        pass  # the file was made by hand or by another version; its results can still be listed
    written = folder.log.stat().st_mtime if folder.log.exists() else None
    ended = sum(
        count
        for status, count in summary.trials.items()
        if status not in ("running", "interrupted")
    )
    share = min(ended / total, 1.0) if total else None
    question = read_question(folder)
    return ShelfRow(
        total=total, question=question, written=written, share=share, to_resume=folder.to_resume
    )


def read_question(folder: ResultsFolder) -> str:
    """Return the first line of the question at the beginning of a sweep's file, cut after 200 characters.

    The question is the comment with which spec.yaml begins, as the report shows it (`list_question_lines`). Returns ""
    if it begins with no comment, is missing or cannot be read.
    """
    try:
        with folder.spec.open(encoding="utf-8", errors="replace") as file:
            beginning = file.read(BEGINNING)
    except OSError:
        return ""
    return next(iter(list_question_lines(beginning)), "")[:QUESTION]
