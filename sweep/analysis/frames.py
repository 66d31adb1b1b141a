"""Sweeps as data frames, for notebooks; the one module that knows pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pandas as pd

from sweep.analysis.lineage import Step
from sweep.analysis.ranking import Ranking, columns
from sweep.analysis.trials import Sweep
from sweep.errors import InputError, did_you_mean
from sweep.store.tables import Tables

Frame: TypeAlias = pd.DataFrame

_NO_CURVES = frozenset({"sweep", "trial", "trial_id", "epoch", "timestamp", "memo"})


def trials(tables: Sequence[Tables]) -> Frame:
    """Return one row per trial, with the columns of results/README.md."""
    return _joined([one.trials.to_pandas() for one in tables])


def metrics(tables: Sequence[Tables]) -> Frame:
    """Return one row per trial and epoch, with the columns of results/README.md."""
    return _joined([one.metrics.to_pandas() for one in tables])


def best(frame: Frame, sweeps: Sequence[Sweep], ranked: Sequence[tuple[int, Sequence[object]]]) -> Frame:
    """Return the rows of some configurations' trials, with the ``rank`` of each configuration in front."""
    positions = {id(trial): at for at, trial in enumerate(trial for sweep in sweeps for trial in sweep.trials)}
    rows = [(number, positions[id(trial)]) for number, members in ranked for trial in members]
    chosen = frame.iloc[[position for _, position in rows]].reset_index(drop=True)
    chosen.insert(0, "rank", [number for number, _ in rows])
    return chosen


def configurations(ranking: Ranking) -> Frame:
    """Return one row per configuration, the best first, with the columns of results/README.md."""
    found = columns(ranking)
    series = {
        **{name: pd.Series(list(values)) for name, values in found.params.items()},
        **{name: pd.Series(values, dtype="float64") for name, values in found.numbers.items()},
        **{name: pd.Series(values, dtype="Int64") for name, values in found.integers.items()},
        **{name: pd.Series(values, dtype="str") for name, values in found.texts.items()},
    }
    return pd.DataFrame({name: series[name] for name in found.names})


def curves(of_trials: Frame, of_epochs: Frame, metric: str) -> Frame:
    """A metric by epoch: the index is the epoch, from 1; a column per trial in their order, of several sweeps per
    sweep and trial. NaN after a trial's last epoch. Raises InputError that names the metrics for another."""
    known = {name.removeprefix("metric."): name for name in of_epochs.columns if name not in _NO_CURVES}
    column = known.get(metric.removeprefix("metric."))
    if column is None:
        near = did_you_mean(metric, known)
        hint = f"{near} " if "mean" in near else ""
        raise InputError.one("curves", f"no trial has reported {metric!r}", f"{hint}there are: {', '.join(known)}")
    by = ["sweep", "trial"] if of_trials["sweep"].nunique() > 1 else "trial"
    wide = of_epochs.pivot(index="epoch", columns=by, values=column)
    order = of_trials[by] if isinstance(by, str) else pd.MultiIndex.from_frame(of_trials[by])
    wide = wide.reindex(columns=order)
    wide.columns.names = [by] if isinstance(by, str) else by
    return wide.reindex(range(1, int(wide.index.max()) + 1)).rename_axis("epoch") if len(wide) else wide


def lineage(steps: Sequence[Step]) -> Frame:
    """Return one row for each trial that has trained some of the epochs, with its parameters."""
    rows = [
        {"trial": step.trial, "first_epoch": step.first, "last_epoch": step.last}
        | {f"param.{name}": value for name, value in step.params.items()}
        for step in steps
    ]
    return pd.DataFrame(rows)


def _joined(frames: Sequence[Frame]) -> Frame:
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
