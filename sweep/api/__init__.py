"""``sweep.load`` and `LoadedSweep`: the results of one or more sweeps in Python, as frames, ranking, study or model.

The only module that knows pandas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import pandas as pd

from sweep.analysis import Sweep, lineage_of, of_tables, verdict
from sweep.analysis.ranking import Ranking, columns, rank
from sweep.errors import InputError
from sweep.render.tables import counted_by, filled, ranking_grid
from sweep.store import reading
from sweep.store.columns import NOT_MEASURED
from sweep.store.folder import ResultsFolder, folders, told_apart
from sweep.store.object_store import is_url, store_of
from sweep.store.remote import local
from sweep.store.tables import Tables, of_params
from sweep.text import duration, guess, printable, score, settings

if TYPE_CHECKING:
    from optuna.study import Study

    from sweep.api.running import How, Settings


Frame: TypeAlias = pd.DataFrame


def _as_in_trials(values: Sequence[object], sweeps: Sequence[str | None]) -> pd.Series[Any]:
    """Return values of a parameter as ``trials`` has them: JSON text if the values of a sweep have no common type."""
    places = {name: [at for at, one in enumerate(sweeps) if one == name] for name in sweeps}
    parts = [of_params([values[at] for at in of])[0].to_pandas().set_axis(of) for of in places.values()]
    return pd.concat(parts).sort_index() if parts else pd.Series(dtype="object")


def curves_frame(of_trials: Frame, of_epochs: Frame, metric: str) -> Frame:
    """Return one metric by epoch: one row per epoch, from 1, and one column per trial, in the order of the trials.

    The columns of several sweeps are pairs of sweep and trial. Values are NaN after a trial's last epoch. Raises
    InputError, which names the known metrics, if no trial has reported this one.
    """
    measured = [name for name in of_epochs.columns if name not in NOT_MEASURED]
    known = {name.removeprefix("metric."): name for name in measured}
    # A metric takes precedence over a measure of the same name, such as the cost.
    known |= {name.removeprefix("metric."): name for name in measured if name.startswith("metric.")}
    column = known.get(metric.removeprefix("metric."))
    if column is None:
        hint = f"{guess(metric, known)} there are: {', '.join(known)}".lstrip()
        raise InputError.one("curves", f"no trial has reported {metric!r}", hint)
    by = ["sweep", "trial"] if of_trials["sweep"].nunique() > 1 else "trial"
    wide = of_epochs.pivot(index="epoch", columns=by, values=column)
    order = of_trials[by] if isinstance(by, str) else pd.MultiIndex.from_frame(of_trials[by])
    wide = wide.reindex(columns=order)
    wide.columns.names = [by] if isinstance(by, str) else by
    return wide.reindex(range(1, int(wide.index.max()) + 1)).rename_axis("epoch") if len(wide) else wide


def _joined(frames: Sequence[Frame]) -> Frame:
    if len(frames) == 1:
        return frames[0]
    # pd.concat turns True into 1 if another frame's column has integers.
    kept = [one.astype(dict.fromkeys(one.columns[one.dtypes == "bool"], "object")) for one in frames]
    return pd.concat(kept, ignore_index=True).infer_objects()


@dataclass(frozen=True, eq=False, repr=False)
class LoadedSweep:
    """The results of one sweep, or of several together, as they were when loaded; load again to get newer ones.

    ``trials`` and ``metrics`` are frames with the columns of results/README.md. If several sweeps are loaded, the
    column ``sweep`` says which one a row belongs to.
    """

    folders: tuple[ResultsFolder, ...]
    trials: Frame
    metrics: Frame
    _tables: Sequence[Tables] = field(repr=False)
    _trainable: object = None  # the class or function that this process ran, if no module contains it

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The sweeps with their trials, as a ranking needs them."""
        each = zip(self.folders, self._tables, told_apart(self.folders), strict=True)
        return tuple(of_tables(*one) for one in each)

    @property
    def name(self) -> str:
        """The sweep's name; the names of several sweeps are joined by commas."""
        return ", ".join(told_apart(self.folders))

    @property
    def info(self) -> dict[str, object]:
        """The content of sweep.json: the resolved sweep file and where it ran. For several sweeps a dict by name."""
        if len(self.folders) == 1:
            return dict(self.folders[0].read_info().content)
        return {name: dict(folder.read_info().content) for name, folder in told_apart(self.folders).items()}

    def ranking(self) -> Ranking:
        """Return all configurations, best first, with the statistics of their repeats.

        Raises `InputError` if several sweeps are loaded that have different objectives.
        """
        return rank(self.sweeps)

    def configurations(self) -> Frame:
        """Return the ranking as a frame: one row per configuration with its ``verdict``, p-values and intervals."""
        found = columns(self.ranking())
        _, sweeps = found["sweep"]
        dtypes = {"number": "float64", "integer": "Int64", "text": "str"}
        series = {
            name: _as_in_trials(values, sweeps) if kind == "param" else pd.Series(values, dtype=dtypes[kind])
            for name, (kind, values) in found.items()
        }
        return pd.DataFrame(series)

    def best(self, n: int = 1) -> Frame:
        """Return all trials of the ``n`` best configurations, with the column ``rank`` in front."""
        positions = {id(trial): at for at, trial in enumerate(trial for sweep in self.sweeps for trial in sweep.trials)}
        rows = [(row.rank, positions[id(trial)]) for row in self.ranking().rows[:n] for trial in row.trials]
        chosen = self.trials.iloc[[position for _, position in rows]].reset_index(drop=True)
        chosen.insert(0, "rank", [number for number, _ in rows])
        return chosen

    def curves(self, metric: str | None = None) -> Frame:
        """Return one metric, by default the objective: one row per epoch, one column per trial, NaN after its end.

        The columns of several sweeps are pairs of sweep and trial. Raises `InputError`, which names the known metrics,
        if no trial has reported this one.
        """
        if metric is None:
            objectives = self.folders[0].read_info().objectives
            metric = objectives[0][0] if objectives else ""
        return curves_frame(self.trials, self.metrics, metric)

    def lineage(self, trial: int) -> Frame:
        """Return the ancestry of a trial of a population-based search: one row per trial whose epochs it inherited.

        The columns are ``trial``, ``first_epoch``, ``last_epoch`` and the parameters. Raises `InputError` if the trial
        does not exist, or if several sweeps are loaded.
        """
        folder, trials = self._only("lineage()"), self.sweeps[0].trials
        if trial not in (there := {one.trial for one in trials}):
            raise folder.no_trial(trial, there)
        rows = [
            {"trial": step.trial, "first_epoch": step.first, "last_epoch": step.last}
            | {f"param.{name}": value for name, value in step.params.items()}
            for step in lineage_of(trials, trial)
        ]
        return pd.DataFrame(rows)

    def study(self) -> Study:
        """Return the sweep as an in-memory Optuna study, for Optuna's plots, importances and samplers.

        Raises `InputError` if several sweeps are loaded.
        """
        from sweep.analysis import studies

        folder = self._only("study()")
        return studies.of_read(folder, self._tables[0])

    def model(
        self, trial: int | None = None, epoch: int | Literal["best", "last"] = "last", *, trainable: object = None
    ) -> Any:
        """Return the Keras model of a trial with its weights, by default of the best trial that kept a checkpoint.

        ``trainable`` is needed only for a class that another notebook or script defined; the result of a run in this
        process knows its class. Raises `InputError` if there is no such checkpoint, or if several sweeps are loaded.
        """
        from sweep.api.trainables import model

        return model(self._only("model()"), trial, epoch, self._trainable if trainable is None else trainable)

    def confirm(
        self,
        *,
        seeds: int | None = None,
        finalists: int | None = None,
        budget: str | None = None,
        trainable: object = None,
        **how: Unpack[How],
    ) -> LoadedSweep:
        """Call `sweep.confirm` on this sweep, with the trainable that this process ran."""
        from sweep.api.running import confirm

        folder, given = self._only("confirm()").path, self._trainable if trainable is None else trainable
        return confirm(folder, seeds=seeds, finalists=finalists, budget=budget, trainable=given, **how)

    def retrain(
        self,
        *,
        trial: int | None = None,
        epochs: int | None = None,
        seeds: int = 1,
        all_data: bool = False,
        into: str | None = None,
        set: Settings = (),
        trainable: object = None,
        **how: Unpack[How],
    ) -> LoadedSweep:
        """Call `sweep.retrain` on this sweep, with the trainable that this process ran."""
        from sweep.api.running import retrain

        folder, given = self._only("retrain()").path, self._trainable if trainable is None else trainable
        return retrain(
            folder,
            trial=trial,
            epochs=epochs,
            seeds=seeds,
            all_data=all_data,
            into=into,
            set=set,
            trainable=given,
            **how,
        )

    def _only(self, what: str) -> ResultsFolder:
        if len(self.folders) == 1:
            return self.folders[0]
        names = [*told_apart(self.folders)]
        hint = f"load one of them, as in sweep.load({names[0]!r}).{what}"
        raise InputError.one(what, f"{len(names)} sweeps are loaded ({', '.join(names)}), expected one", hint)

    def __repr__(self) -> str:
        return line(self.sweeps)

    def _repr_html_(self) -> str:
        return html(self.sweeps)


