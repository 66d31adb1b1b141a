"""Repairs a damaged log: keeps the readable records and reports the lost ones.

After a loss of power, parts of a log may be zeros or missing. Later records that refer to trials whose beginning is
lost are dropped too, because a log with them would be out of order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import InputError, StoreError
from sweep.events import EpochReported, Event, NotJson, decode
from sweep.store.disk import link, replacing, storing
from sweep.store.folder import ResultsFolder
from sweep.store.ledger import Ledger, OutOfOrder
from sweep.store.reading import TableWriter


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of a repair: the records kept and lost."""

    kept: int  # number of records
    losses: tuple[str, ...]  # in words, with their lines
    original: Path | None  # the damaged log, which is kept; None if the log was intact


def repair_log(folder: ResultsFolder) -> Repaired:
    """Repair a sweep's log and rebuild its tables; if the log is intact, change neither.

    Unreadable records are removed, and those that cannot follow the ones before them, as of trials whose beginning is
    lost. The damaged log is kept as ``log.jsonl.damaged-N``, with the first free N. Raises RefusedError while the sweep
    runs, InputError if it is in an object store or this system has no locks, and StoreError if the log is missing, has
    an unknown format or cannot be written.
    """
    if folder.store is not None:
        what = "is in an object store, which never holds a damaged log"
        raise InputError.one(
            folder.place, what, "if records are missing, resume on the machine that ran it"
        )
    with folder.lock():
        with storing(folder.log):
            content = folder.log.read_bytes()
        records, losses = _read_records(folder.log, content)
        if not losses:
            return Repaired(len(records), (), None)
        original = _set_log_aside(folder.log)
        with replacing(folder.log) as path, path.open("wb") as file:
            file.writelines(record + b"\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
        TableWriter(folder).close()  # which writes the tables; they belonged to the damaged log
    return Repaired(len(records), tuple(losses), original)


def _read_records(log: Path, content: bytes) -> tuple[list[bytes], list[str]]:
    """Return the readable records that can follow each other, without line feeds, and a text for each loss.

    There are no losses if the log is intact. Bytes after the last line feed of ``content`` are always a loss. ``log``
    is only named in errors. Raises StoreError with the line of a record of an unknown format.
    """
    records: list[bytes] = []
    losses: list[str] = []
    ledger = Ledger(keep_epochs=False)
    *lines, torn = content.split(b"\n")  # what follows the last line feed is torn, usually nothing
    for number, line in enumerate(lines, start=1):
        try:
            parts = list(_split_records(line))
        except StoreError as error:
            raise StoreError(f"{log}:{number}: {error}") from error
        # what they have replaced may be a record that nobody misses, but no log is read with them
        if b"\0" in line and all(event is not None for _, event in parts):
            losses.append(
                f"line {number}: {line.count(0)} bytes are NUL, perhaps in place of records"
            )
        for part, event in parts:
            # first: the ledger still has the epoch before
            gap = _describe_missing_epochs(ledger, event)
            if event is None:
                flaw: str | None = f"{len(part)} bytes are no record"
            else:
                flaw = _observe_or_explain(ledger, event)
            for why in (gap, flaw):
                if why:
                    losses.append(f"line {number}: {why}")
            if flaw is None:  # a record after a gap is kept
                records.append(part)
    if torn:
        losses.append(f"line {len(lines) + 1}: {len(torn)} bytes are the beginning of a record")
    return records, [*losses, *_list_lost_trials(ledger)]


def _split_records(line: bytes) -> Iterator[tuple[bytes, Event | None]]:
    """Yield each record of a line with its event, or with None if it is unreadable.

    A line may hold several records, joined by NUL bytes that a crash has left; these bytes are left out. Raises
    StoreError for a record of an unknown format.
    """
    try:
        yield line, decode(line)
    except NotJson:
        parts = [part for part in re.split(rb"\0+", line) if part]
        if parts in ([], [line]):  # only NUL bytes, or none: there is nothing to split
            yield line, None
        else:
            for part in parts:
                yield from _split_records(part)


def _observe_or_explain(ledger: Ledger, event: Event) -> str | None:
    """Let the ledger process an event; return why it cannot follow the earlier ones, or None if it can."""
    try:
        ledger.observe(event)
    except OutOfOrder as error:
        return str(error)
    return None


def _describe_missing_epochs(ledger: Ledger, event: Event | None) -> str | None:
    """Return in words which epochs of its trial are missing before an event; None if none are.

    Returns None for an event that is no reported epoch, and for one of a trial that ``ledger`` does not know. Call this
    before the ledger observes ``event``.
    """
    if not isinstance(event, EpochReported) or event.trial not in ledger.trials:
        return None
    first = ledger.trials[event.trial].epoch + 1
    last = event.epoch - 1
    if first <= last:
        return f"before it, epochs {first} to {last} of trial {event.trial} are missing"
    return None


def _list_lost_trials(ledger: Ledger) -> list[str]:
    """Return a message for each number below the highest trial number that has no trial; `resume` trains these trials.

    The list is empty if none is missing, or ``ledger`` has no trials.
    """
    losses = []
    for trial in range(max(ledger.trials, default=-1) + 1):
        if trial not in ledger.trials:
            losses.append(f"trial {trial} is missing, `resume` trains it")
    return losses


def _set_log_aside(log: Path) -> Path:
    """Link or copy the damaged log to ``log.jsonl.damaged-N`` with the first free N; return that path.

    The log itself stays. N counts from 1. Raises `StoreError` if the disk is full.
    """
    number = 1
    while (aside := log.with_name(f"{log.name}.damaged-{number}")).exists():
        number += 1
    with storing(aside):
        link(log, aside)
    return aside
