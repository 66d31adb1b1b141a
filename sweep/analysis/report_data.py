"""The data of a report, from one reading of a sweep's log: costs, curves, a timeline of workers, importances.

The log has the node and the devices of a trial, but not its process. In the timeline, trials on the same node (and the
same GPUs, if they had any) that did not overlap share a lane. So a node has as many lanes as trials ran concurrently.
It has them from the end of a trial on. If all trials so far ran in the same place, those that run are there, too.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from sweep.analysis.sweep_rows import Sweep, Trial, make_sweep
from sweep.events import ERRORED, Status
from sweep.prices import COST
from sweep.space.domains import configuration_key
from sweep.space.objectives import objective
from sweep.store import log
from sweep.store.disk import storing
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import SweepInfo

if TYPE_CHECKING:
    import pyarrow as pa

    from sweep.searchers.optuna_study import Importance
    from sweep.space.domains import Domain
    from sweep.store.tables import History, Tables


COLUMNS = ("trial", "time_s", "data_wait_s")
"""The columns of the metrics table that `costs_of` needs."""

FUSED = "numerics.fused"
"""The column of trials with the number of trials that were trained together: "8 trials"."""

STARVING = 0.2
"""A trial that waits for data for a larger share of its training time is reported as starved of data."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of all trials of a sweep together, and their cost."""

    sweep: str
    train_s: float
    overhead_s: Mapping[str, float]
    """By part. ``wait`` is time that nobody measured, between steps or for the driver.

    ``failed`` is the time of trials that failed or ran out of memory.
    """
    # by trial: the share of training time spent waiting for data, if above `STARVING`
    starving: Mapping[int, float]
    money: float | None = None  # of its GPUs, if they have a price
    # the number of trials by the size of the largest group in which they were trained
    fused: Mapping[int, int] = field(default_factory=dict)


def costs_of(sweep: str, read: Tables) -> Costs:
    """Return the time and cost of all trials of a sweep, added up from its tables; ``sweep`` is its name.

    Overhead that was measured is added up by part, such as ``compile``. What is left of the overhead is the part
    ``wait`` or, of trials that failed or ran out of memory, ``failed``, which is missing if there are none. The result
    also has the trials that waited for data for more than `STARVING` of their training time. The metrics in ``read``
    need the columns `COLUMNS`; without ``data_wait_s``, no trial is reported.
    """
    from sweep.store import reading

    measured = []  # columns of the parts of the overhead
    for name in read.trials.column_names:
        if name.startswith("overhead."):
            measured.append(name)
    columns = {}
    for name in measured:
        columns[name] = reading.numbers(read.trials, name)
    overhead_s: dict[str, float] = {}
    for name, column in columns.items():
        overhead_s[name.removeprefix("overhead.").removesuffix("_s")] = float(column.sum())
    rest_s = reading.numbers(read.trials, "overhead_s") - sum(columns.values())
    rest_s = rest_s.clip(min=0)
    has_failed = np.array([status in ERRORED for status in read.trials["status"].to_pylist()], bool)
    if has_failed.any():
        overhead_s["failed"] = float(rest_s[has_failed].sum())
    overhead_s["wait"] = float(rest_s[~has_failed].sum())
    train_s = float(reading.numbers(read.trials, "train_s").sum())
    if FUSED in read.trials.column_names:
        fused = read.trials[FUSED].to_pylist()
    else:
        fused = []
    return Costs(
        sweep,
        train_s,
        overhead_s,
        _find_starving_trials(read),
        reading.total(read.trials, COST),
        Counter(int(text.partition(" ")[0]) for text in fused if text),  # "8 trials" is 8
    )


