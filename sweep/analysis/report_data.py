"""What a report is made of, by one reading of a sweep's log: costs, curves, the timeline of workers, importance.

The log knows the node and the devices of a trial, not the process. In the timeline, trials of one node (of one GPU,
where they had GPUs) that did not overlap share a lane; there are as many lanes as trials ran side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sweep.analysis import Sweep, of_tables
from sweep.events import ERRORED, Status
from sweep.prices import COST
from sweep.space.objectives import objective
from sweep.store import log
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import SweepInfo

if TYPE_CHECKING:
    import pyarrow as pa

    from sweep.searchers.optuna_study import Importance
    from sweep.space.domains import Domain
    from sweep.store.tables import History, Tables


COLUMNS = ("trial", "time_s", "data_wait_s")
"""What `costs_of` looks at in the table of metrics."""

FUSED = "numerics.fused"
"""The column of trials that says with how many at once one was trained: "8 trials"."""

STARVING = 0.2
"""A trial that waits for its data for more than this share of its training time starves its accelerator."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of all trials of a sweep together."""

    sweep: str
    train_s: float
    overhead_s: Mapping[str, float]
    """By part. ``wait`` is what nobody measured: between steps, or for the driver; ``failed``: what trials took that
    failed or ran out of memory."""
    starving: Mapping[int, float]  # share of the training time that a trial waited for data, where it is large
    money: float | None = None  # what its GPUs cost, where they have a price
    fused: Mapping[int, int] = field(default_factory=dict)  # how many trials were trained with so many at once, at most


def costs_of(sweep: str, read: Tables) -> Costs:
    """Return the costs of a sweep of which the tables have been read."""
    from sweep.store import reading

    measured = [name for name in read.trials.column_names if name.startswith("overhead.")]
    columns = {name: reading.numbers(read.trials, name) for name in measured}
    parts = {name.removeprefix("overhead.").removesuffix("_s"): float(column.sum()) for name, column in columns.items()}
    rest = reading.numbers(read.trials, "overhead_s") - sum(columns.values())
    rest = rest.clip(min=0)
    failed = np.array([status in ERRORED for status in read.trials["status"].to_pylist()], bool)
    lost = {"failed": float(rest[failed].sum())} if failed.any() else {}
    train_s = float(reading.numbers(read.trials, "train_s").sum())
    fused = read.trials[FUSED].to_pylist() if FUSED in read.trials.column_names else []
    return Costs(
        sweep,
        train_s,
        {**parts, **lost, "wait": float(rest[~failed].sum())},
        _starving(read),
        reading.total(read.trials, COST),
        Counter(int(text.partition(" ")[0]) for text in fused if text),
    )


def _starving(read: Tables) -> dict[int, float]:
    if "data_wait_s" not in read.metrics.column_names:
        return {}
    from sweep.store import reading

    trial, time_s, wait_s = (reading.numbers(read.metrics, name) for name in COLUMNS)
    trials = trial.astype(np.int64)
    trained, waited = np.bincount(trials, time_s), np.bincount(trials, wait_s)
    starving = waited > STARVING * trained
    return {int(at): float(waited[at] / trained[at]) for at in np.flatnonzero(starving) if trained[at]}


POINTS = 600_000
"""Points kept at most of all curves together: objectives first, then what room is left for other metrics."""

LEAST = 8  # epochs of a trial, whatever the room


@dataclass(frozen=True, slots=True)
class Curves:
    """Trial after trial: rows ``starts[i]`` to ``starts[i + 1]`` are the epochs of the i-th."""

    starts: npt.NDArray[np.int64]  # (trials + 1,)
    epochs: npt.NDArray[np.int32]  # (rows,)
    values: Mapping[str, npt.NDArray[np.float32]]  # by metric, each (rows,); NaN where there is none
    thinned: int | None  # epochs that are kept of a trial at most, where that is not all
    left_out: tuple[str, ...]  # metrics for which there was no room