Name: TypeAlias = str | Path

_PATTERN = frozenset("*?[")


def load(name: Name | Sequence[Name], *, results: Name = "results") -> LoadedSweep:
    """Load the results of one sweep, or of several together; also while they run.

    ``name`` is a name in the results folder or the path of a sweep's folder, or a list of these; ``*``, ``?`` and
    ``[...]`` are wildcards. The object shows the sweep as it is now; load it again to get newer results. Nothing is
    written. Raises `InputError` if there is no such sweep, and `StoreError` if one is damaged.
    """
    names = [name] if isinstance(name, str | Path) else list(name)
    if not names:
        raise InputError.one("load", "no path is given", "name one sweep or more")
    found = (folder for one in names for folder in _folders(local(results), one))
    return loaded([*told_apart(found).values()])


def loaded(folders: Sequence[ResultsFolder]) -> LoadedSweep:
    """Load the results in these folders."""
    tables = [reading.read(folder) for folder in folders]
    needed = [_needed(folder, one) for folder, one in zip(folders, tables, strict=True)]
    trials, metrics = ([getattr(one, name).to_pandas() for one in tables] for name in ("trials", "metrics"))
    if len(folders) > 1:  # only then is the column needed
        for frame, name in zip((*trials, *metrics), [*told_apart(folders)] * 2, strict=True):
            frame["sweep"] = pd.Series(name, frame.index, "str")
    return LoadedSweep(tuple(folders), _joined(trials), _joined(metrics), tuple(needed))


