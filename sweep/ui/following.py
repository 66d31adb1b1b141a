"""Reads the log of one sweep as it grows, for all browsers that show it. Not thread-safe; knows no browser."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from sweep.analysis import Outline
from sweep.analysis.live_status import LogReader, Standing
from sweep.errors import InputError, StoreError, UnknownNameError
from sweep.events import EpochReported, Event, OutputPrinted, SweepChanged, Value
from sweep.runner import resuming
from sweep.spec import Spec, changes, parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import naming
from sweep.ui.facts import EventFacts, LiveFacts, describe_event, describe_standing

EVENTS = 100  # number of the latest events that are kept
OF_A_TRIAL = 100  # events of one trial that are kept
BLOCK_BYTES = 1 << 20


class LineIndex:
    """The positions of the lines in a growing file; only lines with a line feed count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # pairs (byte at which a line begins, number of lines before it), ascending
        self._marks: list[tuple[int, int]] = [(0, 0)]

    @property
    def lines(self) -> int:
        """Number of complete lines at the last count; 0 before the first one."""
        _, lines = self._marks[-1]
        return lines

    @property
    def end(self) -> int:
        """Byte after the last complete line at the last count; 0 before the first one."""
        byte, _ = self._marks[-1]
        return byte

    def count_new_lines(self) -> None:
        """Count the lines that were added to the end of the file since the last call; none if there is no file.

        That a file was cut or replaced is not noticed.
        """
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            while True:  # block by block
                start, lines = self._marks[-1]
                file.seek(start)
                block = file.read(BLOCK_BYTES)
                # bytes and number of complete lines; the rest of the block is read again next time
                complete_bytes = block.rfind(b"\n") + 1
                count = block.count(b"\n")
                if not count:  # the end of the log, or one line that is longer than the block
                    rest = file.readline()
                    if not rest.endswith(b"\n"):
                        return
                    complete_bytes, count = len(block) + len(rest), 1
                self._add_mark(start + complete_bytes, lines + count)

    def _add_mark(self, byte: int, lines: int) -> None:
        """Store that ``lines`` lines end before the byte ``byte``, at which a line begins.

        This replaces the last such pair if the one before that is less than a megabyte away.
        """
        # A growing log is counted every half second: without this, there would soon be thousands of marks.
        if len(self._marks) > 2 and byte - self._marks[-2][0] < BLOCK_BYTES:
            self._marks[-1] = (byte, lines)
        else:
            self._marks.append((byte, lines))

    def find_line(self, byte: int) -> int:
        """Return the number of lines that end at or before the byte offset ``byte``, also of lines not counted yet.

        Reads the file from the last known position before ``byte`` on. Raises OSError if it cannot be opened.
        """
        # A mark has a byte and the number of lines before it.
        start, lines = next(mark for mark in reversed(self._marks) if mark[0] <= byte)
        with self._path.open("rb") as file:
            file.seek(start)
            return lines + file.read(byte - start).count(b"\n")

    def read(self, after: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield (number of the last line, lines) for the lines after the first ``after`` ones, a megabyte at a time.

        The number is that of the last of these lines, counted from 1 at the beginning of the file. Lines are bytes
        without their line feed. Only lines that were counted are read, and fewer if the file was cut since. Raises
        OSError, at the first step, if the file cannot be opened.
        """
        # A mark has a byte and the number of lines before it.
        start, lines = next(mark for mark in reversed(self._marks) if mark[1] <= after)
        with self._path.open("rb") as file:
            file.seek(start)
            while lines < self.lines:
                counted = file.readlines(BLOCK_BYTES)[: self.lines - lines]
                if not counted:  # the file was cut after the lines were counted
                    return
                # the reading may have begun some lines before those that are wanted
                fresh = counted[max(after - lines, 0) :]
                lines += len(counted)
                if fresh:
                    yield lines, [line.rstrip(b"\n") for line in fresh]


class FollowedSweep:
    """A sweep whose log is read in parts by `read_on`, and the state that follows from the parts read so far."""

    def __init__(self, folder: ResultsFolder) -> None:
        self.folder = folder
        self.running = folder.is_running()
        self.replaced = 0  # how often the log was replaced, as by a repair
        self._start_over()

    def _start_over(self) -> None:
        """Forget what was read, and start at the beginning of the log. Raises `StoreError` as `_read_file` does."""
        # checked first: if the log has begun now, the sweep file that is read below belongs to it
        self._had_begun = self.folder.log.exists() and self.folder.log.stat().st_size > 0
        self._read_file()
        self.lines = LineIndex(self.folder.log)
        self._reader = LogReader(self.folder)
        self._line = 0
        self._events: deque[EventFacts] = deque(maxlen=EVENTS)
        self._of_trials: dict[int, list[EventFacts]] = {}

    def _read_file(self) -> None:
        """Read the sweep file, and set the state to that before the first event.

        Raises `StoreError` if not even sweep.json can be read; the next call of `read_on` then starts over.
        """
        self._is_file_read = False
        outline, self._unknown = _read_outline(self.folder)
        self.standing = Standing(outline)
        self._spec = _read_first_spec(self.folder)
        # settings of changes whose result is invalid, and why it is; see `_follow_change`
        self._invalid_settings: dict[str, Value] = {}
        self._invalid_reason = ""
        self._is_file_read = True

    def read_on(self) -> bool:
        """Read the next part of the log, at most about a megabyte; return whether anything has changed.

        That the sweep started or stopped running is also a change. If the log was replaced, as by that of a new sweep
        with the same name, the state starts over, nothing is read, and True is returned. Raises `StoreError` if the log
        is damaged, or if sweep.json cannot be read when the state starts over.
        """
        running = self.folder.is_running()  # before the log, so that the last events are not missed
        changed = running != self.running
        self.running = running
        with naming(self.folder.log):
            # None: the log was replaced, or the sweep file could not be read after that
            events = self._reader.more() if self._is_file_read else None
            if events is None:
                self._is_file_read = False  # if `_start_over` fails, the next call does it again
                self._start_over()
                self.replaced += 1
                return True
            # the log was empty when the sweep file was read: another sweep may have replaced it since
            if events and not self._had_begun:
                self._read_file()
                self._had_begun = True
            for event in events:
                self._observe(event)
        lines_before = self.lines.lines
        self.lines.count_new_lines()
        return changed or bool(events) or self.lines.lines != lines_before

    def _observe(self, event: Event) -> None:
        """Add the event of the next line of the log to the state, and keep its description.

        The latest 100 descriptions are kept, and the first 100 of each trial. Events about an epoch or output have
        none.
        """
        self._line += 1
        self.standing.observe(event)
        # There are so many of these that they would push out all others.
        if isinstance(event, EpochReported | OutputPrinted):
            return
        differences = self._follow_change(event) if isinstance(event, SweepChanged) else []
        facts = describe_event(event, self._line, self.standing, differences)
        self._events.appendleft(facts)
        if facts.trial is not None:
            kept = self._of_trials.setdefault(facts.trial, [])
            if len(kept) < OF_A_TRIAL:
                kept.append(facts)

    def _follow_change(self, event: SweepChanged) -> list[changes.Difference]:
        """Apply a change to the recorded sweep file; return the keys that differ, or [] if the file is unknown.

        If the result is invalid, as for a change by another version of sweep, the sweep file stays as it was, and the
        change is applied together with the next one, as by `Standing`.
        """
        if self._spec is None:
            return []
        before = self._spec
        settings = {**self._invalid_settings, **event.settings}
        try:
            self._spec = changes.apply_settings(before, settings, str(self.folder.log))
        except InputError as error:
            first_line = str(error).partition("\n")[0]
            self._invalid_settings = settings  # tried again with the next change
            self._invalid_reason = (
                "the number of trials and the limits are those before a change that cannot be read: "
                f"{first_line}"
            )
            return []
        self._invalid_settings, self._invalid_reason = {}, ""
        return changes.list_differences(before, self._spec)

    @property
    def is_behind(self) -> bool:
        """Whether a part of the log has not been read yet."""
        return self._reader.share < 1

    def list_events(self, trial: int) -> tuple[EventFacts, ...]:
        """Return the first 100 events of a trial other than epochs and output, in the order of the log.

        Only events that were read so far are among them; () for an unknown trial.
        """
        return tuple(self._of_trials.get(trial, ()))

    def describe(self) -> LiveFacts:
        """Return the present state as the page shows it."""
        return describe_standing(
            self.standing,
            time.time(),
            running=self.running,
            read=self._reader.share,
            line=self._line,
            events=tuple(self._events),
            unknown=self._unknown or self._invalid_reason,
            driven_since=self.folder.driven_since,
            to_resume=self.folder.to_resume,
        )


def _read_first_spec(folder: ResultsFolder) -> Spec | None:
    """Return the sweep file with which the sweep began; None if it cannot be read."""
    try:
        return parse_spec(folder.read_info().first_spec_text, str(folder.info))
    except (InputError, StoreError):
        return None


def _read_outline(folder: ResultsFolder) -> tuple[Outline, str]:
    """Return the `analysis.Outline` of a sweep, and why it is incomplete if the sweep file cannot be read.

    The reason is one line, and "" if nothing is missing. Raises `StoreError` if not even sweep.json can be read.
    """
    try:
        stored = resuming.open_stored_sweep(folder.path.parent, folder.name)
        first_line = str(next(iter(stored.problems), ""))  # there may be many mistakes
    except (StoreError, UnknownNameError) as error:
        stored = resuming.StoredSweep(folder, None)
        first_line = str(error)
    if stored.resumable is not None:
        return stored.outline, ""
    unknown = (
        f"how much is left is not known, for the resolved sweep file cannot be read: {first_line}"
    )
    return stored.outline, unknown