def _find_starving_trials(read: Tables) -> dict[int, float]:
    """Return the trials that waited for data for more than `STARVING` of their training time, each with its share.

    The result is empty if the table of metrics has no column ``data_wait_s``.
    """
    if "data_wait_s" not in read.metrics.column_names:
        return {}
    from sweep.store import reading

    trial, time_s, wait_s = (reading.numbers(read.metrics, name) for name in COLUMNS)
    # seconds of each trial, by its number
    trials = trial.astype(np.int64)
    trained = np.bincount(trials, time_s)
    waited = np.bincount(trials, wait_s)
    starving = waited > STARVING * trained
    starved = {}
    for at in np.flatnonzero(starving):
        if trained[at]:  # a share of 0 s is not defined
            starved[int(at)] = float(waited[at] / trained[at])
    return starved


POINTS = 600_000
"""Maximum number of points of all curves together; objectives come first, then other metrics if they fit."""

TRAINING_TIME = "seconds of training"
EXAMPLES = "examples"
LEAST = 8  # epochs kept of a trial in any case


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of all trials, concatenated: rows ``starts[i]`` to ``starts[i + 1]`` are the epochs of trial i."""

    starts: npt.NDArray[np.int64]  # (trials + 1,)
    epochs: npt.NDArray[np.int32]  # (rows,)
    values: Mapping[str, npt.NDArray[np.float32]]  # by metric, each (rows,); NaN if not reported
    # by `TRAINING_TIME` and `EXAMPLES`, if known: sums up to each epoch
    across: Mapping[str, npt.NDArray[np.float32]]
    thinned: int | None  # maximum number of epochs kept of a trial; None if all are kept
    left_out: tuple[str, ...]  # metrics that did not fit


def curves_of(
    metrics: pa.Table, trials: Sequence[int], objectives: Sequence[str], points: int = POINTS
) -> Curves:
    """Return the curves of ``trials``, in this order, thinned to about ``points`` points in all.

    ``metrics`` is the table of metrics, ``trials`` are numbers of trials, and ``objectives`` the names of the
    objectives, the first of which decides. All objectives that the table has are kept, or one metric if it has none;
    other metrics only if all of their epochs fit. If what is kept does not fit, epochs of each trial are left out, but
    about `LEAST` stay in any case, and always those with the smallest and the largest value of the first objective and
    the last one.
    """
    from sweep.store import reading

    row, epoch = _locate_rows(metrics, trials)
    order = np.lexsort((epoch, row))
    order = order[row[order] >= 0]  # without the rows of other trials
    # of each epoch: the position of its trial, and its number
    row, epoch = row[order], epoch[order]
    named = []
    for name in metrics.column_names:
        if name.startswith("metric."):
            named.append(name)
    first = []  # the columns of the objectives
    for name in objectives:
        if f"metric.{name}" in named:
            first.append(f"metric.{name}")
    names = first + [name for name in named if name not in first]
    # the number of metrics that are kept: as many as fit with all epochs, but all objectives
    count = max(len(first) or 1, points // max(len(row), 1))
    names, left_out = names[:count], names[count:]
    columns = {}
    for name in names:
        columns[name] = reading.numbers(metrics, name, missing=np.nan)[order]
    across = _sum_up(metrics, order, row)
    thinned = None
    if len(row) * len(names) > points:  # leave out epochs
        thinned = max(points // (len(names) * max(len(trials), 1)), LEAST)
        chosen = _thin_rows(row, columns[names[0]], len(trials), thinned)
        row, epoch = row[chosen], epoch[chosen]
        columns = {name: column[chosen] for name, column in columns.items()}
        across = {name: column[chosen] for name, column in across.items()}
    with np.errstate(over="ignore"):  # what is too large for 32 bits is infinite
        values = {
            name.removeprefix("metric."): column.astype(np.float32)
            for name, column in columns.items()
        }
    return Curves(
        np.searchsorted(row, np.arange(len(trials) + 1)),
        epoch.astype(np.int32),
        values,
        {name: column.astype(np.float32) for name, column in across.items()},
        thinned,
        tuple(name.removeprefix("metric.") for name in left_out),
    )


def _sum_up(
    metrics: pa.Table, order: npt.NDArray[np.int64], trial_positions: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return for each epoch the training time in seconds and the number of examples of its trial so far, by name.

    The names are `TRAINING_TIME` and `EXAMPLES`; both sums include the epoch itself. ``order`` has the indices of the
    epochs' rows in the table ``metrics``, sorted by trial and then by epoch; ``trial_positions`` has, for each of them,
    the position of its trial, from 0. The arrays of the result have the length and order of ``order``. The result is
    empty if the time of any of these epochs is unknown; `EXAMPLES` is left out if the examples per second of any of
    them are unknown.
    """
    from sweep.store import reading

    columns = {}
    for name in ("time_s", "examples_per_s"):
        if name in metrics.column_names:
            columns[name] = reading.numbers(metrics, name, missing=np.nan)[order]
    if "time_s" not in columns or not np.isfinite(columns["time_s"]).all():
        return {}
    parts = {TRAINING_TIME: columns["time_s"]}  # what each epoch adds
    if "examples_per_s" in columns and np.isfinite(columns["examples_per_s"]).all():
        parts[EXAMPLES] = columns["examples_per_s"] * columns["time_s"]
    # the first epoch of each trial; positions of trials begin at 0
    begins = np.flatnonzero(np.diff(trial_positions, prepend=-1))
    lengths = np.diff(begins, append=len(trial_positions))
    sums = {}
    for name, part in parts.items():
        total = np.cumsum(part)  # over all trials
        # of each trial: the sum over all trials before it
        before = np.concatenate([[0.0], total])[begins]
        sums[name] = total - np.repeat(before, lengths)
    return sums