def _needed(folder: ResultsFolder, tables: Tables) -> Tables:
    """Drop all metrics but the first objective, which a study needs; the frames have the others."""
    wanted = {"trial", "epoch", *(f"metric.{name}" for name, _ in folder.read_info().objectives[:1])}
    return replace(tables, metrics=tables.metrics.select([n for n in tables.metrics.column_names if n in wanted]))


def _folders(results: Path, name: Name) -> Iterator[ResultsFolder]:
    pattern = Path(name)
    if is_url(name):
        yield ResultsFolder.open(results, str(name))
        return
    if not _PATTERN & set(pattern.name) or (results / pattern).exists() or pattern.exists():
        yield ResultsFolder.open(results, name)
        return
    if store_of(results) is not None:
        folders(results)  # updates the local copies
    places = [results, Path()] if len(pattern.parts) == 1 else [Path()]
    for place in places:
        matching = sorted((place / pattern.parent).glob(pattern.name))
        found = [ResultsFolder(path) for path in matching if (path / "sweep.json").is_file()]
        if found:
            yield from found
            return
    ResultsFolder.open(results, name)  # raises InputError, which lists the sweeps that exist


ROWS = 5


def line(sweeps: Sequence[Sweep]) -> str:
    """Return one line per sweep: ``<sweep wine: finished; 12 completed; best val_accuracy 0.9888, trial 3>``."""
    return printable("\n".join(f"<sweep {one.name}: {'; '.join(_facts(one))}>" for one in sweeps))


def html(sweeps: Sequence[Sweep]) -> str:
    """Return HTML with name, state, counts and best trial of each sweep, and the first rows of the ranking."""
    heads = "".join(f"<div><b>{_text(one.name)}</b>: {_text('; '.join(_facts(one)))}</div>" for one in sweeps)
    return f"<div>{heads}{''.join(_table(sweeps))}</div>"


def _facts(one: Sweep) -> Iterator[str]:
    yield one.state
    yield counted_by(Counter(trial.status for trial in one.trials)) or "no trials yet"
    if one.history.active_s:
        yield duration(one.history.active_s)
    ranking = rank([one])
    if not ranking.best:
        return
    row = ranking.best[0]
    found = ", ".join(f"{each.metric} {score(each.mean)}" for each in row.scores)
    what = f"{len(ranking.best)} on the Pareto front, one of them" if len(ranking.best) > 1 else "best"
    told = f" ({verdict.words(row, ranking)})" if len(row.trials) > 1 else ""
    yield f"{what} {found}, trial {row.trials[0].trial} {settings(row.params, ranking.varying)}".rstrip() + told


def _table(sweeps: Sequence[Sweep]) -> Iterator[str]:
    try:
        ranking: Ranking = rank(sweeps)
    except InputError:  # sweeps with different objectives cannot be ranked together
        return
    if not ranking.rows:
        return
    grid = filled(ranking_grid(ranking, ROWS))
    yield "<table><thead><tr>"
    yield from (f"<th>{_text(name)}</th>" for name in grid.columns)
    yield "</tr></thead><tbody>"
    for row in grid.rows:
        yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table>"
    if len(ranking.rows) > ROWS:
        yield f"<div>and {len(ranking.rows) - ROWS} more: <code>.ranking()</code>, <code>.trials</code></div>"


def _text(text: str) -> str:
    return escape(printable(text))
