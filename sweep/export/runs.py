"""Reads a sweep trial by trial with all epochs, as experiment trackers need it; also exports CSV files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from sweep.analysis import Sweep, Trial, make_sweep
from sweep.analysis.ranking import Ranking, rank
from sweep.errors import InputError
from sweep.events import STEERED_COLUMNS, Params
from sweep.store import reading
from sweep.store.columns import NOT_MEASURED
from sweep.store.disk import replacing, storing
from sweep.store.folder import ResultsFolder
from sweep.store.reading import numbers
from sweep.store.sweep_info import DISTRIBUTION, SweepInfo
from sweep.store.tables import Tables, write_csv

if TYPE_CHECKING:
    import pyarrow as pa


def import_extra(module: str, package: str, extra: str) -> ModuleType:
    """Import and return ``module``, which sweep's extra ``extra`` installs.

    Raises `InputError`, which names ``package`` and the extra, if ``module`` or another module that it imports is
    missing. All other errors of the import pass unchanged.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        what = f"is not installed{'' if missing == module.partition('.')[0] else f' ({missing} is missing)'}"
        raise InputError.one(package, what, f'pip install "{DISTRIBUTION}[{extra}]"') from error


FACTS = (
    *("node", "devices", "strategy", "precision", "num_replicas", "reproducible", "accumulate"),
    *("data", "checkpoint", "memo", "error", *STEERED_COLUMNS),
)
"""Columns in results/README.md that are exported as facts about a trial."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The values reported after one epoch."""

    number: int
    time: float  # seconds since 1970
    scalars: Mapping[str, float]  # named by `name_scalars`


@dataclass(frozen=True, slots=True)
class ExportedTrial:
    """A trial with its epochs, as it is exported."""

    trial: Trial
    params: Params
    started: float  # seconds since 1970
    ended: float | None  # seconds since 1970; None if the trial has not ended
    facts: Mapping[str, object]  # known values of some columns in results/README.md
    epochs: Sequence[Epoch]


@dataclass(frozen=True, slots=True)
class SweepState:
    """The state of a sweep at the time of reading, to be exported."""

    sweep: Sweep
    info: SweepInfo
    state: str  # "running", "unfinished" (its driver was killed), or the reason why its last session ended
    # distinguishes sweeps with the same name; unchanged when the sweep is resumed or moved
    identity: str
    tables: Tables

    @property
    def name(self) -> str:
        return self.sweep.folder.name

    @property
    def ranking(self) -> Ranking:
        return rank([self.sweep])

    def runs(self) -> Iterator[ExportedTrial]:
        """Yield all trials with their epochs, in the order of their numbers.

        Trials without epochs are included. Epochs are converted trial by trial to save memory.
        """
        times = reading.read_columns(self.tables.trials, ("started_at", "ended_at"))
        columns = reading.read_columns(self.tables.trials, FACTS)
        epochs = _Epochs(self.tables)
        # the rows of the table are in the order of `sweep.trials`
        for row, (trial, started, ended) in enumerate(
            zip(self.sweep.trials, *times.values(), strict=True)
        ):
            facts = {}
            for name, values in columns.items():
                if values[row] is not None:
                    facts[name] = values[row]
            yield ExportedTrial(
                trial,
                trial.params,
                started.timestamp(),
                None if ended is None else ended.timestamp(),
                facts,
                epochs.read(trial.trial),
            )


def read_sweep_state(folder: ResultsFolder) -> SweepState:
    """Return everything that can be exported from a sweep, as its log is now; nothing is written.

    Raises `StoreError` if its log, a table or sweep.json is damaged or cannot be read.
    """
    tables = reading.read_tables(folder)
    sweep = make_sweep(folder, tables)
    info = folder.read_info()
    # two sweeps of one name have begun at different times
    named = f"{info.name}\n{tables.history.started!r}"
    identity = hashlib.blake2b(named.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()
    return SweepState(sweep, info, sweep.state, identity, tables)


def make_allowed_names(names: Sequence[str], pattern: str, longest: int) -> dict[str, str]:
    """Map names to unique names of at most ``longest`` characters in which nothing matches ``pattern``.

    ``pattern`` is a regular expression, and each match is replaced by ``_``. Names that are too long lose their end,
    and an empty name becomes ``_``. Names that are allowed already are unchanged. A replacement that is taken gets a
    number from 2 on, as in ``name_2``.
    """
    taken = set()  # the new names given out so far
    for name in names:
        if 0 < len(name) <= longest and not re.search(pattern, name):
            taken.add(name)
    new_names = {name: name for name in taken}
    for name in names:
        if name in new_names:  # allowed as it is, or a duplicate
            continue
        base = re.sub(pattern, "_", name)[:longest] or "_"
        new_name = base
        number = 1
        while new_name in taken:
            number += 1
            end = f"_{number}"
            new_name = f"{base[: longest - len(end)]}{end}"
        new_names[name] = new_name
        taken.add(new_name)
    return new_names


def name_scalars(metrics: pa.Table) -> dict[str, str]:
    """Return, for each measured column of the table of epochs, the name to export it under.

    A column ``metric.NAME`` is exported as ``NAME``, any other measured column with the prefix ``run/``. Columns such
    as the trial and the epoch (`NOT_MEASURED`) are left out. The columns of metrics come last.
    """
    of_metrics = {}
    of_others = {}
    for name in metrics.column_names:
        if name.startswith("metric."):
            of_metrics[name] = name.removeprefix("metric.")
        elif name not in NOT_MEASURED:
            of_others[name] = f"run/{name}"
    return of_others | of_metrics


class _Epochs:
    """The table of metrics of a sweep, from which the epochs of one trial are read at a time."""

    def __init__(self, read: Tables) -> None:
        self._table = read.metrics
        trials, first_rows = np.unique(numbers(read.metrics, "trial"), return_index=True)
        # the table is sorted by trial, so the rows of one trial end where those of the next begin
        edges = [*first_rows.tolist(), read.metrics.num_rows]
        # by trial: its first row, and the row after its last one
        self._rows = {
            int(trial): (edges[at], edges[at + 1]) for at, trial in enumerate(trials.tolist())
        }
        self._name_by_column = name_scalars(read.metrics)

    def read(self, trial: int) -> list[Epoch]:
        """Return the epochs of a trial in the order of the table; [] if it has none.

        Values that are absent in an epoch are left out of its scalars.
        """
        if trial not in self._rows:
            return []
        start, end = self._rows[trial]
        columns = self._table.slice(start, end - start).to_pydict()
        epochs = []
        for row, (epoch, time) in enumerate(
            zip(columns["epoch"], columns["timestamp"], strict=True)
        ):
            scalars = {}
            for column, name in self._name_by_column.items():
                value = columns[column][row]
                if value is not None:
                    scalars[name] = value
            epochs.append(Epoch(epoch, time.timestamp(), scalars))
        return epochs


def export_csv(folder: ResultsFolder, target: Path) -> list[Path]:
    """Write ``trials.csv`` and ``metrics.csv`` into the folder ``target``, creating it; return their paths in order.

    Existing files of these names are replaced. Raises `StoreError` if the sweep is damaged or the disk cannot be
    written.
    """
    tables = reading.read_tables(folder)
    with storing(target):
        target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in (("trials.csv", tables.trials), ("metrics.csv", tables.metrics)):
        with replacing(target / name) as aside:
            write_csv(table, aside)
        written.append(target / name)
    return written