def _locate_rows(
    metrics: pa.Table, trials: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return for each row of the table the position of its trial in ``trials``, and its epoch.

    The position is -1 for a trial that is not in ``trials``. If ``trials`` is empty, all epochs are 0.
    """
    from sweep.store import reading

    known = np.asarray(trials, dtype=np.int64)
    by_number = np.argsort(known)  # positions in the order of the numbers
    number = reading.numbers(metrics, "trial").astype(np.int64)  # of the trial of each row
    if not len(known):
        return np.full(len(number), -1), np.zeros(len(number))
    # where each number is among the sorted ones, or would be if it is not there, which the comparison below finds
    index = np.minimum(np.searchsorted(known[by_number], number), len(known) - 1)
    position = by_number[index]
    is_known = known[position] == number
    return np.where(is_known, position, -1), reading.numbers(metrics, "epoch")


def _thin_rows(
    row: npt.NDArray[np.int64], values: npt.NDArray[np.float64], trials: int, most: int
) -> npt.NDArray[np.bool_]:
    """Return for each row whether to keep it: about ``most`` evenly spaced ones of a trial, its extremes and its last.

    ``row`` has the position of the trial for each row, ascending, ``values`` what the extremes are of, and ``trials``
    is the number of trials. The extremes are the first of the smallest values and the last of the largest; NaN is
    neither.
    """
    starts = np.searchsorted(row, np.arange(trials + 1))
    # of each row: the number of rows of its trial, and its index among them
    length = np.diff(starts)[row]
    index = np.arange(len(row)) - starts[row]
    step = np.maximum(length / most, 1.0)
    # the first row of each step
    chosen: npt.NDArray[np.bool_] = np.floor(index / step) != np.floor((index - 1) / step)
    chosen[index == length - 1] = True
    unknown = np.isnan(values)
    chosen[_find_first_smallest(row, np.where(unknown, np.inf, values))] = True
    negated = np.where(unknown, np.inf, -values)
    # from the end, so that it is the last of the largest
    chosen[len(row) - 1 - _find_first_smallest(row[::-1], negated[::-1])] = True
    return chosen


def _find_first_smallest(
    row: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Return the indices of the rows with the smallest value of each trial, one for each, the first of equal ones.

    ``row`` has the position of the trial for each row; a trial's rows lie together. ``values`` has no NaN. The result
    is in the order of the positions.
    """
    if not len(row):
        return np.zeros(0, dtype=np.int64)
    begins = np.flatnonzero(np.diff(row, prepend=row[0] - 1))  # the first row of each trial
    smallest = np.minimum.reduceat(values, begins)
    lengths = np.diff(begins, append=len(row))
    candidates = np.flatnonzero(values == np.repeat(smallest, lengths))  # with equal ones
    _, first = np.unique(row[candidates], return_index=True)
    return candidates[first]


NOT_KNOWN = "not known"
"""The lane of trials whose node the log does not have."""
RUNNING_NOW = "running now"
"""The lane of trials that run, while the log does not have their node yet."""
# a worker may begin a trial before the driver has logged the end of the previous one
SLACK_S = 0.05


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A trial in a lane of the timeline, in seconds since 1970."""

    row: int  # in the table of trials
    lane: int
    begin: float
    end: float
    open: bool = False  # the trial runs: it ends now


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lanes of a sweep."""

    lanes: tuple[str, ...]
    # of each lane: its name begins with that of its node, or of its nodes as in "a,b"
    nodes: tuple[str, ...]
    spans: tuple[TimelineSpan, ...]
    pauses: tuple[tuple[float, float], ...]  # between sessions
    busy_s: float
    idle_s: float  # of all lanes, while the sweep ran


def timeline_of(path: Path, read: Tables, now: float | None = None) -> Timeline:
    """Return the timeline of a sweep from its log at ``path`` and its tables.

    A place (a node and its GPUs) has as many lanes as trials ran there at once. The time between sessions is cut out of
    trials, so a trial may have several spans. While the sweep runs, ``now`` is the time, in seconds since 1970, up to
    which its running trials are drawn; without it, they are drawn up to the last event.
    """
    pauses = _read_pauses(path, read.history)
    places, running_rows = _read_places(read, now)
    lanes: list[str] = []
    nodes: list[str] = []
    spans: list[TimelineSpan] = []
    for (node, gpus), trials in sorted(places.items()):
        placed = list(_assign_lanes(sorted(trials)))
        count = 1 + max(lane for lane, *_ in placed)  # lanes of this place
        for lane, begin, end, row in placed:
            for part_begin, part_end in _remove_pauses(pauses, begin, end):
                is_open = row in running_rows and part_end == end  # only the last part of a trial
                # the lane's number among all lanes, after those of the places before
                spans.append(TimelineSpan(row, len(lanes) + lane, part_begin, part_end, is_open))
        nodes += [node] * count
        name = f"{node} {gpus}".strip()
        if count == 1:
            lanes.append(name)
        else:
            lanes += [f"{name} · {lane + 1}" for lane in range(count)]
    busy_s = sum(span.end - span.begin for span in spans)
    active_s = read.history.active_s  # of all sessions, up to the last event
    if now is not None and read.history.last is not None:
        active_s += max(now - read.history.last, 0.0)
    idle_s = max(len(lanes) * active_s - busy_s, 0.0)
    return Timeline(tuple(lanes), tuple(nodes), tuple(spans), pauses, busy_s, idle_s)


Places: TypeAlias = dict[tuple[str, str], list[tuple[float, float, int]]]
"""By node and GPUs: the trials that ran there, as (begin, end, row)."""


def _read_places(read: Tables, now: float | None) -> tuple[Places, set[int]]:
    """Return where and when trials ran, and the rows of the trials that are running.

    Running trials last until ``now``. If it is None, they last until the last event, and no rows are returned. Those
    whose node is not known yet are at the place of all others, if these have a single one, otherwise at `RUNNING_NOW`;
    other trials without a node are at `NOT_KNOWN`. Trials without a beginning or an end are left out, and those that
    end when they begin. The GPUs of a trial without any are "".
    """
    from sweep.store import reading

    columns = reading.read_columns(read.trials, ("node", "devices", "status"))
    times = [_read_times(read, name) for name in ("started_at", "ended_at")]
    places: Places = defaultdict(list)
    running = set()
    for row, (begin, end, node, devices, status) in enumerate(
        zip(*times, *columns.values(), strict=True)
    ):
        where = str(node or NOT_KNOWN)
        if end is None and status == Status.RUNNING:
            end = read.history.last if now is None else now
            if now is not None:
                where = str(node or RUNNING_NOW)
                running.add(row)
        if begin is not None and end is not None and end > begin:
            gpus = str(devices) if str(devices or "").startswith("gpu") else ""
            places[where, gpus].append((begin, end, row))
    # those without a node yet
    _place_running_trials(places)
    return places, running


def _place_running_trials(places: Places) -> None:
    """Move the trials whose node is not known yet, as they run, to the place of all others, if that is a single one.

    ``places`` is changed. Nothing is moved if the node of the others is not known either.
    """
    running = (RUNNING_NOW, "")
    others = [place for place in places if place != running]
    if running in places and len(others) == 1 and others[0][0] != NOT_KNOWN:
        places[others[0]] += places.pop(running)


def _read_times(read: Tables, name: str) -> list[float | None]:
    """Return the timestamps in a column of the table of trials as seconds since 1970; None for empty cells."""
    times_us: list[int | None] = read.trials[name].cast("int64").to_pylist()
    times_s: list[float | None] = []
    for time_us in times_us:
        times_s.append(None if time_us is None else time_us / 1e6)
    return times_s


def _assign_lanes(
    trials: Sequence[tuple[float, float, int]],
) -> Iterator[tuple[int, float, float, int]]:
    """Yield (lane, begin, end, row) for each trial, with the first lane, from 0, that is free when it begins.

    ``trials`` are (begin, end, row), in the order in which they begin. Trials that overlap by at most `SLACK_S` may
    have the same lane.
    """
    ends: list[float] = []  # of the last trial in each lane
    for begin, end, row in trials:
        lane = 0
        while lane < len(ends) and ends[lane] > begin + SLACK_S:
            lane += 1
        if lane == len(ends):  # no lane is free
            ends.append(end)
        else:
            ends[lane] = end
        yield lane, begin, end, row


def _remove_pauses(
    pauses: Sequence[tuple[float, float]], begin: float, end: float
) -> Iterator[tuple[float, float]]:
    """Yield the parts, as (begin, end), of the time from ``begin`` to ``end`` that do not lie in a pause."""
    for paused, resumed in pauses:
        if begin < paused < end:
            yield begin, paused
        if begin < resumed and paused < end:  # what follows the pause is still to be yielded
            begin = max(begin, resumed)
    if begin < end:
        yield begin, end


def _read_pauses(path: Path, history: History) -> tuple[tuple[float, float], ...]:
    """Return the times between the sessions of a log, as (begin, end), when no driver ran; empty if there is no log.

    Raises `StoreError` if the log is damaged where a session begins.
    """
    if not path.is_file():
        return ()
    pauses = []
    earlier_total_s = 0.0
    # of each session, the history has the byte of its event and the seconds of all pauses before it
    sessions = log.read_at(path, [position for position, _ in history.pauses])
    for session, (_, total_s) in zip(sessions, history.pauses, strict=True):
        if total_s > earlier_total_s:
            pauses.append((session.time - (total_s - earlier_total_s), session.time))
        earlier_total_s = total_s
    return tuple(pauses)


@dataclass(frozen=True, slots=True)
class ReportData:
    """The data of a report on one sweep. Curves and errors are in the order of its trials."""

    sweep: Sweep
    costs: Costs
    curves: Curves
    timeline: Timeline
    errors: Mapping[int, str]  # tracebacks by trial
    info: SweepInfo
    text: str  # the sweep file as written by the user
    running: bool
    tables: Tables  # from which all other fields are made

    @property
    def counts(self) -> Mapping[Status, int]:
        """The number of trials by status; statuses without a trial are missing, and count as 0."""
        return Counter(trial.status for trial in self.sweep.trials)

    @property
    def lasted_s(self) -> float | None:
        """Seconds of all sessions, without the pauses between them; None before the first event."""
        if self.sweep.history.started is None:
            return None
        return self.sweep.history.active_s

    @property
    def question(self) -> tuple[str, ...]:
        """The comment lines at the start of the sweep file, without the #, empty ones and those for editors."""
        return list_question_lines(self.text)


def list_question_lines(text: str) -> tuple[str, ...]:
    """Return the comment lines at the start of a sweep file, without the #, empty ones and those for editors.

    They end before the first line that does not begin with #, also if that is empty. Those for editors are such as
    ``# vim: ...`` and the first line of a script, ``#!...``.
    """
    lines: list[str] = []
    # some editors begin a file with a byte order mark
    for line in text.lstrip("\ufeff").splitlines():
        if not line.startswith("#"):
            break
        comment = line.lstrip("#").strip()
        if comment and not comment.startswith(("yaml-language-server:", "!", "-*-", "vim:")):
            lines.append(comment)
    return tuple(lines)


def read_report_data(folder: ResultsFolder, points: int = POINTS, name: str = "") -> ReportData:
    """Read the data of a report on a sweep; ``name`` replaces its own name. Raises `StoreError` if it cannot be read.

    The curves have about ``points`` points in all; see `curves_of`. A sweep file that is no UTF-8 is shown as far as
    possible.
    """
    from sweep.store import reading

    running = folder.is_running()
    with storing(folder.spec):
        # only shown: what is no UTF-8 must not keep the rest from being read
        sweep_file = folder.spec.read_bytes().decode(errors="replace")
    read = reading.read_tables(folder)
    sweep = make_sweep(folder, read, name)
    errors = reading.read_columns(read.trials, ["trial", "error"])
    objectives = [name for name, _ in sweep.objectives]
    return ReportData(
        sweep,
        costs_of(sweep.name, read),
        curves_of(read.metrics, [trial.trial for trial in sweep.trials], objectives, points),
        timeline_of(folder.log, read, time.time() if running else None),
        {
            int(str(trial)): str(error)
            for trial, error in zip(*errors.values(), strict=True)
            if error
        },
        folder.read_info(),
        sweep_file,
        running,
        read,
    )


def list_importances(
    accounts: Sequence[ReportData], names: Sequence[str]
) -> dict[str, list[Importance]]:
    """Return the importance of each parameter in ``names`` by objective, from the completed trials of all sweeps.

    ``accounts`` has at least one sweep; all have the objectives of the first. The list of an objective is sorted,
    largest first. It is empty if fewer than ten different configurations have a finite value. Parameters that no trial
    with such a value has are left out.
    """
    from sweep.searchers.optuna_study import FEWEST
    from sweep.searchers.optuna_study import compute_importances as of_trials

    known_domains = collect_domains(accounts)
    completed: list[Trial] = []
    for account in accounts:
        for trial in account.sweep.trials:
            if trial.status is Status.COMPLETED:
                completed.append(trial)
    by_objective: dict[str, list[Importance]] = {}
    for metric, goal in accounts[0].sweep.objectives:
        one = objective(metric, goal)
        scored = []
        for trial in completed:
            loss = one.loss(trial.metrics)
            if loss is not None:
                scored.append((trial.params, loss))
        configurations = {configuration_key(params) for params, _ in scored}
        enough = len(configurations) >= FEWEST
        by_objective[one.name] = of_trials(scored, names, known_domains) if enough else []
    return by_objective


def collect_domains(accounts: Sequence[ReportData]) -> dict[str, Domain]:
    """Return the domain of each parameter, by name, from the first of the sweeps in which it is readable.

    Parameters that are readable in none are left out.
    """
    from sweep.spec import parameters
    from sweep.spec.yaml_reader import make_document

    found: dict[str, Domain] = {}
    for account in reversed(accounts):  # so that the first sweep replaces the domains of the others
        document = make_document(account.info.parameters, str(account.info.path))
        entries = parameters.read_parameters(document.data, (), document)
        found |= {entry.name: entry.domain for entry in entries if entry.domain is not None}
    return found