def curves_of(metrics: pa.Table, trials: Sequence[int], objectives: Sequence[str], points: int = POINTS) -> Curves:
    """Return the curves of ``trials``, in this order; of each objective all, or at most ``points`` of all together.

    The first, the last and the best epoch of the first objective are kept whatever the others.
    """
    from sweep.store import reading

    row, epoch = _ordered(metrics, trials)
    order = np.lexsort((epoch, row))
    order = order[row[order] >= 0]
    row, epoch = row[order], epoch[order]
    named = [name for name in metrics.column_names if name.startswith("metric.")]
    first = [f"metric.{name}" for name in objectives if f"metric.{name}" in named]
    names = first + [name for name in named if name not in first]
    kept = len(first) or 1
    room = points // max(len(row), 1)
    names, left_out = names[: max(kept, room)], names[max(kept, room) :]
    columns = {name: reading.numbers(metrics, name, missing=np.nan)[order] for name in names}
    thinned = None
    if len(row) * len(names) > points:
        thinned = max(points // (len(names) * max(len(trials), 1)), LEAST)
        chosen = _thinned(row, columns[names[0]], len(trials), thinned)
        row, epoch = row[chosen], epoch[chosen]
        columns = {name: column[chosen] for name, column in columns.items()}
    return Curves(
        np.searchsorted(row, np.arange(len(trials) + 1)),
        epoch.astype(np.int32),
        {name.removeprefix("metric."): column.astype(np.float32) for name, column in columns.items()},
        thinned,
        tuple(name.removeprefix("metric.") for name in left_out),
    )


def _ordered(metrics: pa.Table, trials: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each row of the table which of ``trials`` it is of (-1: none), and its epoch."""
    from sweep.store import reading

    known = np.asarray(trials, dtype=np.int64)
    by_number = np.argsort(known)
    number = reading.numbers(metrics, "trial").astype(np.int64)
    if not len(known):
        return np.full(len(number), -1), np.zeros(len(number))
    place = np.minimum(np.searchsorted(known[by_number], number), len(known) - 1)
    row = by_number[place]
    return np.where(known[row] == number, row, -1), reading.numbers(metrics, "epoch")


def _thinned(
    row: npt.NDArray[np.int64], values: npt.NDArray[np.float64], trials: int, most: int
) -> npt.NDArray[np.bool_]:
    """Return which rows to keep so that about ``most`` stay of each trial: evenly spaced, and its extremes."""
    starts = np.searchsorted(row, np.arange(trials + 1))
    length = np.diff(starts)[row]
    place = np.arange(len(row)) - starts[row]
    step = np.maximum(length / most, 1.0)
    chosen: npt.NDArray[np.bool_] = np.floor(place / step) != np.floor((place - 1) / step)
    chosen[place == length - 1] = True
    order = np.lexsort((np.nan_to_num(values, nan=0.0), row))
    ends = starts[1:][np.diff(starts) > 0] - 1
    chosen[order[ends]] = True
    chosen[order[starts[:-1][np.diff(starts) > 0]]] = True
    return chosen


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


def timeline_of(path: Path, read: Tables) -> Timeline:
    """Return the lanes of a sweep of which the tables have been read."""
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
    """Return a column of timestamps: ten thousand datetimes take a second."""
    micros: list[int | None] = read.trials[name].cast("int64").to_pylist()
    return [None if one is None else one / 1e6 for one in micros]


def _placed(trials: Sequence[tuple[float, float, int]]) -> Iterator[tuple[int, float, float, int]]:
    """Yield the first lane that is free for each trial, by the time of their start."""
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
    """Return when nobody drove the sweep: before each session but the first, as the log tells where these begin."""
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


@dataclass(frozen=True, slots=True)
class ReportData:
    """One sweep as its log stands now; curves and errors are of its trials, in their order."""

    sweep: Sweep
    costs: Costs
    curves: Curves
    timeline: Timeline
    errors: Mapping[int, str]  # by trial: the traceback
    info: SweepInfo
    text: str  # the sweep file as given
    running: bool
    tables: Tables  # what all this is made of

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many trials have which status."""
        return Counter(trial.status for trial in self.sweep.trials)

    @property
    def lasted_s(self) -> float | None:
        """Seconds on the clock, without the pauses between sessions; None before anything has happened."""
        return None if self.sweep.history.started is None else self.sweep.history.active_s

    @property
    def question(self) -> tuple[str, ...]:
        """The comment lines that the sweep file begins with, without what is meant for editors."""
        lines: list[str] = []
        for line in self.text.lstrip("\ufeff").splitlines():
            if not line.startswith("#"):
                break
            told = line.lstrip("#").strip()
            if told and not told.startswith(("yaml-language-server:", "!", "-*-", "vim:")):
                lines.append(told)
        return tuple(lines)


def read(folder: ResultsFolder, points: int = POINTS, name: str = "") -> ReportData:
    """Read a sweep, by its own name or another one, with so many points of curves at most. Raises `StoreError`."""
    from sweep.store import reading

    running = folder.is_running()
    read = reading.read(folder)
    sweep = of_tables(folder, read, name)
    errors = reading.columns(read.trials, ["trial", "error"])
    objectives = [name for name, _ in sweep.objectives]
    return ReportData(
        sweep,
        costs_of(sweep.name, read),
        curves_of(read.metrics, [trial.trial for trial in sweep.trials], objectives, points),
        timeline_of(folder.log, read),
        {int(str(trial)): str(error) for trial, error in zip(*errors.values(), strict=True) if error},
        folder.read_info(),
        folder.spec.read_text(encoding="utf-8"),
        running,
        read,
    )


def importance(accounts: Sequence[ReportData], names: Sequence[str]) -> dict[str, list[Importance]]:
    """By objective, how much each of the parameters ``names`` matters among the completed trials of all sweeps."""
    from sweep.searchers.optuna_study import importance as of_trials

    found, known = {}, domains(accounts)
    for one in (objective(*pair) for pair in accounts[0].sweep.objectives):
        scored = [
            (trial.params, loss)
            for account in accounts
            for trial in account.sweep.trials
            if trial.status is Status.COMPLETED and (loss := one.loss(trial.metrics)) is not None
        ]
        found[one.name] = of_trials(scored, names, known)
    return found


def domains(accounts: Sequence[ReportData]) -> dict[str, Domain]:
    """Return what each parameter can be, as the first of these sweeps says that says it; damaged ones are left out."""
    from sweep.spec import parameters
    from sweep.spec.yaml_reader import document_of

    found: dict[str, Domain] = {}
    for account in reversed(accounts):
        document = document_of(account.info.parameters, str(account.info.path))
        entries = parameters.read(document.data, (), document)
        found |= {entry.name: entry.domain for entry in entries if entry.domain is not None}
    return found
