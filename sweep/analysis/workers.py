"""Which trial ran where and when: lanes of trials that followed each other, and the time in which a lane lay idle.

The log knows the node and the devices of a trial, not the process. Trials of one node (of one GPU, where they had
GPUs) that did not overlap share a lane; there are as many as ran side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.events import Status
from sweep.store import log

if TYPE_CHECKING:
    from sweep.store.tables import History, Tables

SLACK_S = 0.05  # a worker may begin a trial before the driver has noted the end of the one before


@dataclass(frozen=True, slots=True)
class Span:
    """A trial in a lane, in seconds since 1970."""

    row: int  # of the table of trials
    lane: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lanes of a sweep."""

    lanes: tuple[str, ...]
    spans: tuple[Span, ...]
    pauses: tuple[tuple[float, float], ...]  # between sessions
    busy_s: float
    idle_s: float  # of all lanes, while the sweep ran


def of_tables(path: Path, read: Tables) -> Timeline:
    """The lanes of a sweep of which the tables have been read."""
    from sweep.store import reading

    columns = reading.columns(read.trials, ("node", "devices", "status"))
    times = [_seconds(read, name) for name in ("started_at", "ended_at")]
    pauses = _pauses(path, read.history)
    known: dict[tuple[str, str], list[tuple[float, float, int]]] = defaultdict(list)
    for row, (begin, end, node, devices, status) in enumerate(zip(*times, *columns.values(), strict=True)):
        if end is None and status == Status.RUNNING:
            end = read.history.last
        if begin is not None and end is not None and end > begin:
            gpus = str(devices) if str(devices or "").startswith("gpu") else ""
            known[str(node or "not known"), gpus].append((begin, end, row))
    lanes: list[str] = []
    spans: list[Span] = []
    for (node, gpus), trials in sorted(known.items()):
        placed = list(_placed(sorted(trials)))
        count = 1 + max(lane for lane, *_ in placed)
        for lane, begin, end, row in placed:
            parts = _without(pauses, begin, end)
            spans += [Span(row, len(lanes) + lane, *part) for part in parts]
        named = f"{node} {gpus}".strip()
        lanes += [named if count == 1 else f"{named} · {lane + 1}" for lane in range(count)]
    busy = sum(span.end - span.begin for span in spans)
    idle = max(len(lanes) * read.history.active_s - busy, 0.0)
    return Timeline(tuple(lanes), tuple(spans), pauses, busy, idle)


def _seconds(read: Tables, name: str) -> list[float | None]:
    """A column of timestamps: ten thousand datetimes take a second."""
    micros: list[int | None] = read.trials[name].cast("int64").to_pylist()
    return [None if one is None else one / 1e6 for one in micros]


def _placed(trials: Sequence[tuple[float, float, int]]) -> Iterator[tuple[int, float, float, int]]:
    """The first lane that is free for each trial, by the time of their start."""
    free: list[float] = []
    for begin, end, row in trials:
        lane = next((at for at, until in enumerate(free) if until <= begin + SLACK_S), len(free))
        free[lane:] = [end, *free[lane + 1 :]]
        yield lane, begin, end, row


def _without(pauses: Sequence[tuple[float, float]], begin: float, end: float) -> Iterator[tuple[float, float]]:
    for paused, resumed in pauses:
        if begin < paused < end:
            yield begin, paused
        if begin < resumed and paused < end:
            begin = max(begin, resumed)
    if begin < end:
        yield begin, end


def _pauses(path: Path, history: History) -> tuple[tuple[float, float], ...]:
    """When nobody drove the sweep: before each session but the first, as the log tells where these begin."""
    if not path.is_file():
        return ()
    found = []
    before = 0.0
    sessions = log.read_at(path, [position for position, _ in history.pauses])
    for session, (_, paused) in zip(sessions, history.pauses, strict=True):
        if paused > before:
            found.append((session.time - (paused - before), session.time))
        before = paused
    return tuple(found)
